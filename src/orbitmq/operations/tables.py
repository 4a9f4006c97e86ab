"""Whole tables of a broker, for slaves to copy."""

from __future__ import annotations

import asyncio

from orbitmq.net.remoting import Remoting
from orbitmq.operations.call import SUCCESS, call
from orbitmq.wire.bodies import ConsumerOffsetTable, DelayOffsetTable, SubscriptionGroupTable
from orbitmq.wire.bodies_pop import RequestModeTable
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode

IF_KNOWN = (*SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)  # what RocketMQ 4.9, or any RocketMQ, does not have


async def all_groups(remoting: Remoting, address: str, *, timeout_ms: float = 6000) -> SubscriptionGroupTable:
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG: every consumer group of the broker, and the version of the table."""
    response = await call(remoting, address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, timeout_ms=timeout_ms)
    return await asyncio.to_thread(decode, SubscriptionGroupTable, response.body)


async def all_consumer_offsets(
    remoting: Remoting, address: str, *, timeout_ms: float = 6000
) -> dict[str, dict[int, int]]:
    """GET_ALL_CONSUMER_OFFSET: `topic@group` -> queue id -> offset; a light group has queue 0 only."""
    response = await call(remoting, address, RequestCode.GET_ALL_CONSUMER_OFFSET, timeout_ms=timeout_ms)
    return await asyncio.to_thread(_offsets_of, response.body)


def _offsets_of(body: bytes | memoryview) -> dict[str, dict[int, int]]:
    found = decode(ConsumerOffsetTable, body)
    light = {key: {0: offset} for key, offset in (found.lmq_offset_table or {}).items()}
    return {key: dict(offsets) for key, offsets in found.offset_table.items()} | light


async def all_delay_offsets(remoting: Remoting, address: str, *, timeout_ms: float = 6000) -> DelayOffsetTable:
    """GET_ALL_DELAY_OFFSET: how far delayed messages have been delivered."""
    response = await call(remoting, address, RequestCode.GET_ALL_DELAY_OFFSET, timeout_ms=timeout_ms)
    return decode(DelayOffsetTable, response.body)


async def all_request_modes(remoting: Remoting, address: str, *, timeout_ms: float = 6000) -> RequestModeTable | None:
    """GET_ALL_MESSAGE_REQUEST_MODE: how groups read topics; None from a broker without POP."""
    code = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE
    response = await call(remoting, address, code, timeout_ms=timeout_ms, accept=IF_KNOWN)
    return decode(RequestModeTable, response.body) if response.code == ResponseCode.SUCCESS else None


async def all_orders(remoting: Remoting, address: str, *, timeout_ms: float = 6000) -> str | None:
    """GET_ALL_CONSUMER_ORDER: what orderly groups have in flight, as in consumerOrderInfo.json. Only orbitmq has it."""
    code = RequestCode.GET_ALL_CONSUMER_ORDER
    response = await call(remoting, address, code, timeout_ms=timeout_ms, accept=IF_KNOWN)
    return bytes(response.body).decode() if response.code == ResponseCode.SUCCESS else None
