"""Message trace: the Java client writes down what it sends and consumes, in a topic of the broker."""

from __future__ import annotations

from collections.abc import Iterator

from tests.interop.conftest import System
from tests.support.delivery import Row, assert_each_once, messages, results
from tests.support.java_rocketmq import run_driver

TOPIC = "RMQ_SYS_TRACE_TOPIC"
COUNT = 6
FIELD_END, RECORD_END = "\x01", "\x02"


def _traces(system: System, group: str) -> Iterator[list[str]]:
    """The fields of each record that concerns a group."""
    place = ("--namesrv", system.namesrv_address, "--topic", TOPIC)
    for row in messages(run_driver("pull", *place, "--bodies", "true")):
        for record in row["body"].split(RECORD_END):
            if group in record:
                yield record.split(FIELD_END)


def _by_message(records: list[list[str]], at: int) -> dict[str, list[str]]:
    return {fields[at]: fields for fields in records}


def test_what_is_sent_and_consumed_is_traced(system: System, label: str) -> None:
    client = ("--namesrv", system.namesrv_address, "--topic", label, "--group", label)
    tracing = ("--trace", "true", "--linger-ms", 2000)
    sent = results(run_driver("send", *client, "--count", COUNT, "--run", label, *tracing))
    consume = ("consume", *client, "--expect", COUNT, *tracing)
    received = messages(run_driver(*consume))
    assert_each_once(received, label, range(COUNT))

    records = list(_traces(system, label))
    published = _by_message([fields for fields in records if fields[0] == "Pub"], 5)
    assert set(published) == {row["msgId"] for row in sent}
    for row in sent:
        _assert_published(published[row["msgId"]], row, system, label)
    before = _by_message([fields for fields in records if fields[0] == "SubBefore"], 5)
    after = _by_message([fields for fields in records if fields[0] == "SubAfter"], 2)
    assert set(before) == set(after) == set(published)
    for message_id, fields in before.items():
        assert (fields[3], fields[6]) == (label, "0")
        assert fields[4] == after[message_id][1], "both belong to one request"
        assert after[message_id][4] == "true"


def _assert_published(fields: list[str], row: Row, system: System, label: str) -> None:
    assert fields[2:5] == ["DefaultRegion", label, label]
    assert fields[6] == "Tag" + "ABC"[row["index"] % 3]
    assert fields[8] == system.address
    assert fields[12:14] == [row["offsetMsgId"], "true"]


def test_the_topic_is_there_and_takes_messages_of_anybody(system: System, label: str) -> None:
    place = ("--namesrv", system.namesrv_address, "--topic", TOPIC)
    assert run_driver("admin", "--do", "route", *place) == [
        {"broker": "broker-a", "readQueues": 1, "writeQueues": 1, "perm": 6}
    ]
    (sent,) = results(run_driver("send", *place, "--count", 1, "--run", label))
    assert (sent["status"], sent["queueId"]) == ("SEND_OK", 0)
