"""A range is read whole through answers out of order, busy brokers, lost connections and dead addresses."""

from __future__ import annotations

from itertools import chain, islice

import pytest

from orbitmq.errors import SourceError
from orbitmq.message.flags import PULL_SUBSCRIPTION
from orbitmq.spark.fetch import OffsetRange
from orbitmq.spark.pulls import BUSY_MAX, FetchSettings, RangeReader
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers import PullMessageHeader
from tests.spark.queue_model import QueueModel
from tests.spark.scripted_peer import Hangup, Script, ScriptedPeer, broker_script, queue
from tests.support.process import free_port

MODEL = QueueModel(0, ["a", "b"] * 200, cap=8)
RANGE = OffsetRange(queue(0), 10, 390)


def settings(*, expression: str = "*", timeout_ms: int = 5000, strict: bool = True) -> FetchSettings:
    return FetchSettings("readers", expression, batch_size=32, pipeline=4, timeout_ms=timeout_ms, strict=strict)


def read(*addresses: str, expression: str = "*", timeout_ms: int = 5000, pauses: list[float] | None = None) -> bytes:
    pause = (lambda _: None) if pauses is None else pauses.append
    reader = RangeReader([RANGE], addresses, settings(expression=expression, timeout_ms=timeout_ms), pause=pause)
    return b"".join(body for pieces in reader.pieces() for _, body in pieces)


WHOLE = b"".join(MODEL.units(10, 390))
HONEST = broker_script({0: MODEL})


def test_pulls_carry_their_subscription_and_never_wait() -> None:
    with ScriptedPeer(HONEST) as broker:
        assert read(broker.address, expression="b") == b"".join(MODEL.units(10, 390, "b"))
    for request in broker.requests:
        pull = request.header(PullMessageHeader)
        assert pull.sys_flag == PULL_SUBSCRIPTION
        assert (pull.consumer_group, pull.subscription, pull.expression_type) == ("readers", "b", "TAG")
        assert (pull.suspend_timeout_millis, pull.commit_offset, pull.queue_id) == (0, 0, 0)


def test_several_pulls_are_under_way_and_may_be_answered_in_any_order() -> None:
    pulls: list[Command] = []

    def last_first(request: Command) -> list[Command]:
        pulls.append(request)
        if len(pulls) == 1 or len(pulls) > 5:
            return list(HONEST(request))
        whole = len(pulls) == 5
        return [answer for pull in reversed(pulls[1:]) for answer in HONEST(pull)] if whole else []

    with ScriptedPeer(last_first) as broker:
        assert read(broker.address) == WHOLE
    assert broker.connections == 1


def failing(times: int, failure: Script, honest: Script = HONEST) -> Script:
    """`honest` answers, but every tenth request until it failed `times` times meets `failure`."""
    count = {"requests": 0, "failed": 0}

    def script(request: Command) -> list[Command]:
        count["requests"] += 1
        if count["requests"] % 10 == 0 and count["failed"] < times:
            count["failed"] += 1
            return list(failure(request))
        return list(honest(request))

    return script


def hang_up(request: Command) -> list[Command]:
    raise Hangup


def test_a_lost_connection_is_taken_up_where_it_broke() -> None:
    with ScriptedPeer(failing(3, hang_up)) as broker:
        assert read(broker.address) == WHOLE
    assert broker.connections == 4


def test_ranges_of_many_queues_are_read_over_one_connection_that_may_break() -> None:
    models = {number: QueueModel(0, [None] * (number % 7)) for number in range(60)}
    ranges = [OffsetRange(queue(number), 0, model.high) for number, model in models.items()]

    def whole(broker: ScriptedPeer) -> None:
        reader = RangeReader(ranges, (broker.address,), settings())
        pieces = [piece for run in reader.pieces() for piece in run]
        assert [range_ for range_, _ in pieces] == [range_ for range_ in ranges if len(range_)]
        for range_, body in pieces:
            assert body == b"".join(models[range_.queue.queue_id].units(0, range_.end))

    with ScriptedPeer(broker_script(models)) as broker:
        whole(broker)
    assert broker.connections == 1
    with ScriptedPeer(failing(3, hang_up, broker_script(models))) as broker:
        whole(broker)
    assert broker.connections == 4


def test_the_queue_that_cannot_be_read_is_named() -> None:
    """The ranges before it are read; its own name is told, not that of the first or of the last one in flight."""
    honest = broker_script({number: QueueModel(0, [None] * 5) for number in range(4)})

    def script(request: Command) -> list[Command]:
        if request.header(PullMessageHeader).queue_id == 2:
            raise Hangup
        return list(honest(request))

    ranges = [OffsetRange(queue(number), 0, 5) for number in range(4)]
    with ScriptedPeer(script) as broker:
        pieces = chain.from_iterable(RangeReader(ranges, (broker.address,), settings()).pieces())
        assert [range_ for range_, _ in islice(pieces, 2)] == ranges[:2]
        with pytest.raises(SourceError, match=r"^ORBITMQ_BROKER_UNAVAILABLE: queue 2 of topic orders on broker-a"):
            next(pieces)


def test_an_answer_that_never_comes_is_asked_for_again() -> None:
    with ScriptedPeer(failing(1, lambda _: [])) as broker:
        assert read(broker.address, timeout_ms=200) == WHOLE


def test_another_address_of_the_broker_is_used_when_the_first_is_dead() -> None:
    dead = f"127.0.0.1:{free_port()}"
    with ScriptedPeer(HONEST) as slave:
        assert read(dead, slave.address) == WHOLE


BEHIND = QueueModel(0, ["a", "b"] * 100, cap=8)
"""The queue at a slave that lacks its second half."""


@pytest.mark.parametrize("strict", [True, False])
def test_what_a_slave_does_not_have_yet_is_not_lost(strict: bool) -> None:
    """The master hangs up once: the slave is read as far as it goes, and the master again."""
    with ScriptedPeer(failing(1, hang_up)) as master, ScriptedPeer(broker_script({0: BEHIND})) as slave:
        reader = RangeReader([RANGE], (master.address, slave.address), settings(strict=strict))
        assert b"".join(body for pieces in reader.pieces() for _, body in pieces) == WHOLE
        assert slave.connections == 1


@pytest.mark.parametrize("strict", [True, False])
def test_a_slave_that_is_behind_does_not_stand_for_its_master(strict: bool) -> None:
    dead = f"127.0.0.1:{free_port()}"
    with ScriptedPeer(broker_script({0: BEHIND})) as slave:
        reader = RangeReader([RANGE], (dead, slave.address), settings(strict=strict))
        with pytest.raises(SourceError, match=r"^ORBITMQ_BROKER_UNAVAILABLE: queue 0 of topic orders on broker-a"):
            list(reader.pieces())


def test_what_no_address_has_is_lost() -> None:
    with ScriptedPeer(broker_script({0: BEHIND})) as master, ScriptedPeer(broker_script({0: BEHIND})) as slave:
        addresses = (master.address, slave.address)
        with pytest.raises(SourceError, match=r"^ORBITMQ_DATA_LOSS"):
            read(*addresses)
        reader = RangeReader([RANGE], addresses, settings(strict=False))
        assert b"".join(body for pieces in reader.pieces() for _, body in pieces) == b"".join(BEHIND.units(10, 200))


def test_a_broker_nobody_reaches_ends_the_read() -> None:
    with pytest.raises(
        SourceError, match=r"^ORBITMQ_BROKER_UNAVAILABLE: queue 0 of topic orders on broker-a: .*refused"
    ):
        read(f"127.0.0.1:{free_port()}")


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL])
def test_a_busy_broker_is_given_time(code: ResponseCode) -> None:
    pauses: list[float] = []
    with ScriptedPeer(failing(5, lambda request: [request.response(code, "[OVERLOAD]")])) as broker:
        assert read(broker.address, pauses=pauses) == WHOLE
    assert len(pauses) == 5


def test_a_broker_that_stays_busy_ends_the_read() -> None:
    pauses: list[float] = []
    with (
        ScriptedPeer(lambda request: [request.response(ResponseCode.SYSTEM_BUSY, "[OVERLOAD]")]) as broker,
        pytest.raises(SourceError, match=r"^ORBITMQ_BROKER_UNAVAILABLE: .*stays busy.*OVERLOAD"),
    ):
        read(broker.address, pauses=pauses)
    assert len(pauses) == BUSY_MAX


def test_an_answer_without_offsets_is_not_trusted() -> None:
    with (
        ScriptedPeer(lambda request: [request.response(ResponseCode.SUCCESS, "FOUND")]) as broker,
        pytest.raises(SourceError, match=r"^ORBITMQ_BROKER_UNAVAILABLE: .*PullMessageResponse"),
    ):
        read(broker.address)
