"""The numbers that a broker reports about itself."""

from __future__ import annotations

import asyncio

from orbitmq.errors import BodyError, BrokerError
from orbitmq.net.remoting import Remoting
from orbitmq.operations.call import call
from orbitmq.wire.bodies import BrokerStatsData, ConsumeStatsList, KVTable
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers_admin import GetBrokerConsumeStatsHeader, ViewBrokerStatsDataHeader
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode

DISPATCH_SECONDS = 5.0
"""How long to wait for the dispatch of stored messages. A backlog that takes longer is mostly other topics'."""
NEVER_COUNTED = "not exist"  # in the remark: the code is that of any other failure


async def runtime_info(remoting: Remoting, address: str, *, timeout_ms: float = 6000) -> dict[str, str]:
    """GET_BROKER_RUNTIME_INFO: numbers by name, all as text. BrokerError when the broker refuses."""
    response = await call(remoting, address, RequestCode.GET_BROKER_RUNTIME_INFO, timeout_ms=timeout_ms)
    return decode(KVTable, response.body).table


async def wait_until_dispatched(remoting: Remoting, address: str, *, timeout_ms: float = 6000) -> bool:
    """Wait until the queues and the index have all messages that the broker stored before this call.

    RocketMQ dispatches a message after its send response, so until then it cannot be read or found by a key. False if
    that takes more than `DISPATCH_SECONDS`. True at once if the account may not read the runtime information.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + DISPATCH_SECONDS
    stored = None
    while clock() < deadline:
        try:
            info = await runtime_info(remoting, address, timeout_ms=timeout_ms)
            end, behind = int(info["commitLogMaxOffset"]), int(info["dispatchBehindBytes"])
        except (BrokerError, BodyError, KeyError, ValueError):
            return True
        stored = end if stored is None else stored
        if behind <= 0 or end - behind >= stored:
            return True
        await asyncio.sleep(0.01)
    return False


async def statistic(
    remoting: Remoting, address: str, name: str, key: str, *, timeout_ms: float = 6000
) -> BrokerStatsData | None:
    """VIEW_BROKER_STATS_DATA: one number over the last minute, hour and day; None when nothing was counted under it."""
    header = ViewBrokerStatsDataHeader(name, key)
    accept = (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)
    code = RequestCode.VIEW_BROKER_STATS_DATA
    response = await call(remoting, address, code, header, timeout_ms=timeout_ms, accept=accept)
    if response.code == ResponseCode.SUCCESS:
        return decode(BrokerStatsData, response.body)
    if NEVER_COUNTED in (response.remark or ""):
        return None
    raise BrokerError(response.code, response.remark, address)


async def broker_consume_stats(
    remoting: Remoting, address: str, *, ordered: bool = False, timeout_ms: float = 50_000
) -> ConsumeStatsList:
    """GET_BROKER_CONSUME_STATS: every group's lag in every write queue. `ordered`: only globally ordered topics."""
    header = GetBrokerConsumeStatsHeader(is_order=ordered)
    response = await call(remoting, address, RequestCode.GET_BROKER_CONSUME_STATS, header, timeout_ms=timeout_ms)
    return await asyncio.to_thread(decode, ConsumeStatsList, response.body)


async def probe(remoting: Remoting, address: str, timeout_ms: float) -> str:
    """Whether a broker responds, in words; a refusal is a response. RemotingError if there is none."""
    try:
        await runtime_info(remoting, address, timeout_ms=timeout_ms)
    except BrokerError as error:
        return f"answers: {error.remark}"
    return "answers"
