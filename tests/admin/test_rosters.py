"""Members of all groups, and the groups of each client."""

from __future__ import annotations

from orbitmq.admin.clients import ConsumerMember, GroupMembership
from orbitmq.admin.rosters import clients_of, roster
from orbitmq.admin.session import Session
from orbitmq.client import ConsumeConcurrentlyStatus
from orbitmq.client.sync import PushConsumer
from orbitmq.testing.cluster import Cluster
from orbitmq.wire.requests import RequestCode
from tests.support.sessions import asked


def member(name: str, *brokers: str, missing: tuple[str, ...] = ()) -> ConsumerMember:
    return ConsumerMember(name, "10.0.0.9:1", "JAVA", "V4_9_7", list(brokers), list(missing))


def test_a_client_stands_once_with_all_its_groups() -> None:
    whos = {
        "b": GroupMembership("b", [member("x", "broker-a")], {}),
        "a": GroupMembership("a", [member("x", "broker-b", missing=("broker-c",)), member("y", "broker-a")], {}),
        "CID_RMQ_SYS_TRANS": GroupMembership("CID_RMQ_SYS_TRANS", [member("z", "broker-a")], {}),
    }
    found = {one.client_id: one for one in clients_of(whos)}
    assert sorted(found) == ["x", "y"]
    assert (found["x"].groups, found["x"].brokers, found["x"].missing) == (
        ["a", "b"],
        ["broker-a", "broker-b"],
        ["broker-c"],
    )
    assert [one.client_id for one in clients_of(whos, system=True)] == ["x", "y", "z"]


def test_everybody_who_is_online_is_in_the_roster_and_a_silent_broker_is_named_once() -> None:
    with Cluster(brokers=2) as cluster:
        cluster.create_topic("T", 1)
        consumer = PushConsumer("here", cluster.namesrv_address)
        consumer.subscribe("T")
        consumer.set_listener(lambda *_: ConsumeConcurrentlyStatus.CONSUME_SUCCESS)

        async def look(session: Session) -> None:
            found = await roster(session)
            assert [one.client_id for one in found.groups["here"].members] == [consumer.client_id]
            assert not found.failures
            cluster.disconnect(RequestCode.GET_CONSUMER_CONNECTION_LIST, times=None, broker="broker-b")
            partial = await roster(session)
            assert len(partial.groups["here"].failures) == 1
            assert [one.target.split(" ")[0] for one in partial.failures] == ["broker-b"]

        with consumer:
            asked(cluster.namesrv_address, look)
