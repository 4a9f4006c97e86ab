"""What a broker tells of itself in figures."""

from __future__ import annotations

from orbitmq.errors import BrokerError
from orbitmq.net.remoting import Remoting
from orbitmq.operations.asking import ask
from orbitmq.wire.bodies import KVTable
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.objects import decode


async def runtime_info(remoting: Remoting, address: str, *, timeout_ms: float = 6000) -> dict[str, str]:
    """GET_BROKER_RUNTIME_INFO: figures by name, all as text. BrokerError when the broker refuses."""
    answer = await ask(remoting, address, RequestCode.GET_BROKER_RUNTIME_INFO, timeout_ms=timeout_ms)
    return decode(KVTable, answer.body).table


async def answer_of(remoting: Remoting, address: str, timeout_ms: float) -> str:
    """That a broker answers, in words. One that refuses does so, too. RemotingError when there is no answer."""
    try:
        await runtime_info(remoting, address, timeout_ms=timeout_ms)
    except BrokerError as error:
        return f"answers: {error.remark}"
    return "answers"
