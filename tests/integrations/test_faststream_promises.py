"""What FastStream promises of every broker, at a live broker and in memory. FastStream's own tests of it are in its
repository and in no distribution, so these are ours of the same promises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from faststream import BaseMiddleware, Context, Depends, ExceptionMiddleware, FastStream, Response, TestApp
from faststream._internal.broker.router import BrokerRouter
from faststream._internal.configs import BrokerConfig
from faststream.exceptions import SetupError, SubscriberNotFound
from faststream.specification.asyncapi import AsyncAPI
from pydantic import BaseModel

from orbitmq.client import MessageSelector
from orbitmq.integrations.faststream import (
    RocketMQBroker,
    RocketMQMessage,
    RocketMQPublish,
    RocketMQRoute,
    RocketMQRouter,
    TestRocketMQBroker,
)
from orbitmq.integrations.faststream.annotations import RocketMQBroker as RunningBroker
from orbitmq.testing import Cluster
from tests.integrations.faststream_support import Opened, live, memory, new_topic, quiet
from tests.support.loops import until


class Order(BaseModel):
    number: int


@dataclass
class Line:
    text: str


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


@pytest.fixture
def address(cluster: Cluster) -> str:
    return cluster.namesrv_address


@pytest.fixture(params=["live", "memory"])
def opened(request: pytest.FixtureRequest) -> Opened:
    return live if request.param == "live" else memory


@pytest.fixture
def topic() -> str:
    return new_topic()


NOW = datetime.now(UTC)


@pytest.mark.parametrize(
    ("sent", "kind", "expected"),
    [
        ("hello", str, "hello"),
        (b"hello", bytes, b"hello"),
        ("", str, ""),
        (b"", bytes, b""),
        (1, int, 1),
        (1, float, 1.0),
        (False, bool, False),
        ({"m": 1}, dict[str, int], {"m": 1}),
        ([1, 2, 3], list[int], [1, 2, 3]),
        (NOW, datetime, NOW),
        (Line("x"), Line, Line("x")),
        (Line("x"), dict, {"text": "x"}),
        (b'{"text":"x"}', Line, Line("x")),
        (Order(number=1), Order, Order(number=1)),
        (Order(number=1), dict, {"number": 1}),
        ({"number": "1"}, Order, Order(number=1)),
    ],
)
async def test_a_message_has_the_type_that_its_handler_names(
    address: str, opened: Opened, topic: str, sent: Any, kind: Any, expected: Any
) -> None:
    broker, got = quiet(address), []

    @broker.subscriber(topic)
    async def handle(message: kind) -> None:
        got.append(message)

    async with opened(broker):
        await broker.publish(sent, topic)
        await until(lambda: got)
    assert got == [expected]


async def test_one_function_handles_two_topics_and_two_functions_one_each(
    address: str, opened: Opened, topic: str
) -> None:
    broker, got = quiet(address), []

    @broker.subscriber(topic)
    @broker.subscriber(f"{topic}-2")
    def both(message: str) -> None:
        got.append(message)

    @broker.subscriber(f"{topic}-3")
    def third(message: str) -> None:
        got.append(f"third {message}")

    async with opened(broker):
        for place in ("", "-2", "-3"):
            await broker.publish(f"to{place}", f"{topic}{place}")
        await until(lambda: len(got) == 3)
    assert sorted(got) == ["third to-3", "to", "to-2"]


async def test_a_filter_chooses_the_handler(address: str, opened: Opened, topic: str) -> None:
    broker, got = quiet(address), []
    subscriber = broker.subscriber(topic)

    @subscriber(filter=lambda message: message.content_type == "application/json")
    async def of_json(message: Any) -> None:
        got.append(("json", message))

    @subscriber
    async def of_others(message: Any) -> None:
        got.append(("other", message))

    async with opened(broker):
        await broker.publish({"a": 1}, topic)
        await broker.publish("text", topic)
        await until(lambda: len(got) == 2)
    assert sorted(got, key=str) == [("json", {"a": 1}), ("other", "text")]


async def test_dependencies_and_context_are_injected(address: str, opened: Opened, topic: str) -> None:
    def audited() -> None:
        got.append("audited")

    def ten() -> str:
        return "10"

    broker, got = quiet(address, dependencies=[Depends(audited)]), []

    @broker.subscriber(topic)
    async def handle(number: int, message: RocketMQMessage, running: RunningBroker, count: int = Depends(ten)) -> None:
        got.append((number, count, message.tags, message.headers["h"], running is broker))

    async with opened(broker):
        await broker.publish(1, topic, tags="T", headers={"h": "v"})
        await until(lambda: len(got) == 2)
    assert got == ["audited", (1, 10, "T", "v", True)]


async def test_a_subscriber_may_begin_and_end_while_the_broker_runs(address: str, opened: Opened, topic: str) -> None:
    router = RocketMQRouter()
    broker, got = quiet(address, routers=[router]), []
    async with opened(broker):
        subscriber = router.subscriber(topic)

        @subscriber
        def handle(message: str) -> None:
            got.append(message)

        await subscriber.start()
        await broker.publish("hello", topic)
        await until(lambda: got)
        await subscriber.stop()
    assert got == ["hello"]


async def test_an_application_may_have_two_brokers(address: str, topic: str) -> None:
    first, second, got = quiet(address), quiet(address), []

    @first.subscriber(topic)
    @second.publisher(f"{topic}-2")
    async def handle(message: str) -> str:
        return message + "!"

    @second.subscriber(f"{topic}-2")
    async def end(message: str) -> None:
        got.append(message)

    async with TestRocketMQBroker(first, second), TestApp(FastStream(first, second)):
        await first.publish("hello", topic)
    assert got == ["hello!"]


async def test_what_a_handler_returns_is_published(address: str, opened: Opened, topic: str) -> None:
    broker, got = quiet(address), {}
    published = broker.publisher(f"{topic}-a", headers={"fixed": "1"}, tags="A")

    @broker.publisher(f"{topic}-b")
    @broker.subscriber(topic)
    @published
    async def handle() -> Response:
        return Response(1, headers={"own": "2"}, correlation_id="c-1")

    @broker.subscriber(f"{topic}-a")
    async def a(n: int, message: RocketMQMessage) -> None:
        got["a"] = n, message.headers["fixed"], message.headers["own"], message.tags, message.correlation_id

    @broker.subscriber(f"{topic}-b")
    async def b(message: RocketMQMessage) -> None:
        got["b"] = message.body, message.headers["own"]

    async with opened(broker):
        await broker.publish(None, topic)
        await until(lambda: len(got) == 2)
    assert got == {"a": (1, "1", "2", "A", "c-1"), "b": (b"1", "2")}


async def test_a_publisher_is_used_by_hand_and_by_several_handlers(address: str, opened: Opened, topic: str) -> None:
    broker, got = quiet(address), []
    published = broker.publisher(f"{topic}-end")

    @broker.subscriber(topic)
    async def by_hand(message: str) -> None:
        await published.publish(f"by hand {message}", keys="k")

    @published
    @broker.subscriber(f"{topic}-2")
    async def decorated(message: str) -> str:
        return f"returned {message}"

    @broker.subscriber(f"{topic}-end")
    async def end(text: str, message: RocketMQMessage) -> None:
        got.append((text, message.keys))

    async with opened(broker):
        await broker.publish("x", topic)
        await broker.publish("y", f"{topic}-2")
        await until(lambda: len(got) == 2)
        await broker.publisher(f"{topic}-end").publish("z")
        await until(lambda: len(got) == 3)
    assert sorted(got) == [("by hand x", ["k"]), ("returned y", []), ("z", [])]


async def test_replies_go_to_the_topic_that_asks_for_them(address: str, opened: Opened, topic: str) -> None:
    broker, got = quiet(address), []

    @broker.subscriber(topic)
    async def answers(message: str) -> str:
        return message * 2

    @broker.subscriber(f"{topic}-silent", no_reply=True)
    async def silent(message: str) -> str:
        return message * 3

    @broker.subscriber(f"{topic}-reply")
    async def reply(message: str) -> None:
        got.append(message)

    async with opened(broker):
        await broker.publish("x", f"{topic}-silent", reply_to=f"{topic}-reply")
        await broker.publish("x", topic, reply_to=f"{topic}-reply")
        await until(lambda: got)
    assert got == ["xx"]


async def test_requests_return_the_reply(address: str, opened: Opened, topic: str) -> None:
    class Twice(BaseMiddleware):  # type: ignore[type-arg]
        async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
            cmd.body *= 2
            return await call_next(cmd)

    router = RocketMQRouter()
    published = router.publisher(topic)

    @router.subscriber(topic)
    async def handle(message: str) -> str:
        return f"<{message}>"

    broker = quiet(address, routers=[router], middlewares=[Twice])
    async with opened(broker):
        replies = [
            await broker.request("x", topic, correlation_id="1"),
            await published.request("x", correlation_id="1"),
        ]
    assert [await reply.decode() for reply in replies] == ["<xx><xx>"] * 2
    assert [reply.correlation_id for reply in replies] == ["1"] * 2


async def test_a_request_ends_when_its_time_is_over(address: str, opened: Opened, topic: str) -> None:
    broker = quiet(address)

    @broker.subscriber(topic)
    async def handle() -> str:
        await asyncio.sleep(0.01)
        return "late"

    async with opened(broker):
        with pytest.raises(TimeoutError):
            await broker.request(None, topic, timeout=1e-9)


async def test_middlewares_wrap_each_other_in_their_order(address: str, opened: Opened, topic: str) -> None:
    steps = []

    def noting(name: str) -> type[BaseMiddleware]:  # type: ignore[type-arg]
        class Noting(BaseMiddleware):  # type: ignore[type-arg]
            async def on_receive(self) -> None:
                steps.append(f"receive {name}")

            async def consume_scope(self, call_next: Any, msg: Any) -> Any:
                steps.append(f"consume {name}")
                return await call_next(msg)

            async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
                steps.append(f"publish {name}")
                return await call_next(cmd)

            async def after_processed(self, *error: Any) -> bool | None:
                steps.append(f"end {name}")
                return await super().after_processed(*error)

        return Noting

    inner, outer = RocketMQRouter(middlewares=[noting("3")]), RocketMQRouter(middlewares=[noting("2")])
    broker = quiet(address, middlewares=[noting("1")])
    published = inner.publisher(topic)

    @inner.subscriber(topic)
    async def handle(message: str) -> None:
        steps.append(message)

    outer.include_router(inner)
    broker.include_router(outer)
    async with opened(broker):
        await published.publish("handled")
        await until(lambda: "end 1" in steps)
    order = [f"{kind} {number}" for kind in ("publish", "receive", "consume") for number in "123"]
    assert steps == [*order, "handled", "end 3", "end 2", "end 1"]


async def test_an_exception_middleware_replaces_the_result(address: str, opened: Opened, topic: str) -> None:
    errors, got = ExceptionMiddleware(), []

    @errors.add_handler(ValueError, publish=True)
    async def instead(_error: ValueError) -> str:
        return "instead"

    broker = quiet(address, middlewares=[errors])

    @broker.subscriber(topic)
    @broker.publisher(f"{topic}-end")
    async def handle() -> str:
        raise ValueError

    @broker.subscriber(f"{topic}-end")
    async def end(message: str) -> None:
        got.append(message)

    async with opened(broker):
        await broker.publish("x", topic)
        await until(lambda: got)
    assert got == ["instead"]


async def test_routers_are_nested_and_have_prefixes(address: str, opened: Opened, topic: str) -> None:
    got: list[str] = []

    async def declared(message: str) -> str:
        return message + "."

    inner = RocketMQRouter(
        "in-", handlers=[RocketMQRoute(declared, topic, publishers=[RocketMQPublish(f"{topic}-end")])]
    )

    @inner.subscriber(f"{topic}-end", title="End")
    async def end(message: str) -> None:
        got.append(message)

    outer = RocketMQRouter("out-", routers=[inner])
    broker = quiet(address)
    broker.include_router(outer, prefix="all-")
    async with opened(broker):
        await broker.publish("x", f"all-out-in-{topic}")
        await until(lambda: got)
    assert got == ["x."]
    assert {one.group for one in broker.subscribers} == {  # type: ignore[attr-defined]
        f"faststream-all-out-in-{topic}",
        f"faststream-all-out-in-{topic}-end",
    }


def test_routers_of_other_brokers_are_refused() -> None:
    with pytest.raises(TypeError, match="use a RocketMQRouter"):
        RocketMQBroker("h:1").include_router(BrokerRouter(config=BrokerConfig(), handlers=(), routers=()))


async def test_parsers_and_decoders_are_chosen_from_the_innermost(address: str, opened: Opened, topic: str) -> None:
    calls = []

    def noting(name: str) -> Any:
        async def call(message: Any, original: Any) -> Any:
            calls.append(name)
            return await original(message)

        return call

    router = RocketMQRouter(parser=noting("router parses"), decoder=noting("router decodes"))

    @router.subscriber(topic)
    async def of_router(message: str) -> None:
        calls.append(message)

    @router.subscriber(f"{topic}-2", parser=noting("own parses"), decoder=noting("own decodes"))
    async def of_own(message: str) -> None:
        calls.append(message)

    broker = quiet(address, routers=[router])
    async with opened(broker):
        await broker.publish("x", topic)
        await until(lambda: "x" in calls)
        await broker.publish("y", f"{topic}-2")
        await until(lambda: "y" in calls)
    assert calls == ["router parses", "router decodes", "x", "own parses", "own decodes", "y"]


async def test_batches_are_lists(address: str, opened: Opened, topic: str) -> None:
    broker, got = quiet(address), []
    published = broker.publisher(f"{topic}-end", batch=True)

    @published
    @broker.subscriber(topic, batch=True, max_records=10)
    async def handle(numbers: list[int], message: RocketMQMessage) -> list[int]:
        assert [headers["h"] for headers in message.batch_headers] == ["v"] * len(numbers)
        return [number * 2 for number in numbers]

    @broker.subscriber(f"{topic}-end")
    async def end(number: int) -> None:
        got.append(number)

    async with opened(broker):
        await broker.publish_batch(1, 2, 3, topic=topic, headers={"h": "v"}, tags="T")
        await until(lambda: len(got) == 3)
        await published.publish(7, 8)
        await until(lambda: len(got) == 5)
    assert got == [2, 4, 6, 7, 8]


async def test_only_messages_that_match_come(address: str, opened: Opened, topic: str) -> None:
    broker, got = quiet(address), []

    @broker.subscriber(topic, expression="A || B")
    async def handle(message: str) -> None:
        got.append(message)

    async with opened(broker):
        for tags in ("A", "C", "B", None):
            await broker.publish(str(tags), topic, tags=tags)
        await until(lambda: len(got) == 2)
    assert sorted(got) == ["A", "B"]


# ----------------------------------------------------------------------------------------------- the broker in memory


async def test_the_broker_in_memory_records_calls_and_raises_errors(address: str, topic: str) -> None:
    broker = quiet(address)
    published = broker.publisher(f"{topic}-end")

    @broker.subscriber(topic)
    @published
    async def handle(number: int) -> int:
        return 1 // number

    with pytest.raises(SetupError, match="not under a test broker"):
        handle.mock.assert_not_called()
    async with TestRocketMQBroker(broker):
        assert len(broker.subscribers) == 2
        await broker.publish(1, topic, headers={"h": "v"}, correlation_id="c")
        handle.mock.assert_called_once_with(1)
        published.mock.assert_called_once_with(1)
        await handle.assert_called_once_with(1, headers={"h": "v"}, correlation_id="c")
        with pytest.raises(ZeroDivisionError):
            await broker.publish(0, topic)
        with pytest.raises(SubscriberNotFound):
            await broker.request("x", "nobody")
        assert await broker.ping()
    assert len(broker.subscribers) == 1


async def test_the_test_client_may_use_a_real_broker(address: str, topic: str) -> None:
    broker = quiet(address)
    published = broker.publisher(f"{topic}-end")

    @broker.subscriber(topic)
    async def handle(message: str) -> None:
        await published.publish(f"got {message}")

    async with TestRocketMQBroker(broker, with_real=True):
        await broker.publish("x", topic)
        await until(lambda: published.mock.called)
        published.mock.assert_called_once_with("got x")


async def test_the_broker_in_memory_filters_by_sql_and_gives_a_group_one_copy(address: str, topic: str) -> None:
    broker, got = quiet(address), []

    @broker.subscriber(topic, group="a", expression=MessageSelector.sql("price > 10"))
    @broker.subscriber(topic, group="b")
    async def handle(message: str, group: str = Context("handler_.group")) -> None:
        got.append((group, message))

    broker.subscriber(topic, group="b")(handle)
    async with TestRocketMQBroker(broker):
        await broker.publish("cheap", topic, headers={"price": 5})
        await broker.publish("dear", topic, headers={"price": 50})
    assert sorted(got) == [("a", "dear"), ("b", "cheap"), ("b", "dear")]


# ------------------------------------------------------------------------------------------------------------ AsyncAPI


async def test_the_asyncapi_document_has_topics_and_types(topic: str) -> None:
    broker = RocketMQBroker("shop:9876", description="the shop", tags=[{"name": "prod"}])

    @broker.subscriber(topic, description="bills")
    @broker.publisher(f"{topic}-end", title="Bills", schema=Line)
    async def bill(order: Order) -> None: ...

    document = AsyncAPI(broker, schema_version="3.0.0").to_specification().to_jsonable()
    assert document["servers"]["development"]["protocol"] == "rocketmq"
    assert document["servers"]["development"]["host"] == "shop:9876"
    assert document["channels"][f"{topic}:Bill"]["address"] == topic
    assert document["channels"]["Bills"]["address"] == f"{topic}-end"
    assert {"Order", "Line"} <= set(document["components"]["schemas"])
    assert AsyncAPI(broker, schema_version="2.6.0").to_specification().to_yaml()
