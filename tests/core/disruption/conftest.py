"""Every disruption test runs on the plain reference packer and on the fast engine: both must lead to the same acts."""

from __future__ import annotations

import pytest

from tests.support.fleet import ENGINES, Fleet


@pytest.fixture(autouse=True, params=sorted(ENGINES))
def engine(request, monkeypatch):
    monkeypatch.setattr(Fleet, "engine", request.param)
    return request.param
