"""The stream reader against brokers that grow, forget, die and come back, called in the order Spark calls it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from orbitmq.errors import SourceError
from orbitmq.message.model import MessageQueue
from orbitmq.spark.fetch import OffsetRange
from orbitmq.spark.forms import read_schema
from orbitmq.spark.options import read_options
from orbitmq.spark.read_partitions import RANGE_COST, TASK_COST
from orbitmq.spark.stream import TopicStreamReader
from orbitmq.spark.versions import ReadAllAvailable, ReadLimit, ReadMaxRows
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers import PullMessageHeader, UpdateConsumerOffsetHeader
from orbitmq.wire.requests import RequestCode
from tests.spark.conftest import BRIEF_MS, Limits
from tests.spark.queue_model import STORED_AT, QueueModel
from tests.spark.scripted_peer import Hangup, ScriptedPeer, broker_script, name_server_script, queue


class World:
    """Topic `orders` on two brokers, whose queues tests let grow, shrink and go away."""

    def __init__(self) -> None:
        self.queues = {"broker-a": {0: filled(10, 100), 1: filled(0, 20)}, "broker-b": {0: filled(0, 30)}}
        self.dead: set[str] = set()
        self.silent: set[str] = set()
        self.consumers: list[str] = []
        self.group_offsets: dict[int, int] = {}
        self.now = 0.0
        self.pauses = 0
        self.wake: Callable[[], None] = lambda: None
        self.brokers = {name: ScriptedPeer(self._broker(name)) for name in self.queues}
        self.routes = {"orders": {name: (len(self.queues[name]), peer.address) for name, peer in self.brokers.items()}}
        self.ordered: dict[str, str] = {}
        self.perms: dict[tuple[str, str], int] = {}
        script = name_server_script  # looked up for each request, as tests change the routes
        self.name_server = ScriptedPeer(lambda request: script(self.routes, self.ordered, self.perms)(request))

    def _broker(self, name: str) -> Callable[[Command], list[Command]]:
        def script(request: Command) -> list[Command]:
            if name in self.dead:
                raise Hangup
            if name in self.silent:
                return []
            if request.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
                body = json.dumps({"consumerIdList": self.consumers}).encode()
                return [request.response(ResponseCode.SUCCESS, None, None, body)]
            if request.code in {RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT}:
                return [request.response(ResponseCode.SUCCESS, None)]
            if request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
                told = request.header(UpdateConsumerOffsetHeader)
                self.group_offsets[told.queue_id] = told.commit_offset
                return [request.response(ResponseCode.SUCCESS, None)]
            return broker_script(self.queues[name])(request)

        return script

    def reader(self, **options: object) -> TopicStreamReader:
        texts = {name.replace("__", "."): str(value) for name, value in options.items()}
        given = {"nameServer": self.name_server.address, "fetchOffset.numRetries": "0", **texts}
        if not given.keys() & {"subscribePattern", "assign"}:
            given.setdefault("subscribe", "orders")
        return TopicStreamReader(read_options(given), read_schema((), "map"), clock=lambda: self.now, pause=self._pause)

    def _pause(self, seconds: float) -> None:
        self.now += seconds
        self.pauses += 1
        self.wake()

    def close(self) -> None:
        for peer in (*self.brokers.values(), self.name_server):
            peer.close()


def filled(low: int, high: int) -> QueueModel:
    return QueueModel(low, [None] * (high - low))


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


A0, A1, B0 = queue(0), queue(1), queue(0, broker_name="broker-b")
ALL = ReadAllAvailable()


def at(offset: dict[str, Any]) -> dict[MessageQueue, int]:
    return {
        MessageQueue(topic, broker, int(queue_id)): place
        for topic, brokers in offset["q"].items()
        for broker, queues in brokers.items()
        for queue_id, place in queues.items()
    }


def batch(reader: TopicStreamReader, start: dict[str, Any], limit: ReadLimit | None = None) -> dict[str, Any]:
    """The end of the next batch; offsets travel as texts."""
    end = reader.latestOffset(json.loads(json.dumps(start)), limit or reader.getDefaultReadLimit())
    return json.loads(json.dumps(end))


def planned(reader: TopicStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[OffsetRange]:
    return [range_ for partition in reader.partitions(start, end) for range_ in partition.ranges]


def test_batches_follow_one_another_without_gap_or_overlap(world: World) -> None:
    reader = world.reader(startingOffsets="earliest")
    start = reader.initialOffset()
    first = batch(reader, start)
    assert planned(reader, start, first) == [OffsetRange(A0, 10, 100), OffsetRange(A1, 0, 20), OffsetRange(B0, 0, 30)]
    assert batch(reader, first) == first
    assert planned(reader, first, first) == []
    world.queues["broker-a"][1] = filled(0, 25)
    second = batch(reader, first)
    assert planned(reader, first, second) == [OffsetRange(A1, 20, 25)]
    assert reader.reportLatestOffset()["q"] == second["q"]


def test_the_progress_tells_what_a_batch_leaves_unread(world: World) -> None:
    """In messages, and in time: message n of a queue was stored at STORED_AT + n s."""
    reader = world.reader(startingOffsets="earliest", maxOffsetsPerTrigger=28)
    reader._meter._clock_ms = lambda: STORED_AT + 100_000
    end = batch(reader, reader.initialOffset())
    assert at(end) == {A0: 28, A1: 4, B0: 6}
    told = reader.reportLatestOffset()
    assert told is not None
    assert told["behind"] == {
        "orders": {
            "queues": 3,
            "messages": {"min": 16, "avg": 37.333, "max": 72},
            "seconds": {"min": 72, "avg": 87.333, "max": 96},
        }
    }
    assert told["source"] == f"orbitmq topic orders, from {world.name_server.address}"
    assert told["lookedAtMs"] == STORED_AT + 100_000
    rest = batch(reader, end, ALL)
    assert at(rest) == {A0: 100, A1: 20, B0: 30}
    none = {"min": 0, "avg": 0, "max": 0}
    assert reader.reportLatestOffset()["behind"] == {"orders": {"queues": 3, "messages": none, "seconds": none}}


def test_the_lag_costs_one_message_of_a_queue_that_is_behind(world: World) -> None:
    def pulls() -> list[int]:
        requests = (request for broker in world.brokers.values() for request in broker.requests)
        codes = [request for request in requests if request.code == RequestCode.PULL_MESSAGE]
        return [request.header(PullMessageHeader).max_msg_nums for request in codes]

    reader = world.reader(startingOffsets="earliest", minOffsetsPerTrigger=1000)
    start = reader.initialOffset()
    reader._last_batch_at = world.now  # or the first batch would be due at once
    for _ in range(5):
        assert batch(reader, start) == start
    assert pulls() == [1, 1, 1], "one of each queue, though the query looks again and again"
    assert batch(world.reader(startingOffsets="earliest"), start) != start
    assert len(pulls()) == 3, "nothing of what a batch reads to its end"


def test_a_broker_that_is_down_counts_by_its_last_known_end(world: World) -> None:
    reader = world.reader(startingOffsets="earliest", maxOffsetsPerTrigger=28, brokerUnavailableTimeoutMs=60_000)
    end = batch(reader, reader.initialOffset())
    world.dead.add("broker-b")
    batch(reader, end, ALL)
    told = reader.reportLatestOffset()
    assert told is not None
    assert told["behind"]["orders"]["messages"] == {"min": 0, "avg": 8, "max": 24}
    assert told["behind"]["orders"]["seconds"]["min"] == 0


def test_available_now_tells_what_arrived_behind_its_target(world: World) -> None:
    reader = world.reader(startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    world.queues["broker-a"][0] = filled(10, 150)
    assert at(batch(reader, reader.initialOffset()))[A0] == 100
    assert reader.reportLatestOffset()["behind"]["orders"]["messages"]["max"] == 50


def test_a_first_batch_that_is_repeated_begins_where_it_first_began(world: World) -> None:
    """Spark keeps the end of a batch and asks for the beginning of the first one anew after a crash."""
    reader = world.reader(startingOffsets="latest")
    start = reader.initialOffset()
    world.queues["broker-a"][0] = filled(10, 150)
    assert reader.initialOffset() == start
    end = batch(reader, start)
    world.queues["broker-a"][0] = filled(10, 180)
    restarted = world.reader(startingOffsets="latest")
    assert at(restarted.initialOffset())[A0] == 180
    assert planned(restarted, restarted.initialOffset(), end) == [OffsetRange(A0, 100, 150)]
    after = batch(restarted, end)
    assert planned(restarted, end, after) == [OffsetRange(A0, 150, 180)]


def test_a_beginning_nothing_was_read_from_is_kept(world: World) -> None:
    reader = world.reader(startingOffsets="latest")
    quiet = batch(reader, reader.initialOffset())
    assert quiet == reader.initialOffset()
    world.queues["broker-b"][0] = filled(0, 44)
    end = batch(reader, quiet)
    restarted = world.reader(startingOffsets="latest")
    assert planned(restarted, restarted.initialOffset(), end) == [OffsetRange(B0, 30, 44)]


@pytest.mark.parametrize(
    ("options", "begin"),
    [
        ({}, {A0: 100, A1: 20, B0: 30}),
        ({"startingOffsets": "earliest"}, {A0: 10, A1: 0, B0: 0}),
        ({"startingOffsets": '{"orders":{"broker-a":{"0":50,"1":-1}}}'}, {A0: 50, A1: 20, B0: 0}),
        ({"startingTimestamp": STORED_AT + 15_000}, {A0: 15, A1: 15, B0: 15}),
        (
            {"startingOffsetsByTimestamp": json.dumps({"orders": {"broker-a": {"0": STORED_AT + 40_000}}})},
            {A0: 40, A1: 0, B0: 0},
        ),
    ],
)
def test_a_stream_begins_where_the_options_say(
    world: World, options: dict[str, object], begin: dict[MessageQueue, int]
) -> None:
    assert at(world.reader(**options).initialOffset()) == begin


def test_limits_hold_for_every_batch_and_no_queue_starves(world: World) -> None:
    reader = world.reader(startingOffsets="earliest", maxOffsetsPerTrigger=14)
    assert reader.getDefaultReadLimit() == ReadMaxRows(14)
    start = reader.initialOffset()
    seen: dict[MessageQueue, list[int]] = {A0: [], A1: [], B0: []}
    for _ in range(20):
        end = batch(reader, start)
        if end == start:
            break
        pieces = planned(reader, start, end)
        assert 0 < sum(map(len, pieces)) <= 14
        for piece in pieces:
            seen[piece.queue] += range(piece.start, piece.end)
        start = end
    assert seen == {A0: list(range(10, 100)), A1: list(range(20)), B0: list(range(30))}


def test_spark_may_ask_for_everything_whatever_the_limits(world: World) -> None:
    reader = world.reader(startingOffsets="earliest", maxOffsetsPerTrigger=14)
    assert at(batch(reader, reader.initialOffset(), ALL)) == {A0: 100, A1: 20, B0: 30}


def test_bytes_limit_a_batch(world: World) -> None:
    reader = world.reader(startingOffsets="earliest", maxBytesPerTrigger=7000)
    start = reader.initialOffset()
    unit_size = len(world.queues["broker-a"][0].units(10, 11)[0])
    rows = sum(map(len, planned(reader, start, batch(reader, start))))
    assert 0.95 * 7000 <= rows * unit_size <= 1.05 * 7000


def test_a_batch_waits_for_enough_messages_or_long_enough(world: World) -> None:
    reader = world.reader(startingOffsets="earliest", minOffsetsPerTrigger=50, maxTriggerDelay="30s")
    first = batch(reader, reader.initialOffset())
    world.queues["broker-a"][0] = filled(10, 149)
    assert batch(reader, first) == first
    world.now += 30
    second = batch(reader, first)
    assert at(second)[A0] == 149
    world.queues["broker-a"][0] = filled(10, 199)
    assert at(batch(reader, second))[A0] == 199


def test_available_now_reads_up_to_its_target_and_ends(world: World) -> None:
    reader = world.reader(startingOffsets="earliest", maxOffsetsPerTrigger=50, minOffsetsPerTrigger=1000)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    world.queues["broker-a"][0] = filled(10, 500)
    world.queues["broker-b"][1] = filled(0, 9)
    world.routes["orders"]["broker-b"] = (2, world.brokers["broker-b"].address)
    while (end := batch(reader, start)) != start:
        start = end
    assert at(start) == {A0: 100, A1: 20, B0: 30}
    again = world.reader(maxOffsetsPerTrigger=50)
    again.prepareForTriggerAvailableNow()
    while (end := batch(again, start)) != start:
        start = end
    assert at(start) == {A0: 500, A1: 20, B0: 30, queue(1, broker_name="broker-b"): 9}


def test_queues_of_a_broker_that_is_down_are_held_and_the_others_go_on(world: World) -> None:
    reader = world.reader(startingOffsets="earliest", brokerUnavailableTimeoutMs=60_000)
    start = reader.initialOffset()
    world.dead.add("broker-b")
    first = batch(reader, start)
    assert at(first) == {A0: 100, A1: 20, B0: 0}
    assert batch(reader, first) == first
    world.now += 59
    del world.routes["orders"]["broker-b"]  # name servers forget a silent broker after two minutes
    assert batch(reader, first) == first
    world.dead.clear()
    world.routes["orders"]["broker-b"] = (1, world.brokers["broker-b"].address)
    assert at(batch(reader, first))[B0] == 30


def test_a_broker_that_stays_down_ends_the_query_by_name(world: World) -> None:
    reader = world.reader(startingOffsets="earliest", brokerUnavailableTimeoutMs=60_000)
    start = reader.initialOffset()
    world.dead.add("broker-b")
    first = batch(reader, start)
    world.now += 60
    with pytest.raises(SourceError, match=r"^ORBITMQ_BROKER_UNAVAILABLE: broker broker-b for 60 s: "):
        batch(reader, first)
    impatient = world.reader(startingOffsets="earliest", brokerUnavailable="fail")
    with pytest.raises(SourceError, match=r"^ORBITMQ_BROKER_UNAVAILABLE: broker broker-b"):
        batch(impatient, first)


def test_a_broker_that_leaves_the_route_between_two_batches_is_held_and_skips_nothing(world: World) -> None:
    reader = world.reader(startingOffsets="earliest", maxOffsetsPerTrigger=14)
    first = batch(reader, reader.initialOffset())
    place = world.routes["orders"].pop("broker-b")
    while (end := batch(reader, first)) != first:
        assert at(end)[B0] == at(first)[B0]
        first = end
    assert at(first)[A0] == 100
    restarted = world.reader()
    assert batch(restarted, first) == first
    world.routes["orders"]["broker-b"] = place
    pieces = []
    while (end := batch(restarted, first)) != first:
        pieces += planned(restarted, first, end)
        first = end
    assert {piece.queue for piece in pieces} == {B0}
    assert sum(map(len, pieces)) + pieces[0].start == 30


def test_a_stream_does_not_begin_without_a_broker_it_must_have(world: World) -> None:
    place = world.routes["orders"].pop("broker-b")
    with pytest.raises(SourceError, match=r"^ORBITMQ_BROKER_UNAVAILABLE: broker broker-b: .*expectBrokers names it"):
        world.reader(expectBrokers="broker-a,broker-b").initialOffset()
    world.ordered["orders"] = "broker-a:2;broker-b:1"
    with pytest.raises(SourceError, match=r"^ORBITMQ_BROKER_UNAVAILABLE: broker broker-b: .*order configuration"):
        world.reader().initialOffset()
    world.routes["orders"]["broker-b"] = place
    assert B0 in at(world.reader(expectBrokers="broker-a,broker-b").initialOffset())


def test_a_broker_it_must_have_is_waited_for_though_the_stream_never_saw_it(world: World) -> None:
    place = world.routes["orders"].pop("broker-b")
    unaware = world.reader(startingOffsets="earliest")
    start = batch(unaware, unaware.initialOffset())
    assert at(start) == {A0: 100, A1: 20}

    def wake() -> None:
        if world.pauses == 3:
            world.routes["orders"]["broker-b"] = place

    world.wake = wake
    reader = world.reader(expectBrokers="broker-b")
    reader.prepareForTriggerAvailableNow()
    end = batch(reader, start)
    assert planned(reader, start, end) == [OffsetRange(B0, 0, 30)]
    del world.routes["orders"]["broker-b"]
    impatient = world.reader(expectBrokers="broker-b", brokerUnavailable="fail")
    with pytest.raises(SourceError, match=r"^ORBITMQ_BROKER_UNAVAILABLE: broker broker-b .*expectBrokers names it"):
        batch(impatient, start)


@pytest.mark.parametrize("strict", [True, False])
def test_a_queue_that_may_not_be_read_ends_the_stream_and_keeps_its_place(world: World, strict: bool) -> None:
    refusal = r"^ORBITMQ_NO_PERMISSION: topic orders may not be read on broker-b: its permission there is -W-"
    reader = world.reader(startingOffsets="earliest", failOnDataLoss=strict)
    start = reader.initialOffset()
    end = batch(reader, start)
    world.perms["orders", "broker-b"] = 2
    for ask in (
        lambda: batch(reader, end),
        lambda: world.reader(failOnDataLoss=strict).partitions(start, end),
        lambda: world.reader(startingOffsets="earliest", failOnDataLoss=strict).initialOffset(),
    ):
        with pytest.raises(SourceError, match=refusal):
            ask()
    assert B0 not in at(batch(world.reader(assign=ONE_BROKER), end))
    world.queues["broker-b"][0] = filled(0, 33)
    world.perms.clear()
    assert planned(reader, end, batch(reader, end)) == [OffsetRange(B0, 30, 33)]


def test_available_now_waits_for_a_broker_that_is_down_and_fails_after_the_timeout(world: World) -> None:
    reader = world.reader(startingOffsets="earliest", brokerUnavailableTimeoutMs=60_000)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    world.dead.add("broker-b")
    first = batch(reader, start)
    assert at(first) == {A0: 100, A1: 20, B0: 0}
    with pytest.raises(SourceError, match=r"^ORBITMQ_BROKER_UNAVAILABLE: broker broker-b"):
        batch(reader, first)
    assert 55 <= world.pauses <= 65


@pytest.mark.parametrize("forgotten", [False, True], ids=["registered", "forgotten by name servers"])
def test_available_now_goes_on_when_the_broker_is_back(world: World, forgotten: bool) -> None:
    start = world.reader(startingOffsets="earliest").initialOffset()
    world.dead.add("broker-b")
    place = world.routes["orders"]["broker-b"]
    if forgotten:
        del world.routes["orders"]["broker-b"]

    def wake() -> None:
        if world.pauses == 3:
            world.dead.clear()
            world.routes["orders"]["broker-b"] = place
        elif world.pauses == 4:
            pytest.fail("the broker is back")

    world.wake = wake
    reader = world.reader(startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    first = batch(reader, start)
    second = batch(reader, first)
    assert at(second)[B0] == 30
    world.queues["broker-b"][0] = filled(0, 99)
    assert batch(reader, second) == second


def test_a_silent_broker_delays_the_others_little_and_is_heard_when_it_is_slow(world: World, limits: Limits) -> None:
    reader = world.reader(startingOffsets="earliest", pullTimeoutMs=30_000, commitOffsets=True, groupId="g")
    start = reader.initialOffset()
    world.silent.add("broker-b")
    limits.clear()
    first = batch(reader, start)
    assert at(first) == {A0: 100, A1: 20, B0: 0}
    world.now += 2
    batch(reader, first)
    world.now += 398
    world.silent.clear()
    assert at(batch(reader, first))[B0] == 30
    second = world.brokers["broker-b"].address
    # A tenth of the time it has been silent. Each batch also commits the group's offsets, and never waits long for it.
    asked = [limit for address, limit in limits if address == second]
    assert (asked.count(200), asked.count(30_000)) == (1, 1)
    assert set(asked) == {BRIEF_MS, 200, 30_000}


def test_a_silent_name_server_is_asked_once_by_a_stream(world: World, limits: Limits) -> None:
    with ScriptedPeer(lambda request: []) as silent:
        names = f"{silent.address};{world.name_server.address}"
        reader = world.reader(nameServer=names, startingOffsets="earliest", pullTimeoutMs=30_000)
        start = batch(reader, reader.initialOffset())
        for _ in range(3):
            assert batch(reader, start) == start
        assert [limit for address, limit in limits if address == silent.address] == [BRIEF_MS]


def test_a_name_server_that_is_down_does_not_stop_a_stream(world: World) -> None:
    reader = world.reader(startingOffsets="earliest")
    first = batch(reader, reader.initialOffset())
    world.name_server.script = hang_up
    world.queues["broker-a"][1] = filled(0, 22)
    assert at(batch(reader, first))[A1] == 22


def hang_up(request: Command) -> list[Command]:
    raise Hangup


def test_new_queues_and_topics_join_with_their_first_message(world: World) -> None:
    reader = world.reader(subscribePattern="orders.*", startingOffsets="latest")
    first = batch(reader, reader.initialOffset())
    world.queues["broker-b"][1] = filled(4, 9)
    world.routes["orders"]["broker-b"] = (2, world.brokers["broker-b"].address)
    world.routes["orders-eu"] = {"broker-a": (1, world.brokers["broker-a"].address)}
    second = batch(reader, first)
    added = [OffsetRange(queue(0, "orders-eu"), 10, 100), OffsetRange(queue(1, broker_name="broker-b"), 4, 9)]
    assert planned(reader, first, second) == added
    restarted = world.reader(subscribePattern="orders.*", startingOffsets="latest")
    assert planned(restarted, first, second) == added


def test_messages_deleted_before_they_were_read_end_the_query_or_are_counted(world: World) -> None:
    strict = world.reader(startingOffsets="earliest", maxOffsetsPerTrigger=14)
    start = batch(strict, strict.initialOffset())
    world.queues["broker-a"][0] = filled(60, 100)
    lost = 60 - at(start)[A0]
    with pytest.raises(SourceError, match=rf"^ORBITMQ_DATA_LOSS: queue 0 .*the broker has 60 to 100; {lost} messages"):
        batch(strict, start)
    lenient = world.reader(failOnDataLoss=False)
    end = batch(lenient, start)
    assert end["lost"] == lost
    assert planned(lenient, start, end)[0] == OffsetRange(A0, 60, 100)


def test_a_topic_made_anew_is_read_from_its_beginning_when_loss_is_allowed(world: World) -> None:
    reader = world.reader(startingOffsets="earliest", failOnDataLoss=False)
    first = batch(reader, reader.initialOffset())
    world.queues["broker-a"] = {0: filled(0, 5), 1: filled(0, 0)}
    second = batch(reader, first)
    assert planned(reader, first, second) == [OffsetRange(A0, 0, 5)]
    assert batch(reader, second) == second
    with pytest.raises(SourceError, match=r"^ORBITMQ_DATA_LOSS: .*recreated"):
        batch(world.reader(), first)


def test_a_removed_queue_is_data_loss_or_left_out(world: World) -> None:
    reader = world.reader(startingOffsets="earliest", failOnDataLoss=False)
    first = batch(reader, reader.initialOffset())
    world.routes["orders"]["broker-a"] = (1, world.brokers["broker-a"].address)
    with pytest.raises(SourceError, match=r"^ORBITMQ_DATA_LOSS: queue 1 of topic orders on broker-a no longer exists"):
        batch(world.reader(), first)
    assert at(batch(reader, first)) == {A0: 100, B0: 30}


def test_options_may_change_between_runs(world: World) -> None:
    reader = world.reader(startingOffsets="earliest")
    first = batch(reader, reader.initialOffset())
    narrower = world.reader(assign='{"orders":{"broker-a":[1]}}')
    assert at(batch(narrower, first)) == {A1: 20}
    cut = world.reader(startingOffsets="latest", maxRecordsPerPartition=30)
    assert len(planned(cut, reader.initialOffset(), first)) == 3 + 1 + 1


def test_progress_is_told_to_the_brokers_when_it_is_made(world: World) -> None:
    reader = world.reader(startingOffsets="earliest", groupId="spark-orders", commitOffsets=True, assign=ONE_BROKER)
    first = batch(reader, reader.initialOffset())
    assert batch(reader, first) == first
    assert world.group_offsets == {0: 100, 1: 20}
    told = [request.code for request in world.brokers["broker-a"].requests].count(RequestCode.UPDATE_CONSUMER_OFFSET)
    batch(reader, first)
    assert told == [r.code for r in world.brokers["broker-a"].requests].count(RequestCode.UPDATE_CONSUMER_OFFSET)


ONE_BROKER = '{"orders":{"broker-a":[0,1]}}'


def test_offsets_of_running_consumers_are_not_overwritten(world: World) -> None:
    world.consumers = ["10.0.0.7@4711"]
    reader = world.reader(startingOffsets="earliest", groupId="shop", commitOffsets=True, assign=ONE_BROKER)
    first = reader.initialOffset()
    with pytest.raises(
        SourceError, match=r"^ORBITMQ_BAD_OPTION: option commitOffsets: group shop has running consumers: 1, .* use a "
    ):
        batch(reader, batch(reader, first))
    assert world.group_offsets == {}


def test_two_thousand_queues_are_planned(world: World) -> None:
    many = {number: filled(0, 10) for number in range(2000)}
    world.queues["broker-a"] = many
    world.routes["orders"] = {"broker-a": (2000, world.brokers["broker-a"].address)}
    reader = world.reader(startingOffsets="earliest", maxOffsetsPerTrigger=6000)
    start = reader.initialOffset()
    end = batch(reader, start)
    pieces = planned(reader, start, end)
    assert len(pieces) == 2000
    assert {len(piece) for piece in pieces} == {3}
    assert len(reader.partitions(start, end)) == math.ceil(2000 * (3 + RANGE_COST) / TASK_COST)
    again = world.reader(startingOffsets="earliest", maxOffsetsPerTrigger=6000)
    assert again.partitions(start, end) == reader.partitions(start, end), "a repeated batch has the same tasks"
    assert len(world.reader(maxPartitions=2).partitions(start, end)) == 2
    assert len(world.reader(minPartitions=100).partitions(start, end)) == 100
