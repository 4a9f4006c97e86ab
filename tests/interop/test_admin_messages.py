"""An administrator finds messages of either system by id, key, place and time, and reads them in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import pytest

from orbitmq.admin import messages, scan
from orbitmq.admin.scan import MessageFilter
from orbitmq.admin.session import Session
from orbitmq.client import Message
from orbitmq.client.core.model import SendResult
from orbitmq.client.sync import Producer
from orbitmq.errors import NotFound
from orbitmq.message.model import MessageExt
from orbitmq.net.remoting import Remoting
from tests.interop.conftest import System
from tests.support.process import wait_until

TOPIC = "AdminMessages"
MANY = 150  # more than a broker gives for one key
PATIENCE_S = 60

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    system: System
    sent: list[SendResult]

    def ask(self, question: Callable[[Session], Awaitable[T]]) -> T:
        async def asked() -> T:
            remoting = Remoting()
            try:
                return await question(Session(remoting, [self.system.namesrv_address]))
            finally:
                await remoting.close()

        return asyncio.run(asked())


def made(number: int) -> Message:
    keys = ["many", f"only-{number}"] if number < MANY else ["few"]
    return Message(TOPIC, b"%d" % number, tags=f"Tag{number % 3}", keys=keys, properties={"parity": str(number % 2)})


@pytest.fixture(scope="module")
def world(system: System) -> World:
    with Producer("admin-messages", system.namesrv_address) as producer:
        found = World(system, [producer.send(made(number)) for number in range(MANY + 10)])
    last = found.sent[-1]
    wait_until(
        lambda: found.ask(lambda session: messages.by_unique_id(session, TOPIC, last.msg_id)).items,
        PATIENCE_S,
        "the last message in the index",
    )
    return found


def numbers(found: list[MessageExt]) -> list[int]:
    return [int(message.body) for message in found]


def test_by_offset_id(world: World) -> None:
    sent = world.sent[7]
    assert sent.offset_msg_id
    (found,) = world.ask(lambda session: messages.by_offset_id(session, sent.offset_msg_id or "")).items
    assert (found.body, found.offset_msg_id, found.msg_id) == (b"7", sent.offset_msg_id, sent.msg_id)
    assert (found.broker_name, found.queue_offset) == ("broker-a", sent.queue_offset)
    beside = f"{int(sent.offset_msg_id, 16) ^ 1:0{len(sent.offset_msg_id)}X}"
    for wrong in (f"{sent.offset_msg_id[:-8]}7FFFFFFF", beside):
        none = world.ask(lambda session, wrong=wrong: messages.by_offset_id(session, wrong))  # type: ignore[misc]
        assert (none.items, none.failures) == ([], []), "nothing there, or not the beginning of a message"
    with pytest.raises(NotFound, match="is no offset id"):
        world.ask(lambda session: messages.by_offset_id(session, "order-7"))


def test_an_id_of_a_broker_that_is_gone_is_looked_for_everywhere_and_not_connected_to(world: World) -> None:
    """Its slave may hold the log; whether it is that message is seen by the id it has."""
    elsewhere = "0A0A0A0A" + (world.sent[7].offset_msg_id or "")[8:]
    none = world.ask(lambda session: messages.by_offset_id(session, elsewhere))
    assert (none.items, none.failures) == ([], [])


def test_by_unique_id(world: World) -> None:
    found = world.ask(lambda session: messages.by_unique_id(session, TOPIC, world.sent[3].msg_id))
    assert (numbers(found.items), found.partial) == ([3], False)
    assert world.ask(lambda session: messages.by_unique_id(session, TOPIC, "0" * 32)).items == []


def test_by_key_with_as_many_as_there_are(world: World) -> None:
    whole = world.ask(lambda session: messages.by_key(session, TOPIC, "many", limit=1000))
    assert (numbers(whole.items), whole.warnings) == (list(range(MANY)), [])
    newest = world.ask(lambda session: messages.by_key(session, TOPIC, "many", limit=10))
    assert numbers(newest.items) == list(range(MANY - 10, MANY))
    assert newest.warnings
    assert numbers(world.ask(lambda session: messages.by_key(session, TOPIC, "only-5")).items) == [5]
    assert world.ask(lambda session: messages.by_key(session, TOPIC, "only")).items == []
    with pytest.raises(NotFound, match="there is no topic Nowhere"):
        world.ask(lambda session: messages.by_key(session, "Nowhere", "many"))


def test_by_key_within_a_time(world: World) -> None:
    whole = world.ask(lambda session: messages.by_key(session, TOPIC, "many", limit=1000)).items
    begin_ms, end_ms = whole[40].store_timestamp, whole[110].store_timestamp
    part = world.ask(
        lambda session: messages.by_key(session, TOPIC, "many", begin_ms=begin_ms, end_ms=end_ms, limit=1000)
    )
    assert numbers(part.items) == [int(one.body) for one in whole if begin_ms <= one.store_timestamp <= end_ms]


def test_at_an_offset_of_a_queue(world: World) -> None:
    sent = world.sent[12]
    found = world.ask(lambda session: scan.at_queue_offset(session, sent.queue, sent.queue_offset))
    assert found.offset_msg_id == sent.offset_msg_id
    with pytest.raises(NotFound, match="is not written yet"):
        world.ask(lambda session: scan.at_queue_offset(session, sent.queue, 1_000_000))


def test_browsing_goes_through_time_in_either_direction(world: World) -> None:
    last = world.ask(lambda session: scan.browse(session, TOPIC, limit=50))
    assert numbers(last.items) == list(range(MANY + 9, MANY - 41, -1))
    first = world.ask(lambda session: scan.browse(session, TOPIC, limit=50, newest_first=False))
    assert numbers(first.items) == list(range(50))
    whole = world.ask(lambda session: scan.browse(session, TOPIC, limit=1000))
    assert (numbers(whole.items), whole.warnings) == (list(range(MANY + 9, -1, -1)), [])


def test_browsing_within_a_time_is_exact_at_the_edges(world: World) -> None:
    whole = world.ask(lambda session: scan.browse(session, TOPIC, limit=1000, newest_first=False)).items
    begin_ms, end_ms = whole[50].store_timestamp, whole[100].store_timestamp
    wanted = MessageFilter(begin_ms=begin_ms, end_ms=end_ms)
    part = world.ask(lambda session: scan.browse(session, TOPIC, wanted, limit=1000, newest_first=False))
    assert numbers(part.items) == [int(one.body) for one in whole if begin_ms <= one.store_timestamp <= end_ms]


def test_browsing_for_some_messages_says_when_its_budget_is_used_up(world: World) -> None:
    wanted = MessageFilter(tag="Tag1", key="many", property=("parity", "1"), text="3")
    found = world.ask(lambda session: scan.browse(session, TOPIC, wanted, newest_first=False))
    assert numbers(found.items) == [n for n in range(MANY) if n % 3 == 1 and n % 2 == 1 and "3" in str(n)]
    found = world.ask(lambda session: scan.browse(session, TOPIC, MessageFilter(text="17"), budget=20))
    assert found.items == []
    assert found.warnings == ["read 20 messages, as many as allowed; older ones were not read: --budget"]


def test_messages_are_counted_by_tag(world: World) -> None:
    found = world.ask(lambda session: scan.count_by_tag(session, TOPIC))
    expected = [len([n for n in range(MANY + 10) if n % 3 == rest]) for rest in range(3)]
    assert {one.tag: one.messages for one in found.items} == dict(zip(("Tag0", "Tag1", "Tag2"), expected, strict=True))
    assert sum(one.body_bytes for one in found.items) == sum(len(str(n)) for n in range(MANY + 10))


def test_a_topic_is_followed(world: World) -> None:
    async def follow(session: Session) -> list[MessageExt]:
        parts = await scan.stretches(session, TOPIC)
        came = scan.follow(session, parts.items)
        first = asyncio.ensure_future(anext(came))
        await asyncio.to_thread(send_late)
        async with asyncio.timeout(PATIENCE_S):
            found = [await first]
            await came.aclose()
        return found

    def send_late() -> None:
        with Producer("admin-messages", world.system.namesrv_address) as producer:
            producer.send(Message(TOPIC, b"999", tags="Late"))

    assert numbers(world.ask(follow)) == [999]
