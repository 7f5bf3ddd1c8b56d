"""`pykarpenter consolidate` reads a recorded cluster and never acts."""

import json

from click.testing import CliRunner

from pykarpenter.cli.consolidate import command
from tests.cli.test_explain import recording  # noqa: F401


def test_a_recorded_cluster_is_consolidated_on_paper(recording, tmp_path):  # noqa: F811
    """A snapshot from a user is enough to say what could be saved."""
    picture = tmp_path / "trade.svg"
    result = CliRunner().invoke(command, ["-f", recording[0], "-o", "json", "--svg", str(picture)])
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["pricePerHourAfter"] <= answer["pricePerHour"]
    assert answer["lowerBound"] <= answer["pricePerHourAfter"] + 1e-6
    assert picture.read_text().startswith("<svg ")


def test_a_bad_eviction_price_is_named(recording):  # noqa: F811
    """The field, the value and the remedy, not a traceback."""
    result = CliRunner().invoke(command, ["-f", recording[0], "--eviction-price", "cheap"])
    assert result.exit_code == 1
    assert "eviction-price" in result.output and "cheap" in result.output
