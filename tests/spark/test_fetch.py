"""Whatever a broker answers and in whatever order, a range comes complete, once and in order, or not without a word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import SourceError, UnitError
from orbitmq.message.model import MessageQueue
from orbitmq.spark.fetch import HELD_SIZE_MAX, Lane, OffsetRange, PullResponse, RangeFetch, units_before
from orbitmq.wire.codes import ResponseCode
from tests.spark.queue_model import QueueModel, stored_unit

QUEUE = MessageQueue("orders", "broker-a", 3)


def range_fetch(
    start: int, end: int, *, batch_size: int = 32, pipeline: int = 4, filtered: bool = False, strict: bool = True
) -> RangeFetch:
    wanted = OffsetRange(QUEUE, start, end)
    return RangeFetch([wanted], batch_size=batch_size, pipeline=pipeline, filtered=filtered, strict=strict)


def read(fetch: RangeFetch, queue: QueueModel, wanted: str | None = None) -> bytes:
    """Fetch with every answer in the order of the questions."""
    bodies: list[bytes] = []
    while not fetch.finished:
        for lane in fetch.wanted():
            fetch.on_response(lane, queue.pull(lane.at, fetch.count_for(lane), wanted))
        bodies += received(fetch)
    return b"".join(bodies)


def received(fetch: RangeFetch) -> list[bytes]:
    return [body for _, body in fetch.ready()]


@given(st.data())
def test_answers_of_any_size_and_order_give_the_range_in_order(data: st.DataObject) -> None:
    low = data.draw(st.integers(0, 100), "low")
    tags = data.draw(st.lists(st.sampled_from(["a", "b", None]), max_size=300), "tags")
    queue = QueueModel(low, tags, cap=data.draw(st.integers(1, 40), "cap"))
    start = data.draw(st.integers(low, queue.high), "start")
    end = data.draw(st.integers(start, queue.high), "end")
    wanted = data.draw(st.sampled_from([None, "a"]), "filter")
    pipeline = data.draw(st.integers(1, 6), "pipeline")
    fetch = range_fetch(
        start, end, batch_size=data.draw(st.integers(1, 50), "batch"), pipeline=pipeline, filtered=wanted is not None
    )
    in_flight: list[Lane] = []
    bodies: list[bytes] = []
    while not fetch.finished:
        in_flight += fetch.wanted()
        assert in_flight, "an unfinished fetch always has something under way"
        assert len(in_flight) <= pipeline
        if data.draw(st.integers(0, 20), "break") == 0:
            fetch.restart()
            in_flight.clear()
            continue
        lane = in_flight.pop(data.draw(st.integers(0, len(in_flight) - 1), "which"))
        fetch.on_response(lane, queue.pull(lane.at, fetch.count_for(lane), wanted))
        bodies += received(fetch)
    assert b"".join(bodies) == b"".join(queue.units(start, end, wanted))


@given(st.data())
def test_ranges_come_one_after_another_whatever_is_in_flight(data: st.DataObject) -> None:
    """Pulls of several queues are in flight together; what is read is range by range, and each is whole."""
    queues = {number: QueueModel(3, [None] * data.draw(st.integers(0, 40))) for number in range(12)}
    ranges = [OffsetRange(MessageQueue("orders", "broker-a", number), 3, each.high) for number, each in queues.items()]
    pipeline = data.draw(st.integers(1, 8), "pipeline")
    fetch = RangeFetch(ranges, batch_size=16, pipeline=pipeline, filtered=False, strict=True)
    in_flight: list[Lane] = []
    pieces: list[tuple[OffsetRange, bytes]] = []
    most = 0
    while not fetch.finished:
        in_flight += fetch.wanted()
        most = max(most, len({lane.range for lane in in_flight}))
        assert len(in_flight) <= pipeline
        lane = in_flight.pop(data.draw(st.integers(0, len(in_flight) - 1), "which"))
        number = lane.range.queue.queue_id
        fetch.on_response(lane, queues[number].pull(lane.at, fetch.count_for(lane)))
        pieces += fetch.ready()
    filled = [range_ for range_ in ranges if len(range_)]
    assert list(dict.fromkeys(range_ for range_, _ in pieces)) == filled
    for range_ in filled:
        body = b"".join(body for piece, body in pieces if piece == range_)
        assert body == b"".join(queues[range_.queue.queue_id].units(3, range_.end))
    lane_counts = [-(-len(range_) // 16) for range_ in filled]
    if lane_counts and max(lane_counts) == 1:
        assert most == max(1, min(pipeline, len(filled) - 1)), "but for the first one short ranges do not wait"


@given(st.lists(st.integers(0, 200), min_size=1, max_size=5), st.integers(1, 80), st.integers(1, 8), st.booleans())
def test_ranges_of_a_broker_that_limits_pulls_come_whole(
    lengths: list[int], cap: int, pipeline: int, strict: bool
) -> None:
    queues = [QueueModel(0, [None] * length, cap=cap) for length in lengths]
    ranges = [OffsetRange(MessageQueue("orders", "broker-a", number), 0, end) for number, end in enumerate(lengths)]
    fetch = RangeFetch(ranges, batch_size=1024, pipeline=pipeline, filtered=False, strict=strict)
    bodies: list[bytes] = []
    while not fetch.finished:
        for lane in fetch.wanted():
            fetch.on_response(lane, queues[lane.range.queue.queue_id].pull(lane.at, fetch.count_for(lane)))
        bodies += received(fetch)
    assert b"".join(bodies) == b"".join(unit for queue in queues for unit in queue.units(0, queue.high))


def test_a_gap_names_the_queue_it_is_in() -> None:
    ranges = [OffsetRange(QUEUE, 0, 10), OffsetRange(MessageQueue("orders", "broker-a", 7), 0, 10)]
    fetch = RangeFetch(ranges, batch_size=32, pipeline=4, filtered=False, strict=True)
    assert fetch.current == ranges[0]
    (first,) = fetch.wanted()
    fetch.on_response(first, QueueModel(0, [None] * 10, cap=5).pull(first.at, 10))
    first, second = fetch.wanted()
    with pytest.raises(SourceError, match=r"^ORBITMQ_DATA_LOSS: queue 7 of topic orders on broker-a: offset 0 is gone"):
        fetch.on_response(second, QueueModel(5, [None] * 5).pull(second.at, 10))
    fetch.on_response(first, QueueModel(0, [None] * 10).pull(first.at, 10))
    assert fetch.current == ranges[1]


def test_lanes_become_as_long_as_what_one_pull_returns() -> None:
    """So that bodies come in the order of the range, and are decoded where they were received."""
    queue = QueueModel(0, [None] * 1000, cap=70)
    fetch = range_fetch(0, 1000, batch_size=1000)
    (first,) = fetch.wanted()
    fetch.on_response(first, queue.pull(0, 1000))
    lanes = fetch.wanted()
    assert [(lane.at, lane.end) for lane in lanes] == [(70, 140), (140, 210), (210, 280), (280, 350)]
    bodies = received(fetch)
    for lane in lanes:
        fetch.on_response(lane, queue.pull(lane.at, fetch.count_for(lane)))
        bodies += received(fetch)
    assert len(bodies) == 5
    assert b"".join(bodies) == b"".join(queue.units(0, 350))


def test_a_filter_that_matches_rarely_is_followed_across_gaps() -> None:
    tags = ["b"] * 5000
    tags[4321] = "a"
    queue = QueueModel(0, tags)
    assert read(range_fetch(0, 5000, filtered=True), queue, "a") == stored_unit(4321, "a")


def test_lanes_of_a_filtered_range_are_no_shorter_than_what_a_broker_examines() -> None:
    fetch = range_fetch(0, 5000, filtered=True)
    assert [(lane.at, lane.end) for lane in fetch.wanted()][:2] == [(0, 800), (800, 1600)]


@pytest.mark.parametrize(
    ("queue", "where"),
    [
        (
            QueueModel(40, [None] * 60),
            "offset 0 is gone, the broker has 40 to 100; 40 messages before offset 100 are lost",
        ),
        (
            QueueModel(0, [None] * 70),
            "offset 96 is gone, the broker has 0 to 70; 30 messages before offset 100 are lost",
        ),
        (QueueModel(0, []), "offset 0 is gone, the broker has 0 to 0; 100 messages before offset 100 are lost"),
    ],
    ids=["retention won", "the tail is lost", "the queue is empty"],
)
def test_messages_that_are_gone_fail_a_strict_read_with_their_count(queue: QueueModel, where: str) -> None:
    with pytest.raises(SourceError) as caught:
        read(range_fetch(0, 100), queue)
    assert str(caught.value).startswith("ORBITMQ_DATA_LOSS: queue 3 of topic orders on broker-a: ")
    assert where in str(caught.value)


@pytest.mark.parametrize("queue", [QueueModel(40, [None] * 60), QueueModel(0, [None] * 70), QueueModel(0, [])])
def test_a_lenient_read_gives_what_is_left(queue: QueueModel) -> None:
    assert read(range_fetch(0, 100, strict=False), queue) == b"".join(queue.units(0, 100))


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (ResponseCode.NO_PERMISSION, "ORBITMQ_NO_PERMISSION"),
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "ORBITMQ_GROUP_MISSING"),
        (ResponseCode.TOPIC_NOT_EXIST, "ORBITMQ_TOPIC_NOT_FOUND"),
        (ResponseCode.SUBSCRIPTION_PARSE_FAILED, "ORBITMQ_BAD_OPTION"),
        (ResponseCode.SYSTEM_ERROR, "ORBITMQ_BROKER_REFUSED"),
    ],
)
def test_a_refusal_is_told_by_name(code: ResponseCode, name: str) -> None:
    fetch = range_fetch(0, 100)
    with pytest.raises(SourceError, match=rf"^{name}: queue 3 .*remark of the broker"):
        fetch.on_response(fetch.wanted()[0], PullResponse(code, "remark of the broker", 0, 0, 0, b""))


def test_an_account_that_may_not_is_told_so_whatever_the_code() -> None:
    fetch = range_fetch(0, 100)
    remark = "AclException: No default permission for group:TOOLS_CONSUMER"
    with pytest.raises(SourceError, match=f"^ORBITMQ_NO_PERMISSION: queue 3 .*{remark}"):
        fetch.on_response(fetch.wanted()[0], PullResponse(ResponseCode.SYSTEM_ERROR, remark, 0, 0, 0, b""))


@pytest.mark.parametrize("code", [ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY])
def test_an_answer_that_leads_nowhere_ends_the_read_instead_of_repeating_it(code: ResponseCode) -> None:
    fetch = range_fetch(0, 100, filtered=True)
    with pytest.raises(SourceError, match=r"^ORBITMQ_BROKER_REFUSED"):
        fetch.on_response(fetch.wanted()[0], PullResponse(code, "FOUND", 0, 0, 100, stored_unit(0)))


def test_a_slow_first_lane_does_not_let_later_ones_fill_the_memory() -> None:
    fetch = range_fetch(0, 1000, pipeline=3)
    (first,) = fetch.wanted()
    fetch.on_response(first, PullResponse(ResponseCode.SUCCESS, "FOUND", 1, 0, 1000, b"a"))
    assert received(fetch) == [b"a"]
    first, second, third = fetch.wanted()
    large = b"\0" * (HELD_SIZE_MAX // 2)
    for lane in (second, third):
        fetch.on_response(lane, PullResponse(ResponseCode.SUCCESS, "FOUND", lane.at + 1, 0, 1000, large))
    assert fetch.wanted() == []
    fetch.on_response(first, PullResponse(ResponseCode.SUCCESS, "FOUND", first.at + 1, 0, 1000, b"x"))
    assert fetch.wanted() == [first]
    fetch.on_response(first, PullResponse(ResponseCode.SUCCESS, "FOUND", first.end, 0, 1000, b"x"))
    assert received(fetch) == [b"x", b"x", large]


def test_units_behind_the_end_of_a_lane_are_cut_off() -> None:
    units = [stored_unit(offset) for offset in (5, 7, 9)]
    assert units_before(b"".join(units), 8) == b"".join(units[:2])
    assert units_before(b"".join(units), 5) == b""
    for broken in (b"".join(units)[:-3] + stored_unit(1)[:15], bytes(64)):
        with pytest.raises(UnitError):
            units_before(broken, 100)
