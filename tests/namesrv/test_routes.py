"""The route table keeps what living brokers told it, and forgets them when they go."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from orbitmq.errors import RequestRejected
from orbitmq.message.config import DataVersion, TopicConfig
from orbitmq.namesrv import routes as routes_module
from orbitmq.namesrv.routes import EXPIRED_AFTER_MS, BrokerIdentity, RegisteredMember, RouteTable
from orbitmq.wire.bodies import BrokerData, BrokerRegistration, ClusterInfo, QueueData, TopicRouteData, TopicTable
from orbitmq.wire.mastership import EPOCH_MAX

NOW = 1_700_000_000_000
MASTER = BrokerIdentity("c1", "a", 0, "10.0.0.1:10911")
SLAVE = BrokerIdentity("c1", "a", 1, "10.0.0.2:10911")
OTHER = BrokerIdentity("c2", "b", 0, "10.0.0.3:10911")


@pytest.fixture
def table() -> Iterator[RouteTable]:
    routes = RouteTable()
    yield routes
    validate(routes)


def validate(routes: RouteTable) -> None:
    """Check the invariants; called after every step."""
    brokers, topics = routes._brokers, routes._topics
    assert all(broker.members for broker in brokers.values())
    assert all(topics.values())
    assert routes._entries == sum(map(len, topics.values())) == sum(broker.entries for broker in brokers.values())
    assert all(name in brokers for queues in topics.values() for name in queues)


def told(*topics: TopicConfig, version: int = 1, filters: tuple[str, ...] = ()) -> BrokerRegistration:
    return BrokerRegistration(list(filters), TopicTable(DataVersion(version, 0), {t.name: t for t in topics}))


def register(
    table: RouteTable,
    identity: BrokerIdentity,
    registration: BrokerRegistration,
    *,
    owner: str = "",
    now_ms: int = NOW,
    epoch: int = 0,
) -> RegisteredMember | None:
    owner, ha_address = owner or identity.address, f"ha-{identity.address}"
    return table.register(identity, registration, ha_address=ha_address, owner=owner, now_ms=now_ms, epoch=epoch)


def test_route_of_a_registered_topic(table: RouteTable) -> None:
    register(table, MASTER, told(TopicConfig("T", 4, 8, 6), filters=("f:1",)))
    register(table, SLAVE, told())
    assert table.route("T") == TopicRouteData(
        broker_datas=[BrokerData("a", "c1", {0: MASTER.address, 1: SLAVE.address})],
        filter_server_table={MASTER.address: ["f:1"]},
        queue_datas=[QueueData("a", perm=6, read_queues=4, write_queues=8)],
    )


def test_unknown_topic_has_no_route(table: RouteTable) -> None:
    register(table, MASTER, told(TopicConfig("T")))
    assert table.route("U") is None


def test_topic_on_two_brokers_has_both(table: RouteTable) -> None:
    register(table, MASTER, told(TopicConfig("T")))
    register(table, OTHER, told(TopicConfig("T")))
    route = table.route("T")
    assert route is not None
    assert [data.broker_name for data in route.broker_datas] == ["a", "b"]
    assert [data.broker_name for data in route.queue_datas] == ["a", "b"]


def test_slave_tells_no_topics_and_learns_its_master(table: RouteTable) -> None:
    assert register(table, SLAVE, told(TopicConfig("T"))) is None
    assert table.topics() == []
    register(table, MASTER, told())
    master = register(table, SLAVE, told(TopicConfig("T")))
    assert master is not None
    assert (master.address, master.ha_address) == (MASTER.address, f"ha-{MASTER.address}")
    assert table.topics() == []


def test_of_two_masters_the_one_promoted_later_stays_whoever_registers_last(table: RouteTable) -> None:
    later = dataclasses.replace(MASTER, address="10.0.0.9:10911")
    register(table, MASTER, told(TopicConfig("T")))
    assert register(table, later, told(TopicConfig("U")), epoch=7) is None
    assert table.rivals("a") == {MASTER.address}
    refused = register(table, MASTER, told(TopicConfig("V"), version=9))
    assert refused is not None
    assert (refused.address, refused.epoch) == (later.address, 7)
    assert table.cluster_info().brokers["a"].addresses == {0: later.address}
    assert table.route("V") is None
    assert table.data_version(MASTER) is None, "so it is not told that its topics are known"
    table.connection_closed(MASTER.address)
    assert table.rivals("a") == frozenset()


def test_of_two_masters_that_were_never_promoted_the_last_to_register_stays(table: RouteTable) -> None:
    other = dataclasses.replace(MASTER, address="10.0.0.9:10911")
    for one, rival in ((MASTER, set()), (other, {MASTER.address}), (MASTER, {other.address})):
        register(table, one, told())
        assert table.cluster_info().brokers["a"].addresses == {0: one.address}
        assert table.rivals("a") == rival


def test_a_former_master_that_becomes_a_slave_is_no_rival_any_more(table: RouteTable) -> None:
    later = dataclasses.replace(MASTER, address="10.0.0.9:10911")
    register(table, MASTER, told())
    register(table, later, told(), epoch=7)
    register(table, dataclasses.replace(MASTER, id=1), told())
    assert table.rivals("a") == frozenset()
    assert table.cluster_info().brokers["a"].addresses == {0: later.address, 1: MASTER.address}


def test_a_promotion_that_no_broker_can_have_pushes_nobody_out(table: RouteTable) -> None:
    register(table, MASTER, told(TopicConfig("T")), epoch=7)
    other = dataclasses.replace(MASTER, address="10.0.0.9:10911")
    with pytest.raises(RequestRejected, match="is greater than"):
        register(table, other, told(), epoch=EPOCH_MAX + 1)
    assert table.cluster_info().brokers["a"].addresses == {0: MASTER.address}


def test_one_broker_too_many_is_refused_and_those_who_are_known_are_not(
    table: RouteTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes_module, "BROKERS_MAX", 2)
    monkeypatch.setattr(routes_module, "MEMBERS_MAX", 2)
    register(table, MASTER, told(TopicConfig("T")))
    register(table, OTHER, told(TopicConfig("T")))
    surplus = dataclasses.replace(OTHER, name="surplus", address="127.0.0.1:1")
    for identity in (surplus, dataclasses.replace(MASTER, name="n" * 513)):
        with pytest.raises(RequestRejected, match="refused"):
            register(table, identity, told())
    register(table, SLAVE, told())
    with pytest.raises(RequestRejected, match="with this name"):
        register(table, dataclasses.replace(SLAVE, id=7, address="127.0.0.1:2"), told())
    register(table, MASTER, told(filters=("f" * 513, *("f:1",) * 101), version=3))
    register(table, SLAVE, told())
    route = table.route("T")
    assert route is not None
    assert route.filter_server_table == {MASTER.address: ["f:1"] * 100}
    table.unregister(OTHER)
    register(table, surplus, told(TopicConfig("T")))


def test_a_broker_with_topics_too_many_lives_without_these(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is renewed with all it has, changes of that are taken, and it tells the others again when there is room."""
    monkeypatch.setattr(routes_module, "ENTRIES_MAX", 3)
    left_out: list[tuple[str, int, int]] = []
    table = RouteTable(lambda *what: left_out.append(what))
    register(table, MASTER, told(TopicConfig("T"), TopicConfig("U")))
    register(table, OTHER, told(TopicConfig("T")))
    known = TopicConfig("T"), TopicConfig("U", perm=4)
    later = NOW + EXPIRED_AFTER_MS
    register(table, MASTER, told(*known, TopicConfig("V"), TopicConfig("W"), version=2), now_ms=later)
    assert left_out == [("a", 2, 3)]
    assert table.expire(later + 1)[0].address == OTHER.address
    assert sorted(table.topics()) == ["T", "U"]
    assert permissions(table, "U") == {"a": 4}
    assert table.data_version(MASTER) not in (None, DataVersion(1, 0), DataVersion(2, 0)), "asked, it has changed"
    told_before = table.data_version(MASTER)
    register(table, MASTER, told(TopicConfig("T"), version=3), now_ms=later)
    assert table.data_version(MASTER) == told_before, "one that has changed does not tell the others"
    register(table, MASTER, told(*known, TopicConfig("V"), version=2), now_ms=later)
    assert sorted(table.topics()) == ["T", "U", "V"]
    assert table.data_version(MASTER) == DataVersion(2, 0)
    register(table, MASTER, told(TopicConfig("n" * 513), version=3))
    assert sorted(table.topics()) == ["T", "U", "V"]
    validate(table)


def test_one_broker_name_leaves_room_for_the_topics_of_others(
    table: RouteTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes_module, "ENTRIES_OF_ONE_MAX", 2)
    register(table, MASTER, told(TopicConfig("T"), TopicConfig("U"), TopicConfig("V")))
    register(table, OTHER, told(TopicConfig("V")))
    assert sorted(table.topics()) == ["T", "U", "V"]
    assert permissions(table, "V") == {"b": 6}
    table.delete_topic("T")
    register(table, MASTER, told(TopicConfig("V"), version=2))
    assert permissions(table, "V") == {"a": 6, "b": 6}


def test_unchanged_version_changes_no_topic(table: RouteTable) -> None:
    register(table, MASTER, told(TopicConfig("T", perm=6), version=1))
    register(table, MASTER, told(TopicConfig("T", perm=4), TopicConfig("U"), version=1))
    assert table.topics() == ["T"]
    register(table, MASTER, told(TopicConfig("T", perm=4), TopicConfig("U"), version=2))
    assert table.topics() == ["T", "U"]
    route = table.route("T")
    assert route is not None
    assert route.queue_datas[0].perm == 4


def test_registration_never_removes_a_topic(table: RouteTable) -> None:
    register(table, MASTER, told(TopicConfig("T"), TopicConfig("U")))
    register(table, MASTER, told(TopicConfig("U"), version=2))
    assert table.topics() == ["T", "U"]


def test_broker_at_a_new_address_is_heard_whatever_its_version(table: RouteTable) -> None:
    register(table, MASTER, told(TopicConfig("T")))
    register(table, BrokerIdentity("c1", "a", 0, "10.0.0.9:1"), told(TopicConfig("U")))
    assert table.topics() == ["T", "U"]
    assert table.cluster_info().brokers["a"].addresses == {0: "10.0.0.9:1"}


def test_process_that_changes_its_role_is_listed_once(table: RouteTable) -> None:
    register(table, SLAVE, told())
    register(table, BrokerIdentity("c1", "a", 0, SLAVE.address), told())
    assert table.cluster_info().brokers["a"].addresses == {0: SLAVE.address}


def test_broker_is_kept_for_120_seconds_of_silence(table: RouteTable) -> None:
    register(table, MASTER, told(TopicConfig("T")), now_ms=NOW)
    register(table, OTHER, told(), now_ms=NOW + 1)
    assert table.expire(NOW + EXPIRED_AFTER_MS) == []
    expired = table.expire(NOW + EXPIRED_AFTER_MS + 1)
    assert [member.address for member in expired] == [MASTER.address]
    assert table.route("T") is None
    assert list(table.cluster_info().brokers) == ["b"]


def test_renewed_broker_is_not_expired(table: RouteTable) -> None:
    register(table, MASTER, told(version=7))
    table.renew(MASTER, NOW + 60_000)
    assert table.expire(NOW + EXPIRED_AFTER_MS + 1) == []
    assert table.data_version(MASTER) == DataVersion(7, 0)
    table.renew(OTHER, NOW)
    assert table.data_version(OTHER) is None


def test_topics_stay_while_a_slave_lives(table: RouteTable) -> None:
    register(table, MASTER, told(TopicConfig("T")))
    register(table, SLAVE, told())
    table.unregister(MASTER)
    route = table.route("T")
    assert route is not None
    assert route.broker_datas[0].addresses == {1: SLAVE.address}
    table.unregister(SLAVE)
    assert table.route("T") is None
    assert table.cluster_info() == ClusterInfo()


def test_old_process_cannot_unregister_the_one_that_took_over(table: RouteTable) -> None:
    register(table, MASTER, told(TopicConfig("T")))
    register(table, BrokerIdentity("c1", "a", 0, "10.0.0.9:1"), told(TopicConfig("T")))
    table.unregister(MASTER)
    assert table.topics() == ["T"]


def test_closed_connection_removes_its_broker_only(table: RouteTable) -> None:
    register(table, MASTER, told(TopicConfig("T")), owner="one")
    register(table, OTHER, told(TopicConfig("U")), owner="two")
    assert table.connection_closed("one") == [MASTER.address]
    assert table.topics() == ["U"]


def test_broker_that_came_back_over_another_connection_stays(table: RouteTable) -> None:
    register(table, MASTER, told(TopicConfig("T")), owner="old")
    register(table, MASTER, told(TopicConfig("T")), owner="new")
    assert table.connection_closed("old") == []
    assert table.topics() == ["T"]


def test_cluster_lists(table: RouteTable) -> None:
    register(table, MASTER, told(TopicConfig("T"), TopicConfig("S")))
    register(table, OTHER, told(TopicConfig("U"), TopicConfig("S")))
    assert table.cluster_info().clusters == {"c1": ["a"], "c2": ["b"]}
    assert table.topics_of_cluster("c1") == ["T", "S"]
    assert table.topics_of_cluster("c2") == ["S", "U"]
    assert table.topics_of_cluster("c3") == []
    assert table.system_topics() == ["c1", "c2", "a", "b"]
    assert table.any_address() == MASTER.address


def test_topics_are_chosen_by_the_flag_of_their_first_broker(table: RouteTable) -> None:
    register(table, MASTER, told(TopicConfig("T", sys_flag=1), TopicConfig("U", sys_flag=2)))
    register(table, OTHER, told(TopicConfig("T", sys_flag=2)))
    assert table.topics_where(lambda flag: flag == 2) == ["U"]


def test_write_permission_is_wiped_and_given_back_for_one_broker(table: RouteTable) -> None:
    register(table, MASTER, told(TopicConfig("T", perm=7), TopicConfig("R", perm=4)))
    register(table, OTHER, told(TopicConfig("T", perm=6)))
    assert table.wipe_write_permission("a") == 2
    assert permissions(table, "T") == {"a": 5, "b": 6}
    assert table.add_write_permission("a") == 2
    assert permissions(table, "T") == {"a": 6, "b": 6}
    assert permissions(table, "R") == {"a": 6}
    assert table.wipe_write_permission("nobody") == 0


def permissions(table: RouteTable, topic: str) -> dict[str, int]:
    route = table.route(topic)
    return {} if route is None else {data.broker_name: data.perm for data in route.queue_datas}


def test_topic_is_deleted_everywhere_or_in_one_cluster(table: RouteTable) -> None:
    register(table, MASTER, told(TopicConfig("T"), TopicConfig("S")))
    register(table, OTHER, told(TopicConfig("T"), TopicConfig("S")))
    table.delete_topic("T")
    table.delete_topic("S", "c1")
    table.delete_topic("no such topic")
    assert table.topics() == ["S"]
    assert permissions(table, "S") == {"b": 6}
    table.delete_topic("S", "c2")
    assert table.topics() == []


ADDRESSES = st.sampled_from(["h1:1", "h2:1", "h3:1"])
IDENTITIES = st.builds(
    BrokerIdentity, st.sampled_from(["c1", "c2"]), st.sampled_from("ab"), st.integers(0, 2), ADDRESSES
)
TOPICS = st.lists(st.sampled_from("TUV").map(TopicConfig), max_size=2)


class AnyOrder(RuleBasedStateMachine):
    """Whatever happens in whatever order, the invariants hold and a table without living brokers is empty."""

    def __init__(self) -> None:
        super().__init__()
        self.table = RouteTable()
        self.now_ms = NOW

    @rule(identity=IDENTITIES, topics=TOPICS, version=st.integers(0, 2), owner=st.integers(0, 2))
    def register(self, identity: BrokerIdentity, topics: list[TopicConfig], version: int, owner: int) -> None:
        self.table.register(identity, told(*topics, version=version), ha_address="", owner=owner, now_ms=self.now_ms)

    @rule(identity=IDENTITIES)
    def unregister(self, identity: BrokerIdentity) -> None:
        self.table.unregister(identity)

    @rule(owner=st.integers(0, 2))
    def close(self, owner: int) -> None:
        self.table.connection_closed(owner)

    @rule(milliseconds=st.integers(0, EXPIRED_AFTER_MS))
    def pass_time(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        self.table.expire(self.now_ms)

    @rule(topic=st.sampled_from("TUV"), cluster=st.sampled_from(["c1", "c2", None]))
    def delete(self, topic: str, cluster: str | None) -> None:
        self.table.delete_topic(topic, cluster)

    @invariant()
    def invariants_hold(self) -> None:
        validate(self.table)
        for topic in self.table.topics():
            route = self.table.route(topic)
            assert route is not None
            assert all(data.addresses for data in route.broker_datas)

    def teardown(self) -> None:
        self.table.expire(self.now_ms + EXPIRED_AFTER_MS + 1)
        assert self.table.topics() == []
        assert self.table.cluster_info() == ClusterInfo()


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
