"""The progress of an archive is committed to every broker that a name server knows; other queues are logged, and so are
consumers of its group."""

from __future__ import annotations

import pytest

from orbitmq.lake.manifest import Reached
from orbitmq.pipeline.lake_options import ARCHIVE_GROUP
from orbitmq.pipeline.lake_sink import SinkOptions, commit_progress
from orbitmq.wire.bodies import ConsumerIdList
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers import UpdateConsumerOffsetHeader
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode
from tests.spark.scripted_peer import ScriptedPeer, name_server_script


def agreeable(asked: Command) -> list[Command]:
    """A broker that knows no consumer and does whatever it is asked."""
    is_question = asked.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP
    return [asked.response(ResponseCode.SYSTEM_ERROR if is_question else ResponseCode.SUCCESS, None)]


def busy(asked: Command) -> list[Command]:
    """A broker that has a consumer of every group."""
    return [asked.response(ResponseCode.SUCCESS, None, None, encode(ConsumerIdList(["10.0.0.7@4711"])))]


def point(topic: str, broker: str, following: int) -> Reached:
    return Reached(topic=topic, broker=broker, queue=0, next=following)


@pytest.mark.parametrize(
    ("stranger", "first"),
    [
        (point("deleted", "broker-a", 7), "deleted/broker-a/0"),
        (point("orders", "store", 5), "orders/store/0"),
    ],
)
def test_unknown_queues_do_not_stop_the_progress_of_others(
    stranger: Reached, first: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ScriptedPeer(agreeable) as broker:
        routes = {topic: {"broker-a": (1, broker.address)} for topic in ("orders", "pays")}
        with ScriptedPeer(name_server_script(routes)) as server:
            options = SinkOptions.parse({"nameServer": server.address})
            commit_progress(options, [stranger, point("orders", "broker-a", 3), point("pays", "broker-a", 4)])
        commits = [
            asked.header(UpdateConsumerOffsetHeader)
            for asked in broker.requests
            if asked.code == RequestCode.UPDATE_CONSUMER_OFFSET
        ]
    assert {(one.consumer_group, one.topic, one.commit_offset) for one in commits} == {
        (ARCHIVE_GROUP, "orders", 3), (ARCHIVE_GROUP, "pays", 4),
    }  # fmt: skip
    assert f"event=archive_progress_not_committed group={ARCHIVE_GROUP} queues=1 first={first} " in caplog.text


def test_consumers_of_the_group_are_told_with_options_of_the_archive(caplog: pytest.LogCaptureFixture) -> None:
    with ScriptedPeer(busy) as broker:
        with ScriptedPeer(name_server_script({"orders": {"broker-a": (1, broker.address)}})) as server:
            commit_progress(SinkOptions.parse({"nameServer": server.address}), [point("orders", "broker-a", 3)])
        assert RequestCode.UPDATE_CONSUMER_OFFSET not in {asked.code for asked in broker.requests}
    (logged,) = (record.getMessage() for record in caplog.records if "event=archive_progress" in record.getMessage())
    assert f"option archiveGroup: group {ARCHIVE_GROUP} has running consumers: 1, such as 10.0.0.7@4711, " in logged
    assert logged.endswith("or set --archive-group (and archiveGuardGroup of the brokers) to a group of its own")
    assert "commitOffsets" not in logged
