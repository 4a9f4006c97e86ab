"""Messages by what they are called, by key or unique id, and the entries of a queue. Knows no route; one broker answers
for what it holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.net.remoting import Remoting
from orbitmq.operations.asking import ask
from orbitmq.wire.bodies import ConsumeQueueEntries
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers import QueryMessageHeader, QueryMessageResponseHeader
from orbitmq.wire.headers_admin import QueryConsumeQueueHeader
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode

FOUND_OR_NOT = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)


@dataclass(frozen=True, slots=True)
class QueryReply:
    """`body` holds message units, oldest first; empty when there is none. Where the broker's index ended is told with
    them: store time and physical offset of its last message.
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
    `key`; the caller must compare the text. With `unique` it is a unique id, and the broker sets the number; None
    leaves unsaid which it is: RocketMQ 4.9.7 refuses the signature of an account over a request that says it.
    """
    header = QueryMessageHeader(topic, key, max_count, begin_ms, end_ms, unique)
    code = RequestCode.QUERY_MESSAGE
    answer = await ask(remoting, address, code, header, timeout_ms=timeout_ms, accept=FOUND_OR_NOT)
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return QueryReply(b"")
    found = answer.header(QueryMessageResponseHeader)
    return QueryReply(answer.body, found.index_last_update_timestamp, found.index_last_update_phyoffset)


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
    """QUERY_CONSUME_QUEUE: where the messages from queue offset `index` on lie in the log, and their tag codes. Of the
    schedule topic the code is the time a message is due. Fewer than `count` at the end of a file of the queue.

    With `group` the answer has its subscription of the topic. Asks for queues of the system's own topics as well, which
    nobody may pull from. BrokerError when there is no such queue.
    """
    header = QueryConsumeQueueHeader(topic, queue_id, index, count, group)
    answer = await ask(remoting, address, RequestCode.QUERY_CONSUME_QUEUE, header, timeout_ms=timeout_ms)
    return decode(ConsumeQueueEntries, answer.body)
