"""Every metric that the documentation promises is emitted somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pykarpenter
from pykarpenter.runtime.metric_catalog import CATALOG

SOURCE = Path(pykarpenter.__file__).parent


def test_every_metric_of_the_catalogue_is_named_by_code_that_emits_it() -> None:
    """A family in the table that nobody writes is a graph that stays empty."""
    texts = [path.read_text() for path in SOURCE.rglob("*.py") if path.name != "metric_catalog.py"]
    code = "\n".join(texts)

    def is_emitted(name: str) -> bool:
        if name.startswith("operator_"):
            name = re.sub(
                r"^operator_(?:(?:nodeclaim|nodepool|node|capacitybuffer|kwoknodeclass|simnodeclass)_)?", "", name
            )
        if name.startswith("controller_runtime_"):
            name = name.removeprefix("controller_runtime_").removesuffix("_total")
        return name in code

    assert [name for name in CATALOG if not is_emitted(name)] == []
