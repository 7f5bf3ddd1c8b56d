"""`python -m pykarpenter.cli`: the same program as the installed script."""

from pykarpenter.cli.main import main

main()
