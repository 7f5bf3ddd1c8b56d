"""The `pykarpenter` program: one module per command, imported only when it is used."""

from __future__ import annotations

import sys
from importlib import import_module

import click

# Command -> module that holds `command`; loading lazily keeps `--help` and small commands quick.
COMMANDS: dict[str, str] = {
    "consolidate": "pykarpenter.cli.consolidate",
    "crds": "pykarpenter.cli.crds",
    "demo": "pykarpenter.cli.demo",
    "explain": "pykarpenter.cli.explain",
    "kubelets": "pykarpenter.cli.kubelets",
    "plan": "pykarpenter.cli.plan",
    "rbac": "pykarpenter.cli.rbac",
    "run": "pykarpenter.cli.run",
    "simulate": "pykarpenter.cli.simulate",
    "snapshot": "pykarpenter.cli.snapshot",
    "validate": "pykarpenter.cli.validate",
    "release": "pykarpenter.cli.release",
    "version": "pykarpenter.cli.version",
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        command = import_module(module).command
        assert isinstance(command, click.Command)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Karpenter, the Kubernetes node autoscaler, in Python."""


def main() -> None:
    """Run the program; usage errors exit 1, as bad settings do."""
    try:
        result = cli.main(standalone_mode=False)
    except click.UsageError as error:
        error.show()
        sys.exit(1)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Abort:
        click.echo("Aborted!", err=True)
        sys.exit(130)
    sys.exit(result if isinstance(result, int) else 0)
