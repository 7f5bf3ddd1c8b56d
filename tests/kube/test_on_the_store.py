"""The same layers on the embedded cluster: whatever happens to watches, caches and listeners end up with the truth."""

import asyncio
import random

import pytest

from pykarpenter.api.kinds import CONFIG_MAP, EVENT, LEASE, POD
from pykarpenter.kube.cache import Cache
from pykarpenter.kube.contract import DeleteOptions, list_all
from pykarpenter.kube.errors import Expired, NotFound, ServerFault, TooManyRequests
from pykarpenter.kube.events import EventRecorder, reference_to
from pykarpenter.kube.leases import LeaderElector
from pykarpenter.kube.reflector import Reflector
from pykarpenter.runtime.virtual_loop import run_virtual, running_clock
from pykarpenter.sim.api import Middleware, StoreApi
from pykarpenter.sim.store import Store


class Chaos(Middleware):
    """Everything that goes wrong with lists and watches, by chance from a seed; `calm` ends it."""

    def __init__(self, rng):
        self.rng = rng
        self.calm = False
        self.done = []

    def strikes(self, what, probability):
        if self.calm or self.rng.random() >= probability:
            return False
        self.done.append(what)
        return True

    async def before(self, request):
        if request.verb in ("list", "watch"):
            if self.strikes("refused", 0.15):
                raise self.rng.choice([ServerFault("down"), TooManyRequests("busy"), ServerFault("reset")])
            if self.strikes("slow", 0.1):
                await asyncio.sleep(self.rng.uniform(1, 40))

    async def on_event(self, request, event):
        if self.strikes("expired", 0.01):
            raise Expired("history was compacted")
        if self.strikes("broken", 0.01):
            raise ServerFault("connection reset")
        if self.strikes("silent", 0.005):
            await asyncio.sleep(10**6)
        if self.strikes("late", 0.05):
            await asyncio.sleep(self.rng.uniform(0, 20))
        if self.strikes("twice", 0.05):
            return (event, event)
        return (event,)


class Mirror:
    """A listener that believes only what it is told, and notices when it is told nonsense."""

    def __init__(self):
        self.objects = {}
        # Noted, not raised: the reflector would log an exception of a listener and go on.
        self.nonsense = []

    def hear(self, change):
        old, new = change.old, change.new
        key = (new or old).key
        known = self.objects.get(key)
        if old is None and known is not None:
            self.nonsense.append(f"{key} was created twice")
        if old is not None and known is not old:
            self.nonsense.append(f"{key} changed from a state that was never told")
        if new is None:
            self.objects.pop(key, None)
        else:
            self.objects[key] = new


async def write_at_random(api, rng, steps):
    for step in range(steps):
        name = f"c{rng.randrange(12)}"
        action = rng.random()
        try:
            if action < 0.45:
                await api.create(CONFIG_MAP, {"metadata": {"name": name, "labels": {"step": str(step)}}}, "default")
            elif action < 0.75:
                await api.patch(CONFIG_MAP, name, {"metadata": {"labels": {"step": str(step)}}}, "default")
            else:
                await api.delete(CONFIG_MAP, name, "default")
        except Exception as error:
            assert type(error).__name__ in ("AlreadyExists", "NotFound")
        await asyncio.sleep(rng.choice([0, 0, 0.1, 3, 30]))


def world(seed):
    """Runs writes and chaos, then calm; returns what the store, the cache and the listener hold, and the story."""
    result = {}

    async def main():
        rng = random.Random(seed)
        store = Store(running_clock(), seed=seed, history_limit=50)
        chaos = Chaos(random.Random(seed + 1))
        cache, mirror = Cache(), Mirror()
        told = []
        reflector = Reflector(
            StoreApi(store, middleware=[chaos]),
            CONFIG_MAP,
            cache,
            clock=running_clock(),
            handlers=[
                mirror.hear,
                lambda change: told.append((change.old and change.old.key, change.new and change.new.key)),
            ],
            chance=random.Random(seed + 2).random,
        )
        running = asyncio.create_task(reflector.run())
        user = StoreApi(store)
        await write_at_random(user, rng, 150)
        chaos.calm = True
        await user.create(CONFIG_MAP, {"metadata": {"name": "last"}}, "default")
        # F15 promises news within 90 seconds even from a watch that fell silent before the calm.
        await asyncio.sleep(90)
        truth = {obj.key: obj.metadata.resource_version for obj in await list_all(user, CONFIG_MAP)}
        running.cancel()
        result.update(
            truth=truth,
            cache={obj.key: obj.metadata.resource_version for obj in cache.values()},
            mirror={key: obj.metadata.resource_version for key, obj in sorted(mirror.objects.items())},
            nonsense=mirror.nonsense,
            told=told,
            chaos=chaos.done,
        )

    run_virtual(main())
    return result


@pytest.mark.parametrize("seed", range(12))
def test_f13_f15_f16_f23_f24_caches_and_listeners_converge_to_the_store(seed):
    """L4: late, repeated, lost and expired events leave no trace once faults stop."""
    result = world(seed)
    assert result["cache"] == result["truth"]
    assert result["mirror"] == result["truth"]
    assert result["nonsense"] == []


def test_every_kind_of_chaos_struck():
    """A fault that never fires proves nothing."""
    struck = {what for seed in range(12) for what in world(seed)["chaos"]}
    assert struck == {"refused", "slow", "expired", "broken", "silent", "late", "twice"}


def test_s15_one_seed_one_history():
    """The whole story repeats, or failures could not be studied."""
    assert world(3) == world(3)


def test_leases_and_events_on_the_store():
    """The forms that admission and schemas of the embedded cluster accept."""

    async def main():
        clock = running_clock()
        api = StoreApi(Store(clock))
        elector = LeaderElector(api, "karpenter-leader-election", "kube-system", "me", clock)
        running = asyncio.create_task(elector.run(asyncio.Event().wait, lambda: None))
        await asyncio.sleep(31)
        lease = await api.get(LEASE, "karpenter-leader-election", "kube-system")
        assert (lease.spec.holder_identity, lease.spec.lease_duration_seconds) == ("me", 15)
        pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        made = await api.create(POD, pod, "default")
        recorder = EventRecorder(api, clock)
        recorder.publish(reference_to(POD, made), "Normal", "Nominated", "soon")
        await recorder.flush()
        (event,) = await list_all(api, EVENT)
        assert (event.involved_object.uid, event.reason, event.count) == (made.uid, "Nominated", 1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        lease = await api.get(LEASE, "karpenter-leader-election", "kube-system")
        assert not lease.spec.holder_identity
        await api.delete(POD, "a", "default", DeleteOptions(grace_period_s=0))
        with pytest.raises(NotFound):
            await api.get(POD, "a", "default")

    run_virtual(main())
