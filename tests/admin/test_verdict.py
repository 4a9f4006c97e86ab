"""What is wrong with a cluster is found by rules, the worst first, and said in words."""

from __future__ import annotations

from msgspec.structs import replace as changed

from orbitmq.admin.runtime import Election, Replication, RequestQueue, Runtime
from orbitmq.admin.session import Node
from orbitmq.admin.verdict import ELECTS, ClusterEvidence, Severity, findings, summary

BOOTED_MS = 1_700_000_000_000
MASTER = Node("c", "broker-a", 0, "10.0.0.1:10911")
SLAVE = Node("c", "broker-a", 1, "10.0.0.2:10911")
WELL = Runtime(version="V4_9_7", booted_at_ms=BOOTED_MS, uptime_ms=60_000, log_disk_ratio=0.3, log_end_offset=1 << 30)


def seen(master: Runtime | None = WELL, slave: Runtime | None = WELL, **more: object) -> ClusterEvidence:
    runtimes = {node: runtime for node, runtime in ((MASTER, master), (SLAVE, slave)) if runtime is not None}
    views = {"ns-1:9876": frozenset({"broker-a:0", "broker-a:1"})}
    return ClusterEvidence([MASTER, SLAVE], runtimes, views, [], **more)  # type: ignore[arg-type]


def rules(look: ClusterEvidence) -> list[tuple[str, Severity]]:
    return [(one.rule, one.severity) for one in findings(look)]


def test_nothing_is_wrong_with_a_cluster_that_is_well() -> None:
    assert findings(seen()) == []
    assert summary([]) == "all is well"


def test_a_dead_master_is_worse_than_a_dead_slave() -> None:
    assert rules(seen(master=None)) == [("reachable", Severity.CRITICAL)]
    assert rules(seen(slave=None)) == [("reachable", Severity.WARNING)]
    assert "broker-a:1 (10.0.0.2:10911)" in summary(findings(seen(slave=None)))


def test_a_name_without_a_master_is_told_with_the_slave_to_promote() -> None:
    (found,) = findings(ClusterEvidence([SLAVE], {SLAVE: WELL}, {"n": frozenset({"broker-a:1"})}, []))
    assert (found.rule, found.subject, found.severity) == ("masters", "broker-a", Severity.CRITICAL)
    assert found.remedy is not None
    assert "--address 10.0.0.2:10911" in found.remedy


def test_no_broker_at_all() -> None:
    assert rules(ClusterEvidence([], {}, {"n": frozenset()}, [])) == [("brokers", Severity.CRITICAL)]


def test_disks_by_their_limits() -> None:
    for ratio, expected in ((0.74, []), (0.75, [("disk", Severity.WARNING)]), (0.85, [("disk", Severity.CRITICAL)])):
        assert rules(seen(changed(WELL, log_disk_ratio=ratio))) == expected
    assert rules(seen(changed(WELL, log_disk_ratio=None, queue_disk_ratio=0.8))) == [("disk", Severity.WARNING)]


def test_sends_that_wait() -> None:
    for waited, expected in ((199, []), (200, [("writes", Severity.WARNING)]), (1000, [("writes", Severity.CRITICAL)])):
        assert rules(seen(changed(WELL, send_queue=RequestQueue(1, 10, waited)))) == expected
        assert rules(seen(changed(WELL, page_cache_lock_ms=waited))) == expected


def test_a_slave_that_is_behind_or_refuses() -> None:
    behind = changed(WELL, log_end_offset=(1 << 30) - (16 << 20))
    assert rules(seen(slave=behind)) == [("slaves", Severity.WARNING)]
    assert rules(seen(slave=changed(WELL, log_end_offset=0))) == [("slaves", Severity.CRITICAL)]
    assert rules(seen(slave=changed(WELL, log_end_offset=None))) == []
    refusing = changed(WELL, replication=Replication(refusal="another log"))
    assert rules(seen(slave=refusing)) == [("slaves", Severity.CRITICAL)]


def test_a_slave_in_no_route_is_told_by_its_master() -> None:
    told = changed(WELL, replication=Replication(refused_slaves="10.0.0.3:10911: they differ from 9 on"))
    (found,) = findings(seen(told))
    assert (found.rule, found.severity, found.subject) == ("slaves", Severity.CRITICAL, str(MASTER))
    assert "10.0.0.3:10911: they differ from 9 on" in found.message
    assert "start it empty" in (found.remedy or "")


def test_brokers_that_elect_their_master() -> None:
    serves = Election("m1", "master", 7, "m1", ["m1", "s1"])
    follows = Election("s1", "following", 7, "m1", ["m1", "s1"])
    assert rules(seen(changed(WELL, election=serves), changed(WELL, election=follows))) == []
    alone = changed(WELL, election=changed(serves, in_sync=["m1"]))
    (found,) = findings(seen(alone, changed(WELL, election=follows)))
    assert (found.rule, found.severity) == ("slaves", Severity.WARNING)
    assert found.message == f"{SLAVE} of broker-a cannot be elected: not in sync"
    fenced = changed(WELL, election=changed(serves, refusal="the lease has ended"))
    assert rules(seen(fenced, changed(WELL, election=follows))) == [("masters", Severity.CRITICAL)]
    silent = changed(follows, failure="no member of etcd responds")
    assert rules(seen(changed(WELL, election=serves), changed(WELL, election=silent))) == [
        ("agreement", Severity.WARNING)
    ]
    waits = changed(WELL, election=follows)
    (found,) = findings(ClusterEvidence([SLAVE], {SLAVE: waits}, {"n": frozenset({"broker-a:1"})}, []))
    assert (found.rule, found.remedy) == ("masters", ELECTS)
    maintained = [changed(WELL, election=changed(one, maintenance=True)) for one in (serves, follows)]
    (found,) = findings(seen(*maintained))
    assert (found.rule, found.severity, found.subject) == ("maintenance", Severity.WARNING, "broker-a")
    assert "orbitmq broker maintenance broker-a --end" in (found.remedy or "")


def test_two_masters_of_one_name_are_told_with_which_is_which() -> None:
    other = Replication(other_masters="10.0.0.9:10911: never promoted", other_masters_serving=1)
    (found,) = findings(seen(changed(WELL, replication=other)))
    assert (found.rule, found.severity) == ("one master", Severity.CRITICAL)
    assert found.message == f"{MASTER} is not the only master of broker-a: 10.0.0.9:10911: never promoted"
    stopped = Replication(other_masters="10.0.0.9:10911: it has stopped", other_masters_serving=0)
    assert rules(seen(changed(WELL, replication=stopped))) == [("one master", Severity.WARNING)]
    former = Replication(superseded_by="a later master, 10.0.0.9:10911")
    assert rules(seen(changed(WELL, replication=former))) == [("one master", Severity.CRITICAL)]


def test_name_servers_that_disagree_about_the_master_are_told() -> None:
    both = {"broker-a": frozenset({MASTER.address, "10.0.0.9:10911"}), "elsewhere": frozenset({"h:1", "h:2"})}
    look = seen(masters_listed=both).of("c")
    (found,) = findings(look)
    assert (found.rule, found.subject, found.severity) == ("one master", "broker-a", Severity.CRITICAL)


def test_a_disk_that_unread_messages_fill_is_critical_and_says_whose_they_are() -> None:
    held = changed(WELL, log_disk_ratio=0.5, disk_held_for="billing has not read message 4 of Orders, queue 0")
    (found,) = findings(seen(held))
    assert (found.rule, found.severity) == ("disk", Severity.CRITICAL)
    assert found.message.endswith("50% full; old files stay, for billing has not read message 4 of Orders, queue 0")
    assert "cleanUnreadFileForciblyEnable=true" in (found.remedy or "")
    (found,) = findings(seen(changed(WELL, log_disk_ratio=0.5, disk_refuses_messages=True)))
    assert (found.severity, found.message[-23:]) == (Severity.CRITICAL, "and accepts no messages")


def test_a_failed_disk_undispatched_messages_versions_and_clocks() -> None:
    assert rules(seen(changed(WELL, active=False))) == [("store", Severity.CRITICAL)]
    assert rules(seen(changed(WELL, undispatched_bytes=64 << 20))) == [("dispatch", Severity.CRITICAL)]
    assert rules(seen(changed(WELL, version="V5_3_3"))) == [("versions", Severity.WARNING)]
    (found,) = findings(seen(changed(WELL, clock_ahead_ms=10_000)))
    assert (found.rule, "10 s ahead" in found.message) == ("clocks", True)


def test_name_servers_that_are_silent_or_know_less() -> None:
    look = seen()
    views = {"ns-1:9876": frozenset({"broker-a:0", "broker-a:1"}), "ns-2:9876": frozenset({"broker-a:0"})}
    found = findings(ClusterEvidence(look.nodes, look.runtimes, views, ["ns-3:9876"]))
    assert [one.rule for one in found] == ["name servers", "registrations"]
    assert "broker-a:1 is not registered at name server ns-2:9876" in found[1].message


def test_the_worst_comes_first_and_the_rest_is_counted() -> None:
    found = findings(seen(changed(WELL, log_disk_ratio=0.76, active=False), None))
    assert [one.severity for one in found] == [Severity.CRITICAL, Severity.WARNING, Severity.WARNING]
    assert summary(found).endswith("its disk has failed (and 2 more)")


def test_the_part_of_one_cluster() -> None:
    other = Node("d", "broker-z", 0, "10.0.0.9:10911")
    look = seen()
    everything = ClusterEvidence(
        [*look.nodes, other], look.runtimes, {"n": frozenset({"broker-a:0", "broker-z:0"})}, []
    )
    assert rules(everything.of("d")) == [("reachable", Severity.CRITICAL)]
    assert rules(everything.of("c")) == []
