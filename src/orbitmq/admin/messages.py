"""Find messages by offset id, unique id or key, on every broker.

Messages are returned as stored, with compressed bodies; `bodies.shown` decompresses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orbitmq.admin.ids import StoredPlace, identify
from orbitmq.admin.results import Result
from orbitmq.admin.scan import BUDGET, MessageFilter, browse
from orbitmq.admin.session import Node, Session, present
from orbitmq.errors import AdminError, BrokerError, NotFound, UnitError
from orbitmq.message.model import MessageExt
from orbitmq.message.properties import UNIQ_KEY
from orbitmq.message.unit import decode_unit, decode_units, message_of
from orbitmq.operations import pulls, queries
from orbitmq.wire.codes import ResponseCode

RESPONSE_MAX = 64
"""Limit of messages that a broker returns for one key, whatever the request says."""
EVER_MS = (1 << 63) - 1
INDEX_STEP_MS = 1000
"""The index of a broker stores times in seconds: the requested time range is widened by this much."""
CROWDS_MAX = 10
"""Limit of seconds with more messages of the key than a response has: those are read from the queues, slowly."""
PAGES_MAX = 100
"""Limit of responses of one broker for one key: 6,400 messages. Such a key identifies none; browse instead."""


async def by_offset_id(session: Session, offset_id: str) -> Result[MessageExt]:
    """The message stored where the offset id says. The request goes to the brokers that hold that log, to a slave when
    the master is gone; no item if it does not exist. Only brokers of the cluster are queried, whatever address the id
    holds. NotFound for text that is no offset id."""
    place = identify(offset_id, 0).place
    if place is None:
        raise NotFound(f"{offset_id} is no offset id", "a unique id or a key is found with: orbitmq msg find")
    gathered = await session.each_node(await _holders(session, place), lambda node: _at(session, node, place))
    for message in gathered.responses.values():
        if message is not None and message.offset_msg_id == offset_id.strip().upper():
            return Result([message])
    return Result(failures=gathered.failures)


async def _holders(session: Session, place: StoredPlace) -> list[Node]:
    """Every broker of the name to which this address belongs; all brokers of the cluster if it is unknown."""
    nodes = await session.nodes()
    names = {node.name for node in nodes if node.address == place.address}
    return [node for node in nodes if node.name in names] or nodes


async def _at(session: Session, node: Node, place: StoredPlace) -> MessageExt | None:
    try:
        unit = await session.request(pulls.view_message, node, place.commit_log_offset)
        return message_of(decode_unit(unit), node.name, decompress=False)
    except UnitError:  # RocketMQ takes any bytes there for a message
        return None
    except BrokerError as error:
        if error.code == ResponseCode.SYSTEM_ERROR:
            return None
        raise


async def by_unique_id(session: Session, topic: str, unique: str) -> Result[MessageExt]:
    """All messages of the topic with this id, oldest first: one that was sent again keeps its id."""
    found = await search(session, [topic], unique)
    found.items = [message for message in found.items if message.properties.get(UNIQ_KEY) == unique]
    return found


async def by_key(
    session: Session, topic: str, key: str, *, begin_ms: int = 0, end_ms: int = EVER_MS, limit: int = RESPONSE_MAX
) -> Result[MessageExt]:
    """The newest `limit` messages of the topic with exactly this key, stored from `begin_ms` to `end_ms` (both
    included), oldest first. Brokers limit a response, so more messages are read in steps back through time."""
    nodes = await session.homes(topic)
    warnings: list[str] = []
    gathered = await session.each_node(
        nodes, lambda node: _pages(session, node, topic, key, begin_ms, end_ms, limit, warnings)
    )
    items = oldest_first(message for messages in gathered.responses.values() for message in messages)
    found = Result(items, warnings, gathered.failures)
    if len(found.items) > limit:
        found.warnings.append(f"there are more; these are the newest {limit}: use a higher limit, or an earlier end")
        found.items = found.items[-limit:] if limit > 0 else []
    return found


async def _pages(
    session: Session, node: Node, topic: str, key: str, begin_ms: int, end_ms: int, limit: int, warnings: list[str]
) -> list[MessageExt]:
    """Those of one broker, one more than `limit` when there are more."""
    known: dict[int, MessageExt] = {}
    wanted: list[MessageExt] = []
    until_ms, crowds = end_ms, 0
    for _ in range(PAGES_MAX):
        page = await _query(session, node, topic, key, max(begin_ms - INDEX_STEP_MS, 0), until_ms)
        is_full, oldest_ms = len(page) >= RESPONSE_MAX, min((one.store_timestamp for one in page), default=0)
        if is_full and all(one.commit_log_offset in known for one in page):
            # The index stores whole seconds, so it would return the same messages again: read the queues instead.
            page = await _crowded(session, node, topic, key, oldest_ms, warnings)
            crowds, until_ms = crowds + 1, oldest_ms - INDEX_STEP_MS
        elif is_full:
            until_ms = oldest_ms
        known |= {one.commit_log_offset: one for one in page}
        wanted = [one for one in known.values() if has_name(one, key) and begin_ms <= one.store_timestamp <= end_ms]
        if not is_full or len(wanted) > limit or until_ms < begin_ms:
            return wanted
        if crowds >= CROWDS_MAX:
            break
    warnings.append(f"{node}: only the newest {len(wanted)} were searched")
    return wanted


async def _crowded(
    session: Session, node: Node, topic: str, key: str, end_ms: int, warnings: list[str]
) -> list[MessageExt]:
    """All messages with the key of the second before, read from the queues."""
    wanted = MessageFilter(begin_ms=end_ms - INDEX_STEP_MS, end_ms=end_ms, key=key)
    found = await browse(session, topic, wanted, limit=BUDGET, broker=node.name)
    warnings += found.warnings
    if found.failures:
        raise AdminError(f"queues cannot be read: {found.failures[0].message}", found.failures[0].hint)
    return found.items


async def _query(session: Session, node: Node, topic: str, key: str, begin_ms: int, end_ms: int) -> list[MessageExt]:
    # A request without the unique-id flag is accepted by every version, signed or not, and finds both.
    reply = await session.request(queries.query_messages, node, topic, key, RESPONSE_MAX, begin_ms, end_ms, unique=None)
    return [message_of(unit, node.name, decompress=False) for unit in decode_units(reply.body)]


async def search(session: Session, topics: Sequence[str], name: str) -> Result[MessageExt]:
    """Messages of these topics, the system's own included, that have `name` for a key or unique id, oldest first: of
    each broker and topic the newest 64.
    """
    nodes = await session.readable()
    targets = {(node, topic): f"{node}: {topic}" for topic in topics for node in nodes}

    async def query(target: tuple[Node, str]) -> list[MessageExt]:
        node, topic = target
        return [one for one in await _query(session, present(node), topic, name, 0, EVER_MS) if one.topic == topic]

    gathered = await session.each(targets, query)
    matching = (one for messages in gathered.responses.values() for one in messages if has_name(one, name))
    return Result(oldest_first(matching), failures=gathered.failures)


def has_name(message: MessageExt, name: str) -> bool:
    """Whether it really is a key or the unique id of the message: an index knows hashes only."""
    return message.properties.get(UNIQ_KEY) == name or name in message.keys.split()


def oldest_first(messages: Iterable[MessageExt]) -> list[MessageExt]:
    return sorted(messages, key=lambda one: (one.store_timestamp, one.broker_name, one.commit_log_offset))
