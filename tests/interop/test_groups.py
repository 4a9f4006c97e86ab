"""Push consumers of one group: sharing, broadcasting, order, retries, and offsets that outlive them."""

from __future__ import annotations

from tests.interop.conftest import System
from tests.support.delivery import Row, assert_content, assert_each_once, by_queue, messages
from tests.support.first_offsets import make_known
from tests.support.java_rocketmq import Driver, run_driver
from tests.support.messages import index_of

COUNT = 10_000


def _create(system: System, topic: str, queues: int = 4) -> tuple[object, ...]:
    """Creates the topic; returns the arguments with which a driver finds it."""
    client = ("--namesrv", system.namesrv_address, "--topic", topic)
    run_driver("admin", "--do", "create", *client, "--queues", queues, "--broker", system.address)
    return client


def _wait_for_assignments(driver: Driver, *wanted: list[int]) -> None:
    """Until the consumers of this process hold these queues, each exactly the given ones."""

    def assigned() -> bool:
        latest = {row["consumer"]: row["queues"] for row in driver.rows() if row["event"] == "assigned"}
        return sorted(latest.values()) == sorted(wanted)

    driver.process.wait_for(assigned, 60, f"assignments {wanted}")


def _of(rows: list[Row], consumer: int) -> list[Row]:
    return [row for row in rows if row["consumer"] == consumer]


def test_two_consumers_share_the_queues(system: System, label: str) -> None:
    client = _create(system, label)
    consume = ("consume", *client, "--group", label, "--instances", 2)
    with Driver(*consume, "--expect", COUNT) as consumers:
        _wait_for_assignments(consumers, [0, 1], [2, 3])
        make_known(system.address, label, label)
        run_driver("send", *client, "--mode", "async", "--count", COUNT, "--run", label)
        received = messages(consumers.finish())

    assert_each_once(received, label, range(COUNT))
    queues_of = [sorted(by_queue(_of(received, consumer))) for consumer in (0, 1)]
    assert sorted(queues_of) == [[0, 1], [2, 3]]

    committed = run_driver("admin", "--do", "committed", *client, "--group", label)
    assert {row["queueId"]: row["offset"] for row in committed} == {
        queue: len(rows) for queue, rows in by_queue(received).items()
    }


def test_a_group_goes_on_where_it_stopped(system: System, label: str) -> None:
    client = _create(system, label)
    make_known(system.address, label, label)
    for first in (0, 500):
        run_driver("send", *client, "--mode", "batch", "--first", first, "--count", 500, "--run", label)
        received = messages(run_driver("consume", *client, "--group", label, "--expect", 500, "--linger-ms", 1000))
        assert_each_once(received, label, range(first, first + 500))


def test_broadcasting_gives_every_message_to_both_consumers(system: System, label: str) -> None:
    client = _create(system, label)
    consume = ("consume", *client, "--group", label, "--instances", 2, "--model", "BROADCASTING")
    with Driver(*consume, "--expect", 2 * COUNT) as consumers:
        _wait_for_assignments(consumers, [0, 1, 2, 3], [0, 1, 2, 3])
        run_driver("send", *client, "--mode", "async", "--count", COUNT, "--run", label)
        received = messages(consumers.finish())
    for consumer in (0, 1):
        assert_each_once(_of(received, consumer), label, range(COUNT))


def test_orderly_consumers_lock_their_queues_and_keep_the_order(system: System, label: str) -> None:
    client = _create(system, label)
    consume = ("consume", *client, "--group", label, "--instances", 2, "--orderly", "true")
    with Driver(*consume, "--expect", 2000) as consumers:
        _wait_for_assignments(consumers, [0, 1], [2, 3])
        run_driver("send", *client, "--count", 2000, "--run", label)
        received = messages(consumers.finish())
    assert_each_once(received, label, range(2000))
    for rows in by_queue(received).values():
        assert [row["queueOffset"] for row in rows] == list(range(len(rows)))
        assert len({row["consumer"] for row in rows}) == 1


def test_an_orderly_consumer_takes_the_queues_of_one_that_left(system: System, label: str) -> None:
    client = _create(system, label)
    consume = ("consume", *client, "--group", label, "--orderly", "true")
    with Driver(*consume, "--expect", 100) as first, Driver(*consume) as second:
        _wait_for_assignments(first, [0, 1])
        _wait_for_assignments(second, [2, 3])
        run_driver("send", *client, "--count", 200, "--run", label)
        first.finish()
        _wait_for_assignments(second, [0, 1, 2, 3])


def test_a_failed_message_comes_back_once(system: System, label: str) -> None:
    client = _create(system, label)
    consume = ("consume", *client, "--group", label, "--fail-every", 10, "--expect", 110)
    with Driver(*consume) as consumer:
        _wait_for_assignments(consumer, [0, 1, 2, 3])
        sent = run_driver("send", *client, "--count", 100, "--run", label)
        received = messages(consumer.finish())
    first = [row for row in received if row["reconsumeTimes"] == 0]
    again = [row for row in received if row["reconsumeTimes"] > 0]
    assert_each_once(first, label, range(100))
    assert_content(again, label)
    assert sorted(map(index_of, again)) == list(range(0, 100, 10))
    assert {row["reconsumeTimes"] for row in again} == {1}
    assert {row["topic"] for row in again} == {label}, "the client shows the topic it was sent to"
    origins = {row["index"]: row["offsetMsgId"] for row in sent if "status" in row}
    for row in again:
        assert row["properties"]["RETRY_TOPIC"] == label
        assert row["properties"]["ORIGIN_MESSAGE_ID"] == origins[index_of(row)]
