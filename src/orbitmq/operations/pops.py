"""Have a broker deliver messages, acknowledge them, and say when they are redelivered."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from orbitmq.errors import BodyError, MessageIllegal
from orbitmq.message.message_loops import decode_messages
from orbitmq.message.model import MessageExt
from orbitmq.message.pop import FIRST_POP_TIME, NORMAL, POP_CK, Receipt
from orbitmq.message.properties import decode_properties
from orbitmq.message.unit import Unit, decode_units
from orbitmq.net.connection import Waiter
from orbitmq.net.remoting import Remoting, RequestInFlight
from orbitmq.operations.call import LANGUAGE, SUCCESS, call, checked, start_call
from orbitmq.wire.bodies_pop import InFlightList
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, request
from orbitmq.wire.headers_pop import (
    AckMessageHeader,
    ChangeInvisibleTimeHeader,
    ChangeInvisibleTimeResponseHeader,
    InFlightHeader,
    NotificationHeader,
    NotificationResponseHeader,
    PopMessageHeader,
    PopMessageResponseHeader,
)
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode

WAITED = frozenset({ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT})
POPPED = WAITED | {ResponseCode.POLLING_FULL}


_COUNT: Final = re.compile(r"[0-9] qo([0-9]{1,10})%([0-9]{1,19}) ([0-9]{1,9})")  # an entry of orderCountInfo


class Popped(NamedTuple):
    """A message as it is stored, and what names this delivery of it."""

    unit: Unit
    receipt: Receipt


async def pop(
    remoting: Remoting, address: str, header: PopMessageHeader, broker_name: str, *, timeout_ms: float = 30_000
) -> list[MessageExt]:
    """POP_MESSAGE: the messages, each with its receipt as property POP_CK. BrokerError, RemotingError; BodyError and
    UnitError if the response cannot be read.
    """
    response = await call(remoting, address, RequestCode.POP_MESSAGE, header, timeout_ms=timeout_ms, accept=POPPED)
    if response.code != ResponseCode.SUCCESS:
        return []
    receipts = _Receipts(response.header(PopMessageResponseHeader), broker_name)
    messages = decode_messages(response.body, broker_name)
    for message in messages:
        receipt = receipts.of(message.queue_id, message.queue_offset, message.properties.get(POP_CK))
        message.properties[POP_CK] = receipt.encode()
        message.properties.setdefault(FIRST_POP_TIME, str(receipts.pop_ms))
    return messages


def pop_request(header: PopMessageHeader) -> Command:
    """The request of `pop_units`."""
    return request(RequestCode.POP_MESSAGE, header, language=LANGUAGE)


async def pop_units(
    remoting: Remoting, address: str, header: PopMessageHeader, command: Command, *, timeout_ms: float
) -> list[Popped]:
    """`pop` for who passes the messages on: as they are stored, each with its receipt. BrokerError also when too many
    wait already: to ask again at once would be of no use.
    """
    response = checked(await remoting.call(address, command, timeout_ms), address, WAITED)
    if response.code != ResponseCode.SUCCESS:
        return []
    found = response.header(PopMessageResponseHeader)
    receipts, units = _Receipts(found, header.broker_name or ""), decode_units(response.body)
    if header.order and (counts := _counts(found.order_count_info or "")):
        units = [_counted(unit, counts) for unit in units]
    return [Popped(unit, receipts.of(unit.queue_id, unit.queue_offset, _given(unit))) for unit in units]


def _counts(text: str) -> Mapping[tuple[int, int], int]:
    """(Queue id, offset) -> how often a message of an orderly group was delivered before. The message itself does not
    say: it is read from its own queue again.
    """
    found = {}
    for one in text.split(";"):
        place = _COUNT.fullmatch(one)
        if place is not None:
            found[int(place[1]), int(place[2])] = int(place[3])
    return found


def _counted(unit: Unit, counts: Mapping[tuple[int, int], int]) -> Unit:
    count = counts.get((unit.queue_id, unit.queue_offset))
    return unit if count is None else msgspec.structs.replace(unit, reconsume_times=count)


def _given(unit: Unit) -> str | None:
    return decode_properties(unit.properties).get(POP_CK) if POP_CK in unit.properties else None


class _Receipts:
    """Of one response."""

    def __init__(self, header: PopMessageResponseHeader, broker_name: str) -> None:
        self.pop_ms = header.pop_time
        self._header = header
        self._broker_name = broker_name
        self._starts = _starts(header.start_offset_info or "")

    def of(self, queue_id: int, offset: int, given: str | None) -> Receipt:
        """A broker adds the receipt to messages that are redelivered. A producer may have forwarded one of another
        delivery.
        """
        if given is not None:
            try:
                receipt = Receipt.decode(given)
            except MessageIllegal:
                receipt = None
            if receipt is not None and receipt.kind != NORMAL and (receipt.pop_ms, receipt.offset) == (
                self.pop_ms, offset,
            ):  # fmt: skip
                return receipt
        start = self._starts.get(queue_id)
        if start is None:
            raise BodyError(f"a response to POP_MESSAGE does not say where queue {queue_id} begins")
        header = self._header
        return Receipt(
            start, header.pop_time, header.invisible_time, header.revive_qid, NORMAL, self._broker_name, queue_id,
            offset,
        )  # fmt: skip


def _starts(text: str) -> Mapping[int, int]:
    """Queue id -> offset, of the queues of the topic itself."""
    try:
        parts = [one.split(" ") for one in text.split(";")]
        return {int(queue_id): int(start) for kind, queue_id, start in parts if kind == NORMAL}
    except ValueError:
        raise BodyError(f"a response to POP_MESSAGE has a wrong startOffsetInfo: {text[:100]!r}") from None


async def acknowledge(remoting: Remoting, address: str, header: AckMessageHeader, *, timeout_ms: float = 3000) -> None:
    """ACK_MESSAGE. BrokerError, RemotingError."""
    await call(remoting, address, RequestCode.ACK_MESSAGE, header, timeout_ms=timeout_ms)


def start_acknowledge(
    remoting: Remoting, address: str, header: AckMessageHeader, timeout_ms: float, waiter: Waiter
) -> RequestInFlight | None:
    """`acknowledge` if that needs no wait, None otherwise. `waiter` gets the response, for `call.checked`."""
    return start_call(remoting, address, RequestCode.ACK_MESSAGE, header, timeout_ms=timeout_ms, waiter=waiter)


async def change_invisible_time(
    remoting: Remoting, address: str, header: ChangeInvisibleTimeHeader, *, timeout_ms: float = 3000
) -> ChangeInvisibleTimeResponseHeader:
    """CHANGE_MESSAGE_INVISIBLETIME: what the new receipt is made of. BrokerError, RemotingError."""
    code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
    response = await call(remoting, address, code, header, timeout_ms=timeout_ms)
    return response.header(ChangeInvisibleTimeResponseHeader)


async def wait_for_messages(
    remoting: Remoting, address: str, header: NotificationHeader, *, timeout_ms: float = 30_000
) -> bool:
    """NOTIFICATION: whether there are messages to deliver; waits for some. BrokerError, RemotingError."""
    response = await call(remoting, address, RequestCode.NOTIFICATION, header, timeout_ms=timeout_ms, accept=SUCCESS)
    return response.header(NotificationResponseHeader).has_msg


async def in_flight(
    remoting: Remoting,
    address: str,
    group: str,
    topic: str | None = None,
    *,
    limit: int = 100,
    timeout_ms: float = 5000,
) -> InFlightList:
    """GET_IN_FLIGHT: what was delivered to a group and is not acknowledged. Only orbitmq has it."""
    header = InFlightHeader(group, topic, limit)
    response = await call(remoting, address, RequestCode.GET_IN_FLIGHT, header, timeout_ms=timeout_ms)
    return decode(InFlightList, response.body)
