"""Messages an administrator sends: typed, read as JSON lines, or stored ones that are sent again.

No send here creates a topic: otherwise each mistyped name would become one.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs

from orbitmq.admin.bodies import real_topic, unique_id
from orbitmq.admin.messages import by_offset_id
from orbitmq.admin.plans import Change, Plan, Step
from orbitmq.admin.retry_places import RetryPlaces, retry_places
from orbitmq.admin.search import record
from orbitmq.admin.session import Node, Session
from orbitmq.client.core.identity import address_bytes, client_address
from orbitmq.client.core.outgoing import Outgoing
from orbitmq.client.core.outgoing_message import Packing, outgoing
from orbitmq.client.core.queue_selectors import hash_selector
from orbitmq.client.core.selection import RoundRobin
from orbitmq.client.machine import own_addresses
from orbitmq.errors import AdminError, BadArgument, MessageIllegal, NotFound
from orbitmq.message.flags import COMPRESSED, COMPRESSION_MASK, PERM_WRITE
from orbitmq.message.ids import UniqueIds
from orbitmq.message.model import Message, MessageExt, MessageQueue
from orbitmq.message.properties import (
    DEAD_LETTER_REASON,
    KEYS,
    NAME_END,
    ORIGIN_MESSAGE_ID,
    PAIR_END,
    RESERVED,
    RETRY_TOPIC,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    UNIQ_KEY,
    WAIT,
    encode_properties,
)
from orbitmq.message.topics import DLQ_PREFIX
from orbitmq.operations import membership, sends
from orbitmq.runtime.clock import Clock
from orbitmq.wire.bodies import ConsumeResult
from orbitmq.wire.codes import ResponseCode

PRODUCER_GROUP = "orbitmq-admin"
SENDABLE = (
    "topic", "body", "tags", "keys", "properties", "delayLevel", "deliverAfterSeconds", "expiresAfterSeconds",
    "orderingKey", "flag",
)  # fmt: skip
"""The fields of a JSON line that are used; other fields of a shown message are ignored."""
BROKERS_OWN = RESERVED | {
    TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS, TIMER_OUT_MS, TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS,
    TIMER_ROLL_TIMES,
}  # fmt: skip
"""Properties of a shown message that do not belong to the application."""
INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
_OF_THE_PAST = ("TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES", "__transactionId__", DEAD_LETTER_REASON)


class Sent(Struct, frozen=True, rename="camel", kw_only=True):
    """The broker's receipt."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    msg_id: str
    offset_msg_id: str
    result: str
    """SEND_OK, or what was not confirmed: FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE."""
    recall_handle: str | None = None
    """For `msg recall`, if it waits for a time of its own."""


class Outlet:
    """Sends through a session, each message to the next queue of its topic, or to the one of its ordering key."""

    def __init__(self, session: Session, clock: Clock) -> None:
        self._session = session
        self._clock = clock
        self._ids = UniqueIds(address_bytes(client_address(own_addresses())), os.getpid(), os.urandom(4))
        self._queues: dict[str, tuple[list[MessageQueue], dict[str, Node], RoundRobin]] = {}

    async def send(
        self, message: Message, *, ordering_key: str | None = None, queue: tuple[str, int] | None = None
    ) -> Sent:
        """Send it to `queue` (broker name and id) when that is given. NotFound for a topic or queue that is not there,
        BrokerError when it was not stored.
        """
        packed = outgoing(message, self._new_id, Packing())
        return await self.send_packed(packed, message, ordering_key=ordering_key, queue=queue)

    async def send_packed(
        self,
        packed: Outgoing,
        message: Message,
        *,
        ordering_key: str | None = None,
        queue: tuple[str, int] | None = None,
        home: str | None = None,
    ) -> Sent:
        """The same with an encoded body; `message` is passed to the queue selector. `home` is the broker of a retry
        topic, which it makes itself, with one queue, if it does not exist yet.
        """
        session = self._session
        if home is not None:
            chosen, address = MessageQueue(packed.topic, home, 0), (await session.node(home)).address
        else:
            queues, masters, turn = await self._known(packed.topic)
            if queue is None:
                chosen = hash_selector(queues, message, ordering_key) if ordering_key else turn.select(queues)
            elif (chosen := MessageQueue(packed.topic, *queue)) not in queues:
                raise NotFound(f"topic {packed.topic} has no queue {queue[1]} to be written at {queue[0]}")
            address = masters[chosen.broker_name].address
        header = packed.header(PRODUCER_GROUP, chosen, self._clock.now_ms())
        reply = await session.request(sends.send, address, header, packed.body, timeout_ms=session.timeout_ms)
        result = "SEND_OK" if reply.code == ResponseCode.SUCCESS else ResponseCode(reply.code).name
        return Sent(
            topic=packed.topic,
            broker_name=chosen.broker_name,
            queue_id=reply.queue_id,
            queue_offset=reply.queue_offset,
            msg_id=packed.msg_id,
            offset_msg_id=reply.offset_msg_id,
            result=result,
            recall_handle=reply.recall_handle,
        )

    def _new_id(self) -> str:
        return self._ids.create(self._clock.now_ms())

    def renamed(self, packed: Outgoing) -> Outgoing:
        """The same as a new message, with its own id."""
        made = self._new_id()
        text = packed.properties + f"{PAIR_END}{UNIQ_KEY}{NAME_END}{made}"
        return structs.replace(packed, properties=text, msg_id=made)

    async def _known(self, topic: str) -> tuple[list[MessageQueue], dict[str, Node], RoundRobin]:
        if topic not in self._queues:
            route = await self._session.route(topic)
            homes = await self._session.homes(topic)
            masters = {node.name: node for node in homes if node.is_master and not node.is_away}
            queues = [
                MessageQueue(topic, data.broker_name, number)
                for data in route.queue_datas
                for number in range(data.write_queues)
                if data.broker_name in masters and data.perm & PERM_WRITE
            ]
            if not queues:
                raise NotFound(f"topic {topic} has no queue that can be written", f"orbitmq topic route {topic}")
            self._queues[topic] = queues, masters, RoundRobin(int.from_bytes(os.urandom(4), "big"))
        return self._queues[topic]


def message_of_json(fields: Mapping[str, Any], topic: str | None = None) -> tuple[Message, str | None]:
    """The message of a JSON object, and its ordering key: `SENDABLE` members, as `orbitmq msg tail -o jsonl` writes
    them. The system's own properties are left out. MessageIllegal names what is wrong.
    """
    keys, properties = fields.get("keys"), fields.get("properties")
    if keys is not None and not isinstance(keys, (str, list)):
        raise MessageIllegal("keys must be a text or a list of texts")
    if properties is not None and not isinstance(properties, dict):
        raise MessageIllegal("properties must be an object")
    name = topic or fields.get("topic")
    if not isinstance(name, str):
        raise MessageIllegal("the line has no topic, and there is no default")
    own = {str(key): str(value) for key, value in (properties or {}).items() if key not in BROKERS_OWN}
    ordering_key, tags = fields.get("orderingKey"), fields.get("tags")
    deliver_after, expires_after = fields.get("deliverAfterSeconds"), fields.get("expiresAfterSeconds")
    try:
        made = Message(
            name,
            _body_of(fields.get("body")),
            tags=None if tags is None else str(tags),
            keys=keys if isinstance(keys, str) else list(map(str, keys or ())),
            flag=int(fields.get("flag") or 0),
            delay_level=int(fields.get("delayLevel") or 0),
            deliver_after=None if deliver_after is None else float(deliver_after),
            expires_after=None if expires_after is None else float(expires_after),
            properties=own,
        )
    except (TypeError, ValueError) as error:
        numbers = "flag, delayLevel, deliverAfterSeconds and expiresAfterSeconds"
        raise MessageIllegal(f"{numbers} must be numbers: {error}") from error
    if not INT_MIN <= made.flag <= INT_MAX:
        raise MessageIllegal(f"flag must fit into 32 bits: {made.flag}")
    return made, None if ordering_key is None else str(ordering_key)


def _body_of(body: Any) -> bytes:
    """A text, or what `bodies.Body` shows."""
    if isinstance(body, str):
        return body.encode()
    if not isinstance(body, dict) or not isinstance(body.get("content"), str):
        raise MessageIllegal("the body must be a text, or an object with form and content")
    if body.get("truncated"):
        raise MessageIllegal("the body is the beginning only: have it written in full")
    content: str = body["content"]
    try:
        if body.get("form") == "base64":
            return base64.b64decode(content, validate=True)
        if body.get("form") == "hex":
            return bytes.fromhex(content)
        return content.encode(body.get("charset") or "utf-8")
    except (ValueError, LookupError, TypeError, binascii.Error) as error:
        raise MessageIllegal(f"the body is no {body.get('form')}: {error}") from error


# ------------------------------------------------------------------------------------------------------- coming again


def again(message: MessageExt, destination: str, *, as_retry: bool) -> Outgoing:
    """A stored message addressed to `destination`, with its stored body. As a retry it keeps its id and original topic;
    otherwise it is a new message, and the caller sets its id."""
    properties = {
        name: value
        for name, value in message.properties.items()
        if (name not in RESERVED or name in (KEYS, TAGS)) and name not in _OF_THE_PAST
    }
    properties[WAIT] = "true"
    unique = unique_id(message)
    if as_retry:
        properties[RETRY_TOPIC] = real_topic(message)
        properties[ORIGIN_MESSAGE_ID] = message.properties.get(ORIGIN_MESSAGE_ID, message.offset_msg_id)
        if unique is not None:
            properties[UNIQ_KEY] = unique
    return Outgoing(
        destination,
        message.body,
        encode_properties(properties),
        unique or message.offset_msg_id,
        message.flag,
        message.sys_flag & (COMPRESSED | COMPRESSION_MASK),
        original_size=len(message.body),
    )


async def plan_resend(
    session: Session,
    names: list[str],
    clock: Clock,
    *,
    topic: str | None = None,
    to: str | None = None,
    group: str | None = None,
    client: str | None = None,
) -> Plan:
    """Send stored messages again. `client` of `group`: straight to its listener. `group` alone: as a retry that only
    this group gets. `to`: a copy as a new message of that topic. None of them: a dead letter returns to its group as a
    retry, any other message to its own topic as a new one."""
    if client is not None and group is None:
        raise BadArgument("a client is a member of a group", "give --group")
    if to is not None and group is not None:
        raise BadArgument("a message can be sent to a topic or to a group, not to both", "use --to or --group")
    plan = Plan(f"send {len(names)} messages again" if len(names) != 1 else f"send {names[0]} again")
    outlet, places = Outlet(session, clock), dict[str, RetryPlaces]()
    for name in names:
        message = await record(session, name, clock.now_ms(), topic=topic)
        if client is not None and group is not None:
            plan.changes.append(await _direct(session, message, group, client))
            continue
        dead_of = message.topic.removeprefix(DLQ_PREFIX) if message.topic.startswith(DLQ_PREFIX) else None
        receiver = group or (dead_of if to is None else None)
        if receiver is not None and receiver not in places:
            places[receiver] = await retry_places(session, receiver)
        retries = None if receiver is None else places[receiver]
        destination = to or (real_topic(message) if retries is None else retries.place(message, clock.now_ms()))
        if retries is None or not retries.is_popped:
            await session.route(destination)
        plan.changes.append(_copied(session, outlet, message, destination, retries, clock))
    return plan


async def _direct(session: Session, message: MessageExt, group: str, client: str) -> Change:
    node, offset_id = await session.node(message.broker_name), message.offset_msg_id

    async def make() -> None:
        result = await session.request(
            membership.consume_directly,
            node,
            group,
            client,
            offset_id,
            timeout_ms=session.timeout_ms + membership.RELAY_TIMEOUT_MS,
        )
        if result.consume_result not in (ConsumeResult.CR_SUCCESS, ConsumeResult.CR_COMMIT):
            said = result.consume_result.name if result.consume_result else "nothing"
            raise AdminError(f"the listener of {client} said {said}: {result.remark or 'no remark'}")

    return Change(Step(client, "consume directly", message.msg_id, None, ConsumeResult.CR_SUCCESS.name), make)


def _copied(
    session: Session, outlet: Outlet, message: MessageExt, destination: str, retries: RetryPlaces | None, clock: Clock
) -> Change:
    """Holds no bodies: a plan waits for confirmation, with many large messages. Each is read when it is sent."""
    offset_id, unique = message.offset_msg_id, unique_id(message)

    async def make() -> None:
        stored = await _stored(session, offset_id, unique)
        if retries is not None:
            retries.place(stored, clock.now_ms())
        packed = again(stored, destination, as_retry=retries is not None)
        home = stored.broker_name if retries is not None and retries.is_popped else None
        await outlet.send_packed(packed if retries is not None else outlet.renamed(packed), stored, home=home)

    how = "deliver as a retry" if retries is not None else "send a copy"
    return Change(Step(message.broker_name, how, message.msg_id, message.topic, destination), make)


async def _stored(session: Session, offset_id: str, unique: str | None) -> MessageExt:
    """The message at that place. NotFound when it has been deleted, AdminError when no node can say so."""
    found = await by_offset_id(session, offset_id)
    if found.items and unique_id(found.items[0]) == unique:
        return found.items[0]
    if found.failures:
        raise AdminError(f"{found.failures[0].target}: {found.failures[0].message}", found.failures[0].hint)
    raise NotFound(f"message {offset_id} is not stored any more")
