"""The parts of the gateway that need no broker: accounts, problems, ids of events, limits, the OpenAPI document."""

from __future__ import annotations

import asyncio
import re
import time
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.deliveries import Source
from orbitmq.errors import (
    BrokerError,
    ClientError,
    ConnectError,
    MessageIllegal,
    OrbitMQError,
    RemotingTimeout,
    UnitError,
)
from orbitmq.filter.tags import tag_subscription
from orbitmq.gateway import bodies
from orbitmq.gateway.accounts import PART_LENGTH_MAX, account_of
from orbitmq.gateway.limits import EACH_SHARE, Places
from orbitmq.gateway.messages import delivered, handle_of, new_message
from orbitmq.gateway.openapi import document
from orbitmq.gateway.operations import Call, deliver, receive, tail
from orbitmq.gateway.problems import KINDS, Refused, problem_of, status_of
from orbitmq.gateway.streams import READ_AHEAD, Prefetched, Tail, lasting, positions_of, positions_text
from orbitmq.gateway.table import TABLE
from orbitmq.message.config import SubscriptionData
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.message.pop import POP_CK, Receipt
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.signature import Credentials
from tests.support.loops import JumpingLoop, LoopFactory

GUIDE = Path(__file__).parents[2] / "docs" / "gateway.md"


pytestmark = pytest.mark.usefixtures("turned_clock")


@pytest.fixture
def turned_clock() -> LoopFactory:
    return JumpingLoop


def basic(text: str) -> str:
    return f"Basic {b64encode(text.encode()).decode()}"


def test_an_account_is_a_key_and_a_secret_that_may_hold_colons() -> None:
    assert account_of(None) is None
    assert account_of(basic("key:se:cret")) == Credentials("key", "se:cret")
    assert account_of(basic("ключ:тайна").replace("Basic", "basic")) == Credentials("ключ", "тайна")


@pytest.mark.parametrize(
    "header", ["Bearer x", "Basic", "Basic %", basic("key"), basic("key:"), basic(":s"), basic("k:s\n"), "Basic /w=="]
)
def test_anything_else_is_refused_as_no_account(header: str) -> None:
    with pytest.raises(Refused) as caught:
        account_of(header)
    assert caught.value.status_code == 401


def test_the_length_of_a_secret_is_limited() -> None:
    with pytest.raises(Refused):
        account_of(basic("k:" + "s" * (PART_LENGTH_MAX + 1)))


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (MessageIllegal("the topic is blank"), 400),
        (BrokerError(ResponseCode.SYSTEM_ERROR, "AclException: No accessKey is configured"), 401),
        (BrokerError(ResponseCode.SYSTEM_ERROR, "AclException: Check signature failed for accessKey=a"), 401),
        (ClientError(1, "AclException: No acl config for a, after 3 attempts"), 401),
        (BrokerError(ResponseCode.SYSTEM_ERROR, "AclException: No default permission for topic:a"), 403),
        (BrokerError(ResponseCode.NO_PERMISSION, "the topic is not writable"), 403),
        (ClientError(10005, "no route to topic a"), 404),
        (BrokerError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "no group"), 404),
        (BrokerError(ResponseCode.SYSTEM_ERROR, "The broker does not support consumer to filter message"), 501),
        (ClientError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "broker a does not deliver by POP"), 501),
        (BrokerError(ResponseCode.SYSTEM_ERROR, "something else"), 502),
        (UnitError("cut off"), 502),
        (BrokerError(ResponseCode.SYSTEM_BUSY, "busy"), 503),
        (ConnectError("no connection"), 503),
        (RemotingTimeout("no response"), 504),
    ],
)  # fmt: skip
def test_the_status_says_whose_fault_it_is(error: OrbitMQError, status: int) -> None:
    assert status_of(error) == status
    found = problem_of(error)
    assert (found.status, found.detail) == (status, str(error))
    assert found.retryable is (status in (429, 503, 504))


def test_each_problem_is_documented() -> None:
    page = GUIDE.read_text(encoding="utf-8")
    assert not [one.slug for status, one in KINDS.items() if f"| {status} | `{one.slug}` |" not in page]


def test_each_status_of_an_operation_is_that_of_a_problem() -> None:
    assert not [one.name for one in TABLE if set(one.problems) - set(KINDS)]
    paths = document()["paths"]
    for one in TABLE:
        assert set(paths[one.path][one.method.lower()]["responses"]) == {"200", *map(str, one.problems)}


def test_each_operation_is_in_the_guide() -> None:
    page = GUIDE.read_text(encoding="utf-8")
    assert not [one.path for one in TABLE if f"`{one.method} {one.path}`" not in page]


QUEUES = st.builds(
    MessageQueue, st.just("T"), st.from_regex(r"[A-Za-z0-9_.-]{1,20}", fullmatch=True), st.integers(0, 10_000)
)


@given(st.dictionaries(QUEUES, st.integers(0, 10**18 - 1), min_size=1, max_size=20))
def test_the_id_of_an_event_is_read_back(positions: dict[MessageQueue, int]) -> None:
    assert positions_of("T", positions_text(positions)) == positions


@given(st.text(max_size=40))
def test_any_other_text_is_the_callers_fault(text: str) -> None:
    try:
        found = positions_of("T", text)
    except MessageIllegal:
        return
    assert found


@given(st.text("0123456789abcdefghABCDEFGH-_", min_size=1, max_size=100))
def test_a_handle_that_was_made_up_is_not_found(text: str) -> None:
    with pytest.raises(Refused) as caught:
        delivered("T", text)
    assert caught.value.status_code == 404


def test_a_handle_names_its_delivery() -> None:
    receipt = Receipt(7, 1000, 30_000, 3, "1", "broker-a", 2, 9)
    message = MessageExt("T", b"body", properties={POP_CK: receipt.encode()}, commit_log_offset=4711)
    found = delivered("T", handle_of(message))
    assert (found.properties[POP_CK], found.commit_log_offset) == (receipt.encode(), 4711)
    assert (found.broker_name, found.topic) == ("broker-a", "T")


@pytest.mark.parametrize(
    ("shape", "given"),
    [
        pytest.param(bodies.NewMessage, {"properties": {"name": "x" * 40_000 + "\x01"}}, id="property"),
        pytest.param(bodies.NewMessage, {"properties": {"name": " " * 40_000}}, id="blank property"),
        pytest.param(bodies.Receive, {"filter": "x" * 4095 + "\x01"}, id="filter"),
        pytest.param(bodies.Receive, {"filter": "|" * 4096}, id="empty filter"),
        pytest.param(bodies.Tail, {"tags": "x" * 4095 + "\x01"}, id="tags"),
    ],
)
def test_a_long_text_that_is_not_valid_is_refused_at_once(shape: type[bodies.Shape], given: dict[str, Any]) -> None:
    """Meanwhile the gateway serves nobody else. By the square of its length, the first one took 15 s."""
    begun = time.thread_time()
    with pytest.raises(msgspec.ValidationError, match="regex"):
        msgspec.convert(given, shape)
    assert time.thread_time() - begun < 0.05


@given(st.text("ab=+\n", min_size=4, max_size=12))
def test_base64_is_what_the_document_says(text: str) -> None:
    schema = document()["components"]["schemas"]["NewMessage"]["properties"]["bodyBase64"]
    try:
        is_valid = bool(new_message("T", msgspec.convert({"bodyBase64": text}, bodies.NewMessage)).body)
    except (msgspec.ValidationError, Refused):
        is_valid = False
    assert is_valid is bool(re.fullmatch(schema["pattern"].removesuffix("$"), text))


def test_nobody_gets_more_than_a_share_of_the_places() -> None:
    places = Places("streams", 8)
    for _ in range(8 // EACH_SHARE):
        places.take("a")
    with pytest.raises(Refused, match="the share of one caller is 2 streams"):
        places.take("a")
    for number in range(6):
        places.take(f"b{number}")
    with pytest.raises(Refused, match="limit of the gateway"):
        places.take("c")
    places.leave("a")
    places.take("c")
    assert (len(places), places.refused) == (8, 2)


def test_bodies_of_all_together_are_limited() -> None:
    places = Places("bytes of bodies", 40)
    places.take("a", 6)
    with pytest.raises(Refused, match="10 bytes of bodies"):
        places.take("a", 5)
    for name in "bcd":
        places.take(name, 10)
    with pytest.raises(Refused, match="limit of the gateway is 40"):
        places.take("e", 5)
    places.leave("a", 6)
    places.take("e", 10)


async def test_a_place_of_a_stream_is_free_when_a_message_is_settled_or_its_time_is_over() -> None:
    loop, open_ones = asyncio.get_running_loop(), Prefetched(2)
    open_ones.add("a", loop.time() + 10)
    open_ones.add("b", loop.time() + 20)
    assert open_ones.room(loop.time()) == 0
    open_ones.renew("a", "c", loop.time() + 30)
    begun = loop.time()
    await open_ones.wait(loop.time(), 60)
    assert loop.time() == pytest.approx(begun + 20, abs=1), "the time of b, as a is renewed"
    assert open_ones.room(loop.time()) == 1
    open_ones.settle("a")
    assert open_ones.room(loop.time()) == 1, "no place of a is held any more"
    open_ones.settle("c")
    assert open_ones.room(loop.time()) == 2


async def test_a_stream_ends_in_time_and_at_the_end_of_the_gateway() -> None:
    ended, closed = asyncio.Event(), []

    async def events() -> object:
        try:
            while True:
                yield b"event"
                await asyncio.sleep(10)
        finally:
            closed.append(True)

    loop = asyncio.get_running_loop()
    begun = loop.time()
    assert [text async for text in lasting(events(), 25, ended)] == [b"event"] * 3  # type: ignore[arg-type]
    assert loop.time() == pytest.approx(begun + 25, abs=1)
    loop.call_later(5, ended.set)
    assert [text async for text in lasting(events(), 3600, ended)] == [b"event"]  # type: ignore[arg-type]
    assert closed == [True, True]


@pytest.mark.parametrize("seconds", [25.0, 3600.0])
async def test_a_stream_with_a_backlog_ends_as_any_other(seconds: float) -> None:
    """Its next event is always ready: a reader that is behind must not keep its place, nor stop the gateway."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    begun = loop.time()

    async def events() -> AsyncGenerator[bytes, None]:
        for number in range(1000):
            yield b"%d" % number

    found = []
    async for text in lasting(events(), seconds, ended):
        found.append(text)
        await asyncio.sleep(1)
        if loop.time() >= begun + 50:
            ended.set()
    assert len(found) == pytest.approx(min(seconds, 50), abs=1)


async def test_a_stream_ends_when_an_outage_turns_out_to_be_final() -> None:
    """An outage is one event, but the stream must not stay silent when no attempt can succeed any more."""
    errors = iter([RemotingTimeout("late"), RemotingTimeout("late"), BrokerError(ResponseCode.TOPIC_NOT_EXIST, "gone")])

    async def pull(*_: object) -> None:
        raise next(errors)

    puller: Any = SimpleNamespace(pull=pull)
    stream = Tail(puller, tag_subscription("T", "*"), {MessageQueue("T", "broker-a", 0): 7}, {})
    beginning, outage, end = [text async for text in stream.events()]
    assert b"id: broker-a:0:7\n" in beginning
    assert (b'"status":504' in outage, b'"status":404' in end) == (True, True)


async def test_a_stream_goes_on_in_a_queue_that_was_away() -> None:
    """One restart of a broker and two reconnects must not bring the history of its queues again."""
    a, b = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-b", 0)
    present, asked = [a, b], list[tuple[MessageQueue, int]]()

    async def queues(_: str) -> list[MessageQueue]:
        return present

    async def first(_: MessageQueue) -> int:
        return 7

    async def pull(queue: MessageQueue, offset: int, count: int, *_: object, may_wait: bool = True) -> Any:
        asked.append((queue, offset))
        if offset == 1000 and may_wait:
            return SimpleNamespace(messages=[MessageExt("T", b"x", queue_offset=1000)], next_begin_offset=1001)
        return await asyncio.sleep(60, SimpleNamespace(messages=[], next_begin_offset=offset))

    link: Any = SimpleNamespace(fetch_queues=queues, min_offset=first, puller=lambda _: SimpleNamespace(pull=pull))
    last = positions_text({a: 1000, b: 1000})
    present.remove(b)
    call = Call(link, bodies.TopicPath(topic="T"), bodies.Tail(), bodies.Nothing(), last, "caller", {})
    stream = (await tail(call)).events
    beginning, message = await anext(stream), await anext(stream)
    await stream.aclose()
    assert b"id: broker-a:0:1000,broker-b:0:1000\n" in beginning
    assert b"id: broker-a:0:1001,broker-b:0:1000\n" in message
    assert {queue for queue, _ in asked} == {a}
    present.append(b)
    asked.clear()
    stream = (await tail(replace(call, last_event_id="broker-a:0:1001,broker-b:0:1000"))).events
    await anext(stream)
    await anext(stream)
    await stream.aclose()
    assert set(asked) == {(a, 1001), (b, 1000), (b, 1001)}


@pytest.mark.parametrize("queues", [1, 8, 60])
async def test_a_stream_reads_ahead_as_much_of_many_queues_as_of_one(queues: int) -> None:
    """A caller that reads nothing must not fill the memory: a topic may have thousands of queues."""
    pulled = 0

    async def pull(queue: MessageQueue, offset: int, count: int, *_: object) -> Any:
        nonlocal pulled
        pulled += count
        messages = [MessageExt("T", b"x", queue_offset=offset + number) for number in range(count)]
        return SimpleNamespace(messages=messages, next_begin_offset=offset + count)

    puller: Any = SimpleNamespace(pull=pull)
    positions = {MessageQueue("T", "broker-a", number): 0 for number in range(queues)}
    stream = Tail(puller, tag_subscription("T", "*"), positions, {}).events()
    await anext(stream)
    await asyncio.sleep(60)
    assert READ_AHEAD / 2 < pulled <= READ_AHEAD
    await stream.aclose()


@pytest.mark.parametrize("work", [receive, deliver, tail])
async def test_an_account_that_waits_for_messages_is_accepted_before(work: Any) -> None:
    """Otherwise a few streams of one host would look like guesses, and lock out its other accounts."""
    is_accepted: list[bool] = []
    link: Any = SimpleNamespace(is_proven=False)

    async def received(_sources: object, _most: int, _invisible_ms: int, timeout: float) -> tuple[list[Any], None]:
        if timeout:
            is_accepted.append(link.is_proven)
        return [], None

    async def nothing(*_: object, **__: object) -> Any:
        return 0

    async def queues(_: str) -> list[MessageQueue]:
        return [MessageQueue("T", "broker-a", 0)]

    link.deliveries = lambda *_: SimpleNamespace(sources=nothing, receive=received)
    link.fetch_queues, link.max_offset, link.puller = queues, nothing, lambda _: SimpleNamespace(pull=nothing)
    path = bodies.GroupPath(topic="T", group="g")
    query = bodies.Tail() if work is tail else bodies.Deliver()
    await work(Call(link, path, query, bodies.Receive(), "", "caller", {}))
    assert link.is_proven
    assert is_accepted == [True] * (work is receive)


@pytest.mark.parametrize("work", [receive, deliver])
async def test_no_broker_is_always_the_last_to_deliver(work: Any) -> None:
    """The first one that has messages delivers them, so those of the last one would wait for ever."""
    first: set[str] = set()

    async def sources(subscription: SubscriptionData) -> list[Source]:
        return [Source(subscription, name) for name in ("a", "b", "c")]

    async def received(sources: Callable[[], Awaitable[Sequence[Source]]], *_: object) -> tuple[list[MessageExt], None]:
        first.add((await sources())[0].broker_name)
        return [], None

    link: Any = SimpleNamespace(deliveries=lambda *_: SimpleNamespace(sources=sources, receive=received))
    path = bodies.GroupPath(topic="T", group="g")
    for _ in range(100):
        await work(Call(link, path, bodies.Deliver(), bodies.Receive(), "", "caller", {}))
    assert first == {"a", "b", "c"}
