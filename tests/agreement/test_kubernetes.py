"""Leases of Kubernetes: what differs from etcd, because no server ends them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import kubernetes_validate
import pytest

from orbitmq.agreement.kubernetes import LEASE, SERVICE_ACCOUNT, WRITES, Kubernetes, in_cluster, lease_name
from orbitmq.errors import AgreementError
from orbitmq.failover.agreed import first
from orbitmq.failover.replica import Propose, Timing
from orbitmq.runtime.clock import ManualClock
from tests.support.agreement import LEASE_MS, TurnedClock, founded
from tests.support.certificates import Authority
from tests.support.kubernetes_api import NAMESPACE, VERBS, KubernetesApi
from tests.support.loops import until

NAME = lease_name("test", "broker")


@dataclass
class Replicas:
    """Clients of one broker name with a clock each."""

    api: KubernetesApi
    made: list[Kubernetes] = field(default_factory=list)

    def new(self, clock: TurnedClock | None = None, wall: ManualClock | None = None) -> tuple[Kubernetes, TurnedClock]:
        clock = clock or TurnedClock()
        client = Kubernetes("", "test", "broker", access=self.api.access, monotonic=clock, clock=wall)
        self.made.append(client)
        return client, clock


@asynccontextmanager
async def replicas(home: Path) -> AsyncIterator[Replicas]:
    async with KubernetesApi(home) as api:
        found = Replicas(api)
        try:
            yield found
        finally:
            for one in found.made:
                await one.stop()


async def candidate(store: Kubernetes, member: str = "b") -> tuple[Propose, str]:
    """The election of a member, and a lease for it."""
    view = await store.read()
    assert view.agreed is not None
    return Propose(
        view.agreed.elect(member, 0, view.agreed.history), view.revision, takes_lease=True
    ), await store.grant(LEASE_MS)


# ---------------------------------------------------------------------------------------------------- how it is written


async def test_a_lease_is_what_kubernetes_takes_and_shows(tmp_path: Path) -> None:
    async with replicas(tmp_path) as found:
        wall = ManualClock(1_700_000_000_000)
        store, _ = found.new(wall=wall)
        lease, _ = await founded(store)
        wall.advance(1_500)
        await store.keep(lease)
        written = found.api.leases[NAME]
        for version in ("1.32", "1.37"):
            kubernetes_validate.validate(written, version, strict=True)
        assert written["spec"] == {
            "holderIdentity": "a/1#1",
            "leaseDurationSeconds": LEASE_MS // 1000,
            "acquireTime": "2023-11-14T22:13:20.000000Z",
            "renewTime": "2023-11-14T22:13:21.500000Z",
            "leaseTransitions": 0,
        }
        await store.revoke(lease)
        assert "holderIdentity" not in found.api.leases[NAME]["spec"]
        proposal, own = await candidate(store, "a")
        await store.propose(proposal, own, "a/1")
        assert found.api.leases[NAME]["spec"]["leaseTransitions"] == 1


async def test_what_others_have_added_to_a_lease_stays_and_keeps_nobody_alive(tmp_path: Path) -> None:
    async with replicas(tmp_path) as found:
        holder, _ = found.new()
        other, clock = found.new()
        lease, _ = await founded(holder)
        await other.read()
        for _ in range(4):
            labelled = found.api.leases[NAME]
            labelled["metadata"]["labels"] = {"seen": "yes"}
            found.api.put(labelled)
            clock.turn(LEASE_MS / 4)
            view = await other.read()
        assert view.holder is None
        assert await holder.keep(lease)
        assert found.api.leases[NAME]["metadata"]["labels"] == {"seen": "yes"}


@pytest.mark.parametrize(
    "names",
    [
        ("DefaultCluster", "broker-a"),
        ("defaultcluster", "broker-a"),
        ("DefaultCluster-broker", "a"),
        ("集群", "经纪人"),
        ("c" * 255, "b" * 255),
    ],
)
async def test_each_broker_name_has_a_lease_of_its_own(tmp_path: Path, names: tuple[str, str]) -> None:
    async with KubernetesApi(tmp_path) as api:
        stores = [Kubernetes("", *one, access=api.access) for one in (names, ("test", "broker"))]
        for one in stores:
            await founded(one)
            await one.stop()
        assert len(api.leases) == 2
        assert lease_name("DefaultCluster", "broker-a") == "orbitmq-defaultcluster-broker-a-6ecea33e3d"


# ---------------------------------------------------------------------------------------------------- when a lease ends


async def test_a_lease_ends_when_it_was_seen_unchanged_for_its_time_by_the_clock_of_who_looks(tmp_path: Path) -> None:
    async with replicas(tmp_path) as found:
        holder, _ = found.new(wall=ManualClock(0))
        late, clock = found.new(TurnedClock(5.0), ManualClock(4_000_000_000_000))
        await founded(holder)
        assert (await late.read()).holder is not None, "seen for the first time, however long ago it was renewed"
        clock.turn(LEASE_MS - 1)
        assert (await late.read()).holder is not None
        clock.turn(1)
        assert (await late.read()).holder is None
        newcomer, _ = found.new(clock)
        assert (await newcomer.read()).holder is not None, "who has started counts from there"


async def test_a_response_that_is_late_ends_no_lease(tmp_path: Path) -> None:
    """It says how the Lease was when it was asked for, or later."""
    async with replicas(tmp_path) as found:
        holder, _ = found.new()
        other, clock = found.new()
        await founded(holder)
        await other.read()
        found.api.before["get"] = lambda: clock.turn(2 * LEASE_MS)
        assert (await other.read()).holder is not None
        assert (await other.read()).holder is None


async def test_who_takes_an_ended_lease_keeps_a_late_renewal_out(tmp_path: Path) -> None:
    async with replicas(tmp_path) as found:
        holder, _ = found.new()  # its clock stands still: it knows of nothing
        other, clock = found.new()
        lease, _ = await founded(holder)
        proposal, own = await candidate(other)
        clock.turn(LEASE_MS / 2)
        assert await other.keep(own)
        clock.turn(LEASE_MS / 2)
        elected = await other.propose(proposal, own, "b/1")
        assert (elected.agreed, elected.holder) == (proposal.agreed, ("b/1", 2))
        found.api.requests.clear()
        assert not await holder.keep(lease)
        assert found.api.requests == ["update 409", "get"]
        assert (await holder.read()).holder == ("b/1", 2)
        late = Propose(first("a").with_in_sync(("a", "b")), 1)
        assert (await holder.propose(late, lease, "a/1")).agreed == proposal.agreed


async def test_a_renewal_just_before_the_election_keeps_the_holder(tmp_path: Path) -> None:
    async with replicas(tmp_path) as found:
        holder, _ = found.new()
        other, clock = found.new()
        lease, _ = await founded(holder)
        proposal, _ = await candidate(other)
        clock.turn(LEASE_MS)
        own = await other.grant(LEASE_MS)
        assert (await other.read()).holder is None
        found.api.before["update"] = lambda: _renew(found.api)
        view = await other.propose(proposal, own, "b/1")
        assert (view.agreed, view.holder) == (first("a"), ("a/1", 1))
        assert await holder.keep(lease)


def _renew(api: KubernetesApi) -> None:
    """As its holder does."""
    lease = api.leases[NAME]
    lease["metadata"]["annotations"][WRITES] = str(int(lease["metadata"]["annotations"][WRITES]) + 1)
    api.put(lease)


async def test_a_proposal_that_meets_a_renewal_is_tried_again(tmp_path: Path) -> None:
    async with replicas(tmp_path) as found:
        store, _ = found.new()
        lease, _ = await founded(store)
        before = await store.read()
        found.api.before["update"] = lambda: _renew(found.api)
        wider = first("a").with_in_sync(("a", "b"))
        after = await store.propose(Propose(wider, before.revision), lease, "a/1")
        assert (after.agreed, after.holder) == (wider, ("a/1", 1))
        assert found.api.requests[-4:] == ["get", "update 409", "get", "update"]


async def test_renewals_and_proposals_at_once_all_happen(tmp_path: Path) -> None:
    async with replicas(tmp_path) as found:
        store, _ = found.new()
        lease, _ = await founded(store)
        before = await store.read()
        wider = first("a").with_in_sync(("a", "b"))
        kept, view = await asyncio.gather(
            store.keep(lease), store.propose(Propose(wider, before.revision), lease, "a/1")
        )
        assert kept
        assert view.agreed == wider


async def test_somebody_who_always_writes_first_is_named_an_error(tmp_path: Path) -> None:
    async with replicas(tmp_path) as found:
        store, _ = found.new()
        lease, _ = await founded(store)

        def again() -> None:
            _renew(found.api)
            found.api.before["update"] = again

        found.api.before["update"] = again
        for ask in (store.keep(lease), store.revoke(lease)):
            with pytest.raises(AgreementError, match="was written by others"):
                await ask


async def test_a_renewal_that_arrives_late_revives_nothing(tmp_path: Path) -> None:
    """Its response was not waited for, and the lease has ended for the holder."""
    async with replicas(tmp_path) as found:
        store, clock = found.new()
        lease, _ = await founded(store)
        clock.turn(LEASE_MS)
        assert not await store.keep(lease)
        _renew(found.api)
        assert (await store.read()).holder is not None, "the others have to wait"
        assert not await store.keep(lease)
        wider = Propose(first("a").with_in_sync(("a", "b")), 1)
        assert (await store.propose(wider, lease, "a/1")).agreed == first("a")


async def test_a_holder_that_an_operator_clears_has_lost_its_lease(tmp_path: Path) -> None:
    async with replicas(tmp_path) as found:
        holder, _ = found.new()
        other, _ = found.new()
        lease, _ = await founded(holder)
        cleared = found.api.leases[NAME]
        del cleared["spec"]["holderIdentity"]
        found.api.put(cleared)
        assert (await other.read()).holder is None
        assert not await holder.keep(lease)


@pytest.mark.parametrize("seed", range(12))
async def test_nobody_takes_a_lease_before_its_holder_counts_it_as_ended(tmp_path: Path, seed: int) -> None:
    """Three clients whose clocks drift do one thing after another, and time passes in the middle of some."""
    chance = random.Random(seed)
    async with replicas(tmp_path) as found:
        members = [Member(found.new(TurnedClock(chance.uniform(0, 1e6))), rate) for rate in (0.99, 1.0, 1.01)]
        master: Member | None = None
        epochs = []
        now = 0.0

        def turn(*durations: float) -> None:
            nonlocal now
            now += (passed := chance.choice(durations))
            for one in members:
                one.clock.turn(passed * one.rate)

        for _ in range(120):
            turn(0, 50, 400, 900)
            if chance.random() < 0.3:
                found.api.before[chance.choice(("get", "update"))] = lambda: turn(0, 300, 2500)
            member = chance.choice(members)
            asked_at = now
            if not member.lease:
                member.lease = await member.store.grant(LEASE_MS)
                member.kept_at = asked_at
            elif await member.store.keep(member.lease):
                member.kept_at = asked_at
            else:
                member.lease = ""
                master = None if master is member else master
                continue
            view = await member.store.read()
            if view.holder is not None and chance.random() < 0.8:
                continue
            name = str(member.rate)
            agreed = first(name) if view.agreed is None else view.agreed.elect(name, 0, view.agreed.history)
            view = await member.store.propose(Propose(agreed, view.revision, takes_lease=True), member.lease, name)
            if (view.agreed, view.holder) == (agreed, (name, agreed.epoch)):
                assert master is None or now >= master.counts_until
                master = member
                epochs.append(agreed.epoch)
        assert epochs == list(range(1, len(epochs) + 1))
        assert len(epochs) > 3


class Member:
    """A client, and how long it counts its lease, in true milliseconds."""

    def __init__(self, client: tuple[Kubernetes, TurnedClock], rate: float) -> None:
        self.store, self.clock = client
        self.rate = rate
        self.lease = ""
        self.kept_at = 0.0

    @property
    def counts_until(self) -> float:
        timing = Timing()
        return self.kept_at + LEASE_MS * (1 - timing.drift) / self.rate


# ------------------------------------------------------------------------------------------- responses that do not come


@pytest.mark.parametrize("verb", ["create", "update"])
async def test_a_write_whose_response_is_lost_has_happened_once(tmp_path: Path, verb: str) -> None:
    async with replicas(tmp_path) as found:
        store, _ = found.new()
        if verb == "create":
            found.api.loses = verb
        lease, _ = await founded(store)
        found.api.loses = verb
        assert await store.keep(lease)
        before = await store.read()
        wider = first("a").with_in_sync(("a", "b"))
        found.api.loses = verb
        after = await store.propose(Propose(wider, before.revision), lease, "a/1")
        assert (after.agreed, after.holder) == (wider, ("a/1", 1))
        assert after.revision == after.read_at == before.read_at + 1


async def test_a_server_that_is_slow_or_gone_is_an_error_in_time_and_is_found_again(tmp_path: Path) -> None:
    async with replicas(tmp_path) as found:
        store, _ = found.new()
        lease, _ = await founded(store)
        before = await store.read()
        wider = Propose(first("a").with_in_sync(("a", "b")), before.revision)
        found.api.delay_s = 60
        async with asyncio.timeout(10):
            for ask in (store.keep(lease), store.propose(wider, lease, "a/1"), anext(store.changes())):
                with pytest.raises(AgreementError, match="does not respond"):
                    await ask
        found.api.delay_s, found.api.pause_s = 0, 0.5
        async with asyncio.timeout(5):
            with pytest.raises(AgreementError, match="does not respond"):
                await store.read()
        found.api.pause_s = 0
        await found.api.stop()
        with pytest.raises(AgreementError, match="does not respond"):
            await store.revoke(lease)
        await found.api.start()
        assert await store.read() == before


async def test_a_response_from_before_the_lease_was_created_is_late_and_no_deletion(tmp_path: Path) -> None:
    async with replicas(tmp_path) as found:
        store, _ = found.new()
        lease = await store.grant(LEASE_MS)
        found.api.holds = "get"
        late = asyncio.ensure_future(store.read())
        await until(lambda: found.api.held)
        await store.propose(Propose(first("a"), 0, takes_lease=True), lease, "a/1")
        found.api.held.pop().set()
        assert (await late).agreed == first("a")


async def test_a_response_from_before_a_write_is_late(tmp_path: Path) -> None:
    async with replicas(tmp_path) as found:
        store, _ = found.new()
        lease, _ = await founded(store)
        found.api.holds = "get"
        late = asyncio.ensure_future(store.read())
        await until(lambda: found.api.held)
        await store.revoke(lease)
        after = await store.read()
        found.api.held.pop().set()
        assert await late == after


# -------------------------------------------------------------------------------------------------------------- changes


async def test_renewals_are_not_told_and_the_end_of_the_lease_is(tmp_path: Path) -> None:
    async with replicas(tmp_path) as found:
        holder, _ = found.new()
        lease, _ = await founded(holder)
        other = Kubernetes("", "test", "broker", access=found.api.access)  # waits by the clock of the machine
        found.made.append(other)
        changes = other.changes()
        await anext(changes)
        told = asyncio.ensure_future(anext(changes))
        loop = asyncio.get_running_loop()
        for _ in range(5):
            await asyncio.sleep(LEASE_MS / 4000)
            assert not told.done()
            assert await holder.keep(lease)
        kept_at = loop.time()
        await asyncio.wait_for(told, 10)
        assert loop.time() - kept_at > LEASE_MS / 1000 - 0.1
        assert (await other.read()).holder is None


@pytest.mark.parametrize("how", ["end", "forget", "stop"])
async def test_a_watch_that_ends_misses_nothing(tmp_path: Path, how: str) -> None:
    async with replicas(tmp_path) as found:
        holder, _ = found.new()
        other, _ = found.new()
        await founded(holder)
        changes = other.changes()
        await anext(changes)
        told = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        if how == "stop":
            await found.api.stop()
            with pytest.raises(AgreementError, match="does not respond"):
                await told
            return
        found.api.requests.clear()
        found.api.forget() if how == "forget" else found.api.end_watches()
        await asyncio.wait_for(told, 5)  # as at first: what has happened in between is unknown
        assert found.api.requests == ["list", "watch"]


async def test_a_watch_from_before_what_the_server_knows_begins_again(tmp_path: Path) -> None:
    async with replicas(tmp_path) as found:
        store, _ = found.new()
        found.api.before["watch"] = found.api.forget
        await asyncio.wait_for(anext(store.changes()), 5)
        assert found.api.requests == ["list", "watch 410", "list", "watch"]


async def test_the_holder_hears_of_another_one(tmp_path: Path) -> None:
    async with replicas(tmp_path) as found:
        holder, _ = found.new()
        other, clock = found.new()
        lease, _ = await founded(holder)
        changes = holder.changes()
        await anext(changes)
        told = asyncio.ensure_future(anext(changes))
        proposal, _ = await candidate(other)
        clock.turn(LEASE_MS)
        await other.propose(proposal, await other.grant(LEASE_MS), "b/1")
        await asyncio.wait_for(told, 5)
        found.api.requests.clear()
        assert not await holder.keep(lease), "it has seen who has it"
        assert found.api.requests == ["get"]


# ------------------------------------------------------------------------------------------------ what operators may do


async def test_a_lease_that_is_deleted_is_not_created_again(tmp_path: Path) -> None:
    """It would be without its members in sync."""
    async with replicas(tmp_path) as found:
        holder, _ = found.new()
        lease, _ = await founded(holder)
        changes = holder.changes()
        await anext(changes)
        copy = found.api.leases[NAME]
        found.api.delete(NAME)
        for ask in (holder.keep(lease), holder.read(), anext(changes)):
            with pytest.raises(AgreementError, match=r"was deleted.* create it again from a copy"):
                await ask
        assert not found.api.leases
        copy["metadata"]["uid"] = "another"
        found.api.put(copy)
        with pytest.raises(AgreementError, match="restart the brokers"):
            await holder.read()
        new, _ = found.new()
        assert (await new.read()).agreed == first("a")


@pytest.mark.parametrize("annotations", [None, {}, {WRITES: "1"}, {LEASE: "x", WRITES: "many"}])
async def test_a_lease_of_another_program_is_left_alone(tmp_path: Path, annotations: dict[str, str] | None) -> None:
    async with replicas(tmp_path) as found:
        metadata = {"name": NAME, "uid": "x"} | ({} if annotations is None else {"annotations": annotations})
        found.api.put({"metadata": metadata, "spec": {"holderIdentity": "other"}})
        store, _ = found.new()
        for ask in (store.read(), store.grant(LEASE_MS)):
            with pytest.raises(AgreementError, match=f"Lease {NAME} of namespace {NAMESPACE} is another program's"):
                await ask


# ---------------------------------------------------------------------------------------------------------- credentials


async def test_the_token_is_read_again(tmp_path: Path) -> None:
    async with replicas(tmp_path) as found:
        store, _ = found.new()
        await store.read()
        found.api.tokens = {"second": VERBS}
        with pytest.raises(AgreementError, match=r"does not take the token in .*token"):
            await store.read()
        found.api.token_file.write_text("second\n", encoding="utf-8")
        await store.read()
        found.api.token_file.unlink()
        with pytest.raises(AgreementError, match="automountServiceAccountToken"):
            await store.read()


@pytest.mark.parametrize("missing", sorted(VERBS))
async def test_a_rule_that_is_missing_is_named(tmp_path: Path, missing: str) -> None:
    async with replicas(tmp_path) as found:
        found.api.tokens = {"first": VERBS - {missing}}
        store, _ = found.new()

        async def all_of_it() -> None:
            lease, _ = await founded(store)
            await store.keep(lease)
            await anext(store.changes())

        with pytest.raises(AgreementError) as refused:
            await all_of_it()
        assert f"cannot {missing} resource" in str(refused.value)
        assert f"namespace {NAMESPACE} needs a Role with apiGroups [coordination.k8s.io]" in str(refused.value)
        assert "verbs [get, list, watch, create, update]" in str(refused.value)


async def test_a_namespace_that_is_missing_is_named(tmp_path: Path) -> None:
    async with KubernetesApi(tmp_path) as api:
        store = Kubernetes("elsewhere", "test", "broker", access=api.access)
        with pytest.raises(AgreementError, match='namespaces "elsewhere" not found'):
            await founded(store)
        await store.stop()


@pytest.mark.parametrize(
    ("host", "url"), [("10.0.0.1", "https://10.0.0.1:6443"), ("fd00::1", "https://[fd00::1]:6443")]
)
def test_a_pod_finds_its_api_server(tmp_path: Path, host: str, url: str) -> None:
    Authority(tmp_path, "ca").path.rename(tmp_path / "ca.crt")
    (tmp_path / "namespace").write_text("messages\n", encoding="utf-8")
    environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "6443"}
    access = in_cluster(environment, tmp_path)
    assert (access.url, access.namespace, access.token_file) == (url, "messages", tmp_path / "token")
    assert access.tls is not None
    assert access.tls.check_hostname


def test_outside_of_a_pod_it_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(AgreementError, match="KUBERNETES_SERVICE_HOST is not set"):
        in_cluster({}, tmp_path)
    with pytest.raises(AgreementError, match="set serviceAccountName and automountServiceAccountToken"):
        in_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path)
    assert Path("/var/run/secrets/kubernetes.io/serviceaccount") == SERVICE_ACCOUNT
