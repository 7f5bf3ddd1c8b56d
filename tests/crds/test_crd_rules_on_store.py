"""The in-process store holds every rule of the CRDs with the field paths of a real API server."""

import pytest

from pykarpenter.api import kinds
from pykarpenter.api.crds import crds
from pykarpenter.kube.errors import Invalid
from pykarpenter.runtime.virtual_loop import run_virtual, running_clock
from pykarpenter.sim.api import StoreApi
from pykarpenter.sim.store import Store
from tests.crds.cases import BASES, all_cases, edited

KINDS = {kind.plural: kind for kind in kinds.ALL}
CASES = all_cases(crds())


async def served():
    """A store that serves the custom kinds and holds one valid object of each."""
    api = StoreApi(Store(running_clock()))
    for crd in crds():
        await api.create(kinds.CRD, crd)
    for plural, base in BASES.items():
        await api.create(KINDS[plural], base(), "default" if KINDS[plural].namespaced else "")
    return api


async def refused_fields(shared, case, value):
    """The fields that the store complains about; none when it accepts."""
    kind = KINDS[case.plural]
    namespace = "default" if kind.namespaced else ""
    body = edited(case.plural, case.path, value)
    # An accepted update would change the object that the next case starts from.
    api = shared if case.how == "create" else await served()
    try:
        if case.how == "create":
            body["metadata"]["name"] = "another"
            await api.create(kind, body, namespace)
            await api.delete(kind, "another", namespace)
        elif case.how == "status":
            await api.patch(kind, "case", {"status": body["status"]}, namespace, subresource="status")
        else:
            await api.patch(kind, "case", {"spec": body["spec"]}, namespace)
    except Invalid as error:
        return [cause["field"] for cause in error.details["causes"]]
    return []


@pytest.mark.promise("API-1.1.1", "API-1.1.10", "API-1.2.1", "API-1.2.2", "API-1.5.1", "API-1.6.1", "API-1.7.2")
@pytest.mark.parametrize("plural", BASES)
def test_store_holds_every_rule(plural):
    """Controllers are tested on the store: what it lets through must be what a cluster lets through."""

    async def judge():
        shared, wrong = await served(), []
        for case in (case for case in CASES if case.plural == plural):
            if fields := await refused_fields(shared, case, case.accepted):
                wrong.append(f"{case}: {case.accepted!r} is refused for {fields}")
            fields = await refused_fields(shared, case, case.refused)
            if case.field not in fields:
                wrong.append(f"{case}: {case.refused!r} is refused for {fields}, not {case.field}")
        return wrong

    assert run_virtual(judge()) == []


@pytest.mark.promise("API-1.1.2", "API-1.7.1")
def test_store_fills_in_the_defaults():
    """The same defaults that a real API server gives."""

    async def stored():
        api = await served()
        return await api.get(kinds.NODE_POOL, "case"), await api.get(kinds.KWOK_NODE_CLASS, "case")

    pool, node_class = run_virtual(stored())
    assert pool.spec.template.spec.expire_after == "720h"
    assert [budget.nodes for budget in pool.spec.disruption.budgets] == ["10%"]
    assert [(c.type, c.status, c.reason) for c in node_class.status.conditions] == [("Ready", "True", "Ready")]
