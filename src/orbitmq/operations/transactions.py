"""Transactions at a broker: end one, list the pending ones, resume the checks of one that was given up."""

from __future__ import annotations

from orbitmq.net.remoting import Remoting
from orbitmq.operations.call import LANGUAGE, call
from orbitmq.wire.bodies_transaction import PendingTransactions
from orbitmq.wire.command import Command, request
from orbitmq.wire.headers_transaction import (
    EndTransactionHeader,
    PendingTransactionsHeader,
    ResumeCheckHalfMessageHeader,
)
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode


async def end_transaction(
    remoting: Remoting, address: str, header: EndTransactionHeader, *, timeout_ms: float = 3000
) -> None:
    """END_TRANSACTION: commit or roll back, and wait for the response. BrokerError when the broker refuses the
    decision. Not for an unknown state, which gets no response.
    """
    await call(remoting, address, RequestCode.END_TRANSACTION, header, timeout_ms=timeout_ms)


async def end_transaction_oneway(
    remoting: Remoting, address: str, header: EndTransactionHeader, remark: str | None = None
) -> None:
    """END_TRANSACTION without a response, as Java's producers send it: if it is lost, the broker checks later. `remark`
    is for the broker's log. ConnectError when there is no connection.
    """
    await remoting.oneway(address, end_command(header, remark))


def end_command(header: EndTransactionHeader, remark: str | None = None) -> Command:
    """The request, for a producer that responds to a check over the same connection."""
    command = request(RequestCode.END_TRANSACTION, header, oneway=True, language=LANGUAGE)
    command.remark = remark
    return command


async def pending_transactions(
    remoting: Remoting,
    address: str,
    *,
    offset: int = 0,
    limit: int = 100,
    topic: str | None = None,
    producer_group: str | None = None,
    timeout_ms: float = 10_000,
) -> PendingTransactions:
    """GET_PENDING_TRANSACTIONS: one page; the next begins at its `next_offset`, -1 on the last. Only orbitmq has it."""
    header = PendingTransactionsHeader(offset, limit, topic, producer_group)
    response = await call(remoting, address, RequestCode.GET_PENDING_TRANSACTIONS, header, timeout_ms=timeout_ms)
    return decode(PendingTransactions, response.body)


async def resume_check(remoting: Remoting, address: str, message_id: str, *, timeout_ms: float = 5000) -> None:
    """RESUME_CHECK_HALF_MESSAGE: `message_id` is the offset id of a message in TRANS_CHECK_MAX_TIME_TOPIC."""
    header = ResumeCheckHalfMessageHeader(message_id)
    await call(remoting, address, RequestCode.RESUME_CHECK_HALF_MESSAGE, header, timeout_ms=timeout_ms)
