"""Queries for messages by key and by id at every broker of a topic. Knows neither producers nor consumers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from orbitmq.client.instance import Instance
from orbitmq.errors import BrokerError, ClientError, MessageIllegal, UnitError
from orbitmq.message.ids import decode_offset_message_id, decode_unique_id
from orbitmq.message.model import MASTER_ID, MessageExt
from orbitmq.message.properties import UNIQ_KEY
from orbitmq.message.unit import decode_unit, decode_units, message_of
from orbitmq.operations import pulls, queries
from orbitmq.wire.codes import ResponseCode

EVER_MS = (1 << 63) - 1
UNIQUE_ID_MAX = 32  # messages requested by unique id: a message that is sent again keeps its id
CLOCK_SLACK_MS = 1000  # between the clock that made a unique id and the broker's


async def view_message(instance: Instance, offset_msg_id: str) -> MessageExt:
    """The message with this offset message id, from the broker whose address is part of the id."""
    address, physical_offset = _place(offset_msg_id)
    return message_of(decode_unit(await pulls.view_message(instance.remoting, address, physical_offset)))


async def find_message(instance: Instance, topic: str, msg_id: str, now_ms: int) -> MessageExt:
    """The message of the topic with this offset id or unique id: they look alike, so it is an offset id when it names a
    broker of the topic that has the message.
    """
    with contextlib.suppress(MessageIllegal, BrokerError, UnitError):
        address, physical_offset = _place(msg_id)
        if any(address in instance.routes.addresses(name).values() for name in await _brokers(instance, topic)):
            found = message_of(decode_unit(await pulls.view_message(instance.remoting, address, physical_offset)))
            if found.offset_msg_id == msg_id:
                return found
    return await _by_unique_id(instance, topic, msg_id, now_ms)


async def _by_unique_id(instance: Instance, topic: str, unique_id: str, now_ms: int) -> MessageExt:
    """Of several that were sent again the one that was stored first."""
    try:
        begin_ms = decode_unique_id(unique_id, now_ms).created_ms - CLOCK_SLACK_MS
    except MessageIllegal:  # a producer of another make
        begin_ms = 0
    found = await _query_all(
        instance, topic, unique_id, UNIQUE_ID_MAX, begin_ms, EVER_MS,
        lambda message: message.properties.get(UNIQ_KEY) == unique_id, unique=True,
    )  # fmt: skip
    return found[0]


async def query_messages(
    instance: Instance, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int
) -> list[MessageExt]:
    """The newest messages with the key, oldest first."""
    found = await _query_all(
        instance, topic, key, max_count, begin_ms, end_ms, lambda message: key in message.keys.split(), unique=False
    )
    return found[-max_count:] if max_count > 0 else []


async def _query_all(
    instance: Instance,
    topic: str,
    key: str,
    max_count: int,
    begin_ms: int,
    end_ms: int,
    is_wanted: Callable[[MessageExt], bool],
    *,
    unique: bool,
) -> list[MessageExt]:
    """The messages found at the brokers of the topic, oldest first; raises an error only if none has any."""
    names = await _brokers(instance, topic)
    mark = None if instance.remoting.signs else unique  # brokers differ in whether a signature covers it
    replies = await asyncio.gather(
        *(
            queries.query_messages(
                instance.remoting, _address(instance, name), topic, key, max_count, begin_ms, end_ms, unique=mark
            )
            for name in names
        ),
        return_exceptions=True,
    )
    found: list[MessageExt] = []
    for name, reply in zip(names, replies, strict=True):
        if isinstance(reply, queries.QueryReply):
            messages = (message_of(unit, name) for unit in decode_units(reply.body))
            found += [message for message in messages if message.topic == topic and is_wanted(message)]
    if found:
        return sorted(found, key=lambda message: (message.store_timestamp, message.broker_name, message.queue_offset))
    for reply in replies:
        if isinstance(reply, BaseException):
            raise reply
    raise ClientError(ResponseCode.NO_MESSAGE, f"no message of topic {topic} has the key {key} in this time")


async def _brokers(instance: Instance, topic: str) -> list[str]:
    """Names of the brokers with the topic that have an address. ClientError when it does not exist."""
    names = {queue.broker_name for queue in await instance.routes.find_subscribed(topic)}
    return sorted(name for name in names if instance.routes.addresses(name))


def _address(instance: Instance, broker_name: str) -> str:
    """The master's, or that of any slave while there is none."""
    addresses = instance.routes.addresses(broker_name)
    return addresses.get(MASTER_ID) or next(iter(addresses.values()))


def _place(offset_msg_id: str) -> tuple[str, int]:
    """Address and physical offset. MessageIllegal for an invalid id."""
    place = decode_offset_message_id(offset_msg_id)
    host = f"[{place.host}]" if ":" in place.host else place.host
    return f"{host}:{place.port}", place.physical_offset
