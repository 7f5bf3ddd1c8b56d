"""The embedded cluster answers as Kubernetes promises; `make e2e` asks a real API server the same questions."""

from __future__ import annotations

import pytest

from .behaviours import BEHAVIOURS
from .embedded import try_embedded


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_embedded_cluster_behaves_as_kubernetes_does(name: str) -> None:
    """Every controller test runs on it, so a difference would make them prove the wrong thing."""
    findings = try_embedded(BEHAVIOURS[name])
    assert findings
    assert [finding for finding in findings if finding.answer != finding.expected] == []
