"""Every metric the program can show is in the documentation, with its labels."""

import re
import subprocess
import sys
from pathlib import Path

from pykarpenter.runtime.metric_catalog import CATALOG

ROOT = Path(__file__).resolve().parent.parent.parent
USE = re.compile(r'"((?:karpenter|pykarpenter|operator|controller_runtime|workqueue)_[a-z_]+)"')
# Names with those prefixes that are no metrics.
NOT_METRICS = re.compile(r"^karpenter_(sh|k8s)_")


def test_the_table_is_what_the_code_says():
    """A table written by hand would rot."""
    check = subprocess.run(
        [sys.executable, "scripts/metrics_table.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert check.returncode == 0, check.stderr


def test_every_metric_named_in_the_code_is_in_the_catalogue():
    """A name outside it would have no help, wrong buckets and no documentation."""
    unknown = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for name in USE.findall(path.read_text()):
            if name not in CATALOG and not NOT_METRICS.match(name):
                unknown.append(f"{path.name}: {name}")
    assert unknown == []
