"""Options and the state of a cluster become ranges: offsets, times, brokers that do not answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitmq.errors import SourceError
from orbitmq.spark.cluster_client import ClusterClient, Retries
from orbitmq.spark.fetch import OffsetRange
from orbitmq.spark.options import read_options
from orbitmq.spark.queue_selection import queue_selection
from orbitmq.spark.read_brokers import complete_queues
from orbitmq.spark.read_plan import SAMPLES, mean_size, plan, sample_offsets
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers import Boundary, SearchOffsetHeader, SearchOffsetResponseHeader
from orbitmq.wire.requests import RequestCode
from tests.spark.queue_model import STORED_AT, QueueModel, stored_unit
from tests.spark.scripted_peer import Hangup, ScriptedPeer, broker_script, name_server_script, queue
from tests.support.process import free_port

QUEUES = {0: QueueModel(10, [None] * 90), 1: QueueModel(0, []), 2: QueueModel(0, [None] * 50)}


@pytest.fixture
def name_server() -> Iterator[str]:
    """Topic `orders` with the three queues of QUEUES on broker-a, topic `payments` with one of them on broker-b."""
    with ScriptedPeer(broker_script(QUEUES)) as broker:
        routes = {"orders": {"broker-a": (3, broker.address)}, "payments": {"broker-b": (1, broker.address)}}
        with ScriptedPeer(name_server_script(routes)) as peer:
            yield peer.address


def planned(
    name_servers: str, retries: int = 0, pauses: list[float] | None = None, **given: object
) -> list[OffsetRange]:
    texts = {"subscribe": "orders", **given, "nameServer": name_servers}
    options = read_options({name: str(value) for name, value in texts.items()})
    cluster = ClusterClient(
        options.name_servers, 5000, Retries(retries, 250, (pauses if pauses is not None else []).append)
    )
    places = complete_queues(cluster, options, queue_selection(options))
    queues = {queue: place.addresses for queue, place in places.items()}
    return plan(cluster, options, queues)


def test_a_batch_reads_from_the_first_to_the_last_message_of_every_queue(name_server: str) -> None:
    assert planned(name_server) == [OffsetRange(queue(0), 10, 100), OffsetRange(queue(2), 0, 50)]


def test_several_topics_are_read_together(name_server: str) -> None:
    ranges = planned(name_server, subscribe="payments, orders")
    assert sorted(range_.queue for range_ in ranges) == [queue(0), queue(2), queue(0, "payments", "broker-b")]


def test_given_offsets_bound_the_ranges(name_server: str) -> None:
    ranges = planned(
        name_server, startingOffsets='{"orders":{"0":20}}', endingOffsets='{"orders":{"broker-a":{"0":30,"2":5}}}'
    )
    assert ranges == [OffsetRange(queue(0), 20, 30), OffsetRange(queue(2), 0, 5)]


def test_an_offset_that_retention_has_deleted_is_data_loss(name_server: str) -> None:
    with pytest.raises(SourceError, match=r"^ORBITMQ_DATA_LOSS: queue 0 of .* cannot start at 4, .*6 messages lost"):
        planned(name_server, startingOffsets='{"orders":{"0":4}}')
    ranges = planned(name_server, startingOffsets='{"orders":{"0":4}}', failOnDataLoss=False)
    assert ranges[0] == OffsetRange(queue(0), 10, 100)


def at(offset: int) -> int:
    """The time the model stored the message with this offset."""
    return STORED_AT + 1000 * offset


@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [(0, 10), (at(10), 10), (at(10) + 1, 11), (at(45) - 1, 45), (at(45), 45), (at(99), 99)],
    ids=["before all", "the first", "behind the first", "before one", "on one", "the last"],
)
def test_a_time_is_the_first_message_stored_at_or_after_it(name_server: str, timestamp: int, offset: int) -> None:
    given = {"startingTimestamp": timestamp, "startingOffsetsByTimestampStrategy": "latest"}
    assert planned(name_server, **given)[0] == OffsetRange(queue(0), offset, 100)
    ranges = planned(name_server, endingTimestamp=timestamp)
    assert [range_.end for range_ in ranges if range_.queue == queue(0)] == ([] if offset == 10 else [offset])


def test_of_messages_stored_in_the_same_millisecond_a_time_means_the_first() -> None:
    class SameTime(QueueModel):
        def units(self, start: int, end: int, wanted: str | None = None) -> list[bytes]:
            return [stored_unit(offset, store_timestamp=STORED_AT + offset // 10) for offset in range(start, end)]

    with (
        ScriptedPeer(broker_script({0: SameTime(0, [None] * 100)})) as broker,
        ScriptedPeer(name_server_script({"orders": {"broker-a": (1, broker.address)}})) as names,
    ):
        assert planned(names.address, startingTimestamp=STORED_AT + 5) == [OffsetRange(queue(0), 50, 100)]


def test_times_of_many_queues_are_looked_up_in_step_over_one_connection() -> None:
    many = {number: QueueModel(10, [None] * 90) for number in range(300)}
    with (
        ScriptedPeer(broker_script(many)) as broker,
        ScriptedPeer(name_server_script({"orders": {"broker-a": (300, broker.address)}})) as names,
    ):
        ranges = planned(names.address, startingTimestamp=at(45) + 1)
    assert ranges == [OffsetRange(queue(number), 46, 100) for number in range(300)]
    assert broker.connections == 2, "one for the bounds, one for the times"
    codes = [request.code for request in broker.requests]
    assert codes.count(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP) == 300
    assert codes.count(RequestCode.PULL_MESSAGE) == 2 * 300, "the nearest message, and its neighbour"


def test_a_broker_that_finds_the_first_message_is_believed() -> None:
    nearest = broker_script(QUEUES)

    def script(request: Command) -> list[Command]:
        if request.code != RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
            return list(nearest(request))
        search = request.header(SearchOffsetHeader)
        assert search.boundary == Boundary.LOWER
        found = SearchOffsetResponseHeader(90 if search.queue_id == 0 else 300, Boundary.LOWER)
        return [request.response(ResponseCode.SUCCESS, None, found)]

    with (
        ScriptedPeer(script) as broker,
        ScriptedPeer(name_server_script({"orders": {"broker-a": (3, broker.address)}})) as names,
    ):
        assert planned(names.address, endingTimestamp=at(90)) == [
            OffsetRange(queue(0), 10, 90),
            OffsetRange(queue(2), 0, 50),  # the queue has grown since its end was asked for
        ]
    assert RequestCode.PULL_MESSAGE not in {request.code for request in broker.requests}


def test_a_search_goes_on_when_a_connection_breaks() -> None:
    honest = broker_script(QUEUES)
    failures = iter(range(2))

    def script(request: Command) -> list[Command]:
        if request.code == RequestCode.PULL_MESSAGE and next(failures, None) is not None:
            raise Hangup
        return list(honest(request))

    with (
        ScriptedPeer(script) as broker,
        ScriptedPeer(name_server_script({"orders": {"broker-a": (3, broker.address)}})) as names,
    ):
        ranges = planned(names.address, retries=2, endingTimestamp=at(45))
    assert ranges == [OffsetRange(queue(0), 10, 45), OffsetRange(queue(2), 0, 45)]
    searches = [r for r in broker.requests if r.code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP]
    assert len(searches) == 2, "one for each queue that has messages"


def test_the_size_of_messages_is_told_by_samples_from_everywhere() -> None:
    ranges = [OffsetRange(queue(number), 10, 30) for number in range(100)]
    offsets = sample_offsets(ranges)
    assert len(offsets) == SAMPLES
    assert all(10 <= offset < 30 for offset in offsets.values())
    assert max(each.queue_id for each in offsets) - min(each.queue_id for each in offsets) > 90
    assert sample_offsets([OffsetRange(queue(0), 4, 5), OffsetRange(queue(1), 7, 9)]) == {queue(0): 4, queue(1): 8}


@pytest.mark.parametrize(("queues", "size"), [(QUEUES, len(stored_unit(20))), ({0: QueueModel(0, [None] * 9)}, 0)])
def test_sizes_are_sampled_where_ranges_may_share_a_task(queues: dict[int, QueueModel], size: int) -> None:
    with (
        ScriptedPeer(broker_script(queues)) as broker,
        ScriptedPeer(name_server_script({"orders": {"broker-a": (len(queues), broker.address)}})) as names,
    ):
        options = read_options({"nameServer": names.address, "subscribe": "orders"})
        cluster = ClusterClient(options.name_servers, 5000, Retries(0, 0))
        places = complete_queues(cluster, options, queue_selection(options))
        found = {each: place.addresses for each, place in places.items()}
        assert round(mean_size(cluster, options, found, plan(cluster, options, found))) == size


def test_a_time_behind_the_last_message_follows_the_strategy(name_server: str) -> None:
    with pytest.raises(SourceError, match=r"^ORBITMQ_BAD_OPTION: option startingTimestamp: .*Strategy=latest"):
        planned(name_server, startingTimestamp=at(1000))
    assert planned(name_server, startingTimestamp=at(1000), startingOffsetsByTimestampStrategy="latest") == []
    assert planned(name_server, endingTimestamp=at(1000)) == planned(name_server)


def test_an_unknown_topic_is_named(name_server: str) -> None:
    with pytest.raises(SourceError, match=r"^ORBITMQ_TOPIC_NOT_FOUND: topic nothing"):
        planned(name_server, subscribe="nothing")


def test_any_name_server_that_answers_will_do(name_server: str) -> None:
    assert planned(f"127.0.0.1:{free_port()};{name_server}") == planned(name_server)


def test_name_servers_that_do_not_answer_are_asked_again_and_then_named() -> None:
    pauses: list[float] = []
    with pytest.raises(SourceError, match=r"^ORBITMQ_NAMESERVER_UNAVAILABLE: topic orders: .*refused"):
        planned(f"127.0.0.1:{free_port()}", retries=3, pauses=pauses)
    assert pauses == [0.25] * 3


def test_a_broker_that_hangs_up_once_is_asked_again() -> None:
    honest = broker_script(QUEUES)
    failures = iter([True])

    def script(request: object) -> object:
        if next(failures, False):
            raise Hangup
        return honest(request)

    with (
        ScriptedPeer(script) as broker,
        ScriptedPeer(name_server_script({"orders": {"broker-a": (3, broker.address)}})) as names,
    ):
        assert len(planned(names.address, retries=1)) == 2


def test_a_broker_that_is_down_is_named() -> None:
    with (
        ScriptedPeer(name_server_script({"orders": {"broker-a": (3, f"127.0.0.1:{free_port()}")}})) as names,
        pytest.raises(SourceError, match=r"^ORBITMQ_BROKER_UNAVAILABLE: broker broker-a: .*refused"),
    ):
        planned(names.address)


def test_a_read_continues_an_archive(name_server: str, caplog: pytest.LogCaptureFixture) -> None:
    archived = '{"orders":{"broker-a":{"0":20,"7":5},"broker-gone":{"0":9}}}'
    assert planned(name_server, archivedOffsets=archived) == [
        OffsetRange(queue(0), 20, 100), OffsetRange(queue(2), 0, 50)
    ], "queues that are not there are no error"  # fmt: skip
    for time, begin in ((at(15), 20), (at(30), 30)):
        assert planned(name_server, archivedOffsets=archived, startingTimestamp=time)[0] == OffsetRange(
            queue(0), begin, 100
        ), "whichever is later"


@pytest.mark.parametrize(("offset", "told"), [(4, "10 to 100, 6 messages lost"), (101, "10 to 100")])
def test_what_the_archive_has_missed_is_data_loss(
    name_server: str, offset: int, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    archived = f'{{"orders":{{"broker-a":{{"0":{offset}}}}}}}'
    with pytest.raises(SourceError, match=f"ORBITMQ_DATA_LOSS: .*cannot start at {offset}, the broker has {told}"):
        planned(name_server, archivedOffsets=archived)
    ranges = planned(name_server, archivedOffsets=archived, failOnDataLoss="false")
    assert ranges[0] == OffsetRange(queue(0), 10, 100)
    assert "event=data_loss" in caplog.text


def test_an_archive_excludes_other_starts(name_server: str) -> None:
    for other in ("startingOffsets", "startingOffsetsByTimestamp"):
        with pytest.raises(SourceError, match="option archivedOffsets excludes startingOffsets"):
            planned(name_server, archivedOffsets='{"orders":{"broker-a":{"0":20}}}', **{other: "{}"})
    with pytest.raises(SourceError, match="option archivedOffsets: the offsets of topic orders are not broker"):
        planned(name_server, archivedOffsets='{"orders":{"broker-a":20}}')
