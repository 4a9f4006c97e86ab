"""Query messages by key or unique id, and the entries of a consume queue, at one broker."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.net.remoting import Remoting
from orbitmq.operations.call import call
from orbitmq.wire.bodies import ConsumeQueueEntries
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers import QueryMessageHeader, QueryMessageResponseHeader
from orbitmq.wire.headers_admin import QueryConsumeQueueHeader
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode

FOUND_OR_NOT = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)


@dataclass(frozen=True, slots=True)
class QueryReply:
    """`body` holds message units, oldest first; empty when there is none. The other two are store time and physical
    offset of the last message in the broker's index.
    """

    body: bytes
    index_last_update_timestamp: int = 0
    index_last_update_offset: int = 0


async def query_messages(
    remoting: Remoting,
    address: str,
    topic: str,
    key: str,
    max_count: int,
    begin_ms: int,
    end_ms: int,
    *,
    unique: bool | None = False,
    timeout_ms: float = 15_000,
) -> QueryReply:
    """QUERY_MESSAGE: the newest messages stored from `begin_ms` to `end_ms`, both included, whose key has the hash of
    `key`; the caller must compare the text. With `unique` the key is a unique id, and the broker sets the count. None
    leaves the field out: RocketMQ 4.9.7 rejects the signature of a request that has it.
    """
    header = QueryMessageHeader(topic, key, max_count, begin_ms, end_ms, unique)
    code = RequestCode.QUERY_MESSAGE
    response = await call(remoting, address, code, header, timeout_ms=timeout_ms, accept=FOUND_OR_NOT)
    if response.code == ResponseCode.QUERY_NOT_FOUND:
        return QueryReply(b"")
    found = response.header(QueryMessageResponseHeader)
    return QueryReply(response.body, found.index_last_update_timestamp, found.index_last_update_phyoffset)


async def queue_entries(
    remoting: Remoting,
    address: str,
    topic: str,
    queue_id: int,
    index: int,
    count: int,
    *,
    group: str | None = None,
    timeout_ms: float = 6000,
) -> ConsumeQueueEntries:
    """QUERY_CONSUME_QUEUE: physical offset, size and tag code of the messages from queue offset `index` on. In the
    schedule topic the code is the time when a message is due. Fewer than `count` at the end of a file of the queue.

    With `group` the response has its subscription of the topic. Works for system topics, too, which cannot be pulled.
    BrokerError when there is no such queue.
    """
    header = QueryConsumeQueueHeader(topic, queue_id, index, count, group)
    response = await call(remoting, address, RequestCode.QUERY_CONSUME_QUEUE, header, timeout_ms=timeout_ms)
    return decode(ConsumeQueueEntries, response.body)
