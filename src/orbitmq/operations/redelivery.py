"""One stored message handed to the listener of one consumer, outside its queues. Knows no route."""

from __future__ import annotations

from orbitmq.net.remoting import Remoting
from orbitmq.operations.asking import ask
from orbitmq.wire.bodies import ConsumeDirectlyResult
from orbitmq.wire.headers_groups import ConsumeMessageDirectlyHeader
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode

HOLD_MS = 10_000
"""How long a broker waits for the consumer."""


async def consume_directly(
    remoting: Remoting, address: str, group: str, client_id: str, offset_msg_id: str, *, timeout_ms: float = 15_000
) -> ConsumeDirectlyResult:
    """CONSUME_MESSAGE_DIRECTLY: what the listener of `client_id` made of the message at this place of the broker's log.

    The broker waits 10 s for the consumer. No offset moves. BrokerError when the client is offline or does not answer.
    """
    header = ConsumeMessageDirectlyHeader(consumer_group=group, client_id=client_id, msg_id=offset_msg_id)
    answer = await ask(remoting, address, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, timeout_ms=timeout_ms)
    return decode(ConsumeDirectlyResult, answer.body)
