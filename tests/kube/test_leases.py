"""Leader election: one leader at a time, by monotonic time, and a leader that knows when to stop."""

import asyncio

import pytest

from pykarpenter.api.kinds import LEASE, NODE_CLAIM, POD
from pykarpenter.kube.errors import Fenced, ServerFault
from pykarpenter.kube.fence import FencedApi
from pykarpenter.kube.leases import LeaderElector, new_identity
from pykarpenter.kube.observer import IgnoreKube
from pykarpenter.runtime.virtual_loop import run_virtual, running_clock
from tests.kube.scripted import LeaseApi


class Candidate:
    """An elector whose work writes down when it began and ended."""

    def __init__(self, api, name, clock=None):
        self.story = []
        self.elector = LeaderElector(api, "karpenter-leader-election", "kube-system", name, clock or running_clock())

    async def work(self):
        self.story.append(("leads", asyncio.get_running_loop().time()))
        try:
            await asyncio.sleep(10**9)
        finally:
            self.story.append(("ended", asyncio.get_running_loop().time()))

    def stopped(self):
        self.story.append(("stopped", asyncio.get_running_loop().time()))

    def start(self):
        self.task = asyncio.create_task(self.elector.run(self.work, self.stopped))
        return self


def test_the_first_to_come_leads_and_the_second_waits():
    """Two replicas, one leader."""

    async def main():
        api = LeaseApi()
        first, second = Candidate(api, "one").start(), Candidate(api, "two").start()
        await asyncio.sleep(120)
        assert first.story == [("leads", 0.0)]
        assert second.story == []
        assert first.elector.holds_lease() and not second.elector.holds_lease()
        assert 12 < first.elector.remaining_s() <= 15
        assert second.elector.remaining_s() == 0

    run_virtual(main())


@pytest.mark.promise("API-7.21")
def test_a_graceful_stop_releases_the_lease_so_that_the_other_takes_over_at_once():
    """A roll-out should not cost 15 seconds without a leader, and the work ends before the lease does."""

    async def main():
        api = LeaseApi()
        first, second = Candidate(api, "one").start(), Candidate(api, "two").start()
        await asyncio.sleep(30)
        first.task.cancel()
        await asyncio.gather(first.task, return_exceptions=True)
        assert [what for what, _ in first.story] == ["leads", "ended", "stopped"]
        assert api.holder() == ""
        await asyncio.sleep(5)
        assert api.holder() == "two"
        assert second.story[0][1] < 35

    run_virtual(main())


@pytest.mark.promise("API-7.20")
def test_a_leader_that_died_is_replaced_after_its_lease_and_not_before():
    """The successor must wait until the dead one cannot be alive any more."""

    async def main():
        api = LeaseApi()
        dead = LeaderElector(api, "l", "ns", "dead", running_clock())
        assert await dead._try(5)
        second = LeaderElector(api, "l", "ns", "two", running_clock())
        running = asyncio.create_task(second.run(asyncio.Event().wait, lambda: None))
        await asyncio.sleep(14.9)
        assert api.holder() == "dead"
        await asyncio.sleep(5)
        assert api.holder() == "two"
        running.cancel()

    run_virtual(main())


@pytest.mark.promise("API-7.20")
def test_f19_a_blocked_lease_ends_the_work_before_anyone_else_can_start():
    """S9: the renew deadline (10 s) lies inside the lease (15 s)."""

    async def main():
        api = LeaseApi()
        leader = Candidate(api, "one").start()
        await asyncio.sleep(31)
        api.fail = ServerFault("etcd is down")
        await asyncio.sleep(30)
        stories = dict(leader.story)
        last_renewal = api.writes[-1][0]
        assert stories["ended"] <= last_renewal + 10
        assert not leader.elector.holds_lease()
        assert leader.task.done() and leader.task.exception() is None

    run_virtual(main())


def test_f19_lease_requests_that_hang_do_not_stretch_the_deadline():
    """A request without an answer must not keep the leader believing."""

    async def main():
        api = LeaseApi()
        leader = Candidate(api, "one").start()
        await asyncio.sleep(31)
        api.delay = 3600
        last_renewal = api.writes[-1][0]
        await asyncio.sleep(60)
        assert dict(leader.story)["ended"] <= last_renewal + 10.001

    run_virtual(main())


@pytest.mark.promise("API-7.22")
def test_f40_wall_clocks_that_jump_neither_expire_nor_extend_a_lease():
    """Times in the Lease are for people; expiry is counted on monotonic clocks."""

    async def main():
        api = LeaseApi()
        clock = running_clock()
        first, second = Candidate(api, "one").start(), Candidate(api, "two").start()
        for skew in (600, -600, 86_400, 0):
            clock.skew_s = skew
            await asyncio.sleep(60)
        assert first.story == [("leads", 0.0)]
        assert second.story == []

    run_virtual(main())


class Stoppable:
    """A clock that can be moved without the loop: what a paused process or a blocked loop sees on waking."""

    def __init__(self, clock):
        self.clock = clock
        self.jump_s = 0.0

    def now(self):
        return self.clock.now() + self.jump_s

    def monotonic(self):
        return self.clock.monotonic() + self.jump_s


class Counting(IgnoreKube):
    def __init__(self):
        self.fenced_writes = []

    def fenced(self, verb, kind):
        self.fenced_writes.append((verb, kind))


class Recording:
    """An API that notes the writes that reach it."""

    def __init__(self, delay=0.0):
        self.reached = []
        self.delay = delay

    async def create(self, kind, body, namespace=""):
        await asyncio.sleep(self.delay)
        self.reached.append(("create", kind.kind))

    async def patch(self, kind, name, patch, namespace="", **_):
        self.reached.append(("patch", kind.kind))

    async def delete(self, kind, name, namespace="", options=None):
        self.reached.append(("delete", kind.kind))

    async def evict(self, name, namespace, preconditions=None):
        self.reached.append(("evict", "Pod"))

    async def bind(self, pod_name, namespace, node_name):
        self.reached.append(("bind", "Pod"))

    async def get(self, kind, name, namespace=""):
        return "read"


def test_f20_a_paused_leader_that_wakes_after_a_takeover_writes_nothing():
    """S9: its plans are a minute old and another process acts on the cluster now."""

    async def main():
        leases, world, counted = LeaseApi(), Recording(), Counting()
        clock = Stoppable(running_clock())
        leader = Candidate(leases, "one", clock).start()
        api = FencedApi(world, leader.elector, counted)
        await asyncio.sleep(5)
        await api.create(NODE_CLAIM, {})
        assert world.reached == [("create", "NodeClaim")]
        clock.jump_s = 60.0
        for write in (
            api.create(NODE_CLAIM, {}),
            api.delete(NODE_CLAIM, "a"),
            api.evict("p", "default"),
            api.patch(POD, "p", {}, "default"),
            api.bind("p", "default", "n"),
        ):
            with pytest.raises(Fenced, match="lease"):
                await write
        assert await api.get(POD, "p", "default") == "read"
        assert world.reached == [("create", "NodeClaim")]
        assert counted.fenced_writes == [
            ("create", "NodeClaim"),
            ("delete", "NodeClaim"),
            ("evict", "Pod"),
            ("patch", "Pod"),
            ("bind", "Pod"),
        ]

    run_virtual(main())


def test_f48_a_loop_blocked_for_20_seconds_drops_the_lease_cleanly():
    """The blocked leader finds its deadline spent on waking, ends its work and does not renew behind a successor."""

    async def main():
        leases = LeaseApi()
        clock = Stoppable(running_clock())
        leader = Candidate(leases, "one", clock).start()
        await asyncio.sleep(5)
        renewals = len(leases.writes)
        clock.jump_s = 20.0
        await asyncio.sleep(3)
        assert [what for what, _ in leader.story] == ["leads", "ended", "stopped"]
        assert len(leases.writes) == renewals
        assert not leader.elector.holds_lease()

    run_virtual(main())


def test_f20_a_write_that_hangs_is_given_up_before_the_lease_ends():
    """Its effect must not arrive after a successor began; the outcome counts as unknown."""

    async def main():
        leases = LeaseApi()
        leader = Candidate(leases, "one").start()
        await asyncio.sleep(1)
        leases.fail = ServerFault("down")
        api = FencedApi(Recording(delay=3600), leader.elector)
        with pytest.raises(ServerFault, match="outcome is unknown"):
            await api.create(NODE_CLAIM, {})
        assert asyncio.get_running_loop().time() <= 14.0

    run_virtual(main())


def test_events_and_leases_are_not_fenced():
    """A standby may speak and stand for election."""

    async def main():
        world = Recording()
        standby = LeaderElector(LeaseApi(), "l", "ns", "two", running_clock())
        await FencedApi(world, standby).patch(LEASE, "l", {}, "ns")
        assert world.reached == [("patch", "Lease")]

    run_virtual(main())


def test_work_that_fails_gives_the_lease_back_and_raises():
    """A leader that cannot start must not block the other replica."""

    async def main():
        api = LeaseApi()
        elector = LeaderElector(api, "l", "ns", "one", running_clock())

        async def fails():
            raise RuntimeError("no provider")

        with pytest.raises(RuntimeError, match="no provider"):
            await elector.run(fails, lambda: None)
        assert api.holder() == ""

    run_virtual(main())


def test_identities_name_the_host_and_never_repeat():
    """A restarted pod keeps its host name but is another candidate."""
    one, two = new_identity(), new_identity()
    assert one != two
    assert one.rsplit("_", 1)[0] == two.rsplit("_", 1)[0]


def test_renewals_read_the_lease_only_when_somebody_else_wrote_it():
    """One request every two seconds, not two; an edit by hand does not end the leadership."""

    async def main():
        api = LeaseApi()
        reads = []
        read = api.get

        async def counted_get(*args):
            reads.append(asyncio.get_running_loop().time())
            return await read(*args)

        api.get = counted_get
        leader = Candidate(api, "one").start()
        await asyncio.sleep(61)
        assert reads == [0.0]
        (key,) = api.leases
        api._store(key, api.leases[key])
        await asyncio.sleep(60)
        assert len(reads) == 2
        assert leader.story == [("leads", 0.0)]

    run_virtual(main())
