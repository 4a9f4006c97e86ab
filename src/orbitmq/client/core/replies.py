"""Request and reply messages and their properties. Pure; ids and times are passed in.

A request message has a correlation id, the id of the waiting client, and its timeout. Its reply repeats them and is
sent to the reply topic of the same cluster; the broker there pushes it to that client.
"""

from __future__ import annotations

from orbitmq.client.core.arguments import checks_arguments
from orbitmq.errors import ClientError
from orbitmq.message.compression import decompress
from orbitmq.message.model import Message, MessageExt
from orbitmq.message.properties import (
    ARRIVE_TIME,
    CLUSTER,
    CORRELATION_ID,
    MSG_TYPE,
    REPLY,
    REPLY_TO_CLIENT,
    TTL,
    UNIQ_KEY,
    decode_properties,
)
from orbitmq.message.topics import reply_topic
from orbitmq.wire.headers_reply import PushReplyMessageHeader

NO_REPLY_POSSIBLE = 10007  # the code of RocketMQ's client for a message that cannot be replied to


def request_message(message: Message, correlation_id: str, client_id: str, wait_ms: int) -> Message:
    """The message as a request of a client that waits `wait_ms` for the reply."""
    request = Message(message.topic, message.body, flag=message.flag)
    reply_to = {CORRELATION_ID: correlation_id, REPLY_TO_CLIENT: client_id, TTL: str(wait_ms)}
    request.properties = {**message.properties, **reply_to}
    return request


@checks_arguments
def create_reply_message(request: Message, body: bytes) -> Message:
    """The reply to a consumed request, for any producer to send. ClientError unless the message requests a reply."""
    properties = request.properties
    cluster = properties.get(CLUSTER)
    if cluster is None or REPLY_TO_CLIENT not in properties:
        raise ClientError(NO_REPLY_POSSIBLE, "the message requests no reply, or was not delivered by a broker")
    kept: dict[str, str] = {
        name: properties[name] for name in (CORRELATION_ID, REPLY_TO_CLIENT, TTL) if name in properties
    }
    reply = Message(reply_topic(cluster), body)
    reply.properties |= {MSG_TYPE: REPLY, **kept}
    return reply


@checks_arguments
def reply_to_client(request: Message) -> str | None:
    """The id of the client that waits for a reply to this message."""
    return request.properties.get(REPLY_TO_CLIENT)


def reply_message(header: PushReplyMessageHeader, body: bytes, now_ms: int) -> MessageExt:
    """A reply as the requesting producer gets it. UnitError when its body cannot be decompressed."""
    properties = decode_properties(header.properties or "")
    properties[ARRIVE_TIME] = str(now_ms)
    return MessageExt(
        header.topic,
        decompress(body, header.sys_flag),
        header.flag,
        properties,
        queue_id=header.queue_id,
        sys_flag=header.sys_flag,
        born_timestamp=header.born_timestamp,
        born_host=header.born_host,
        store_timestamp=header.store_timestamp,
        store_host=header.store_host,
        msg_id=properties.get(UNIQ_KEY, ""),
        reconsume_times=header.reconsume_times or 0,
    )
