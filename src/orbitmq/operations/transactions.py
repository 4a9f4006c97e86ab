"""Transactions at a broker: end one, see those that are pending, give one that was given up a new chance."""

from __future__ import annotations

from orbitmq.net.remoting import Remoting
from orbitmq.operations.asking import LANGUAGE, ask
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
    """END_TRANSACTION, answered: BrokerError when the broker does not take the decision. For commit and rollback only;
    nobody is told that a state is unknown.
    """
    await ask(remoting, address, RequestCode.END_TRANSACTION, header, timeout_ms=timeout_ms)


async def end_transaction_oneway(
    remoting: Remoting, address: str, header: EndTransactionHeader, remark: str | None = None
) -> None:
    """The same without an answer, as Java's producers do it: what is lost is asked about later. `remark` is for the
    broker's log. ConnectError when there is no connection.
    """
    await remoting.oneway(address, end_command(header, remark))


def end_command(header: EndTransactionHeader, remark: str | None = None) -> Command:
    """The request itself, for a producer that answers over the connection it was asked by."""
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
    """GET_PENDING_TRANSACTIONS: one page; go on at its `next_offset` until that is -1. Only orbitmq answers it."""
    header = PendingTransactionsHeader(offset, limit, topic, producer_group)
    answer = await ask(remoting, address, RequestCode.GET_PENDING_TRANSACTIONS, header, timeout_ms=timeout_ms)
    return decode(PendingTransactions, answer.body)


async def resume_check(remoting: Remoting, address: str, message_id: str, *, timeout_ms: float = 5000) -> None:
    """RESUME_CHECK_HALF_MESSAGE: `message_id` is the offset id of a message in TRANS_CHECK_MAX_TIME_TOPIC."""
    header = ResumeCheckHalfMessageHeader(message_id)
    await ask(remoting, address, RequestCode.RESUME_CHECK_HALF_MESSAGE, header, timeout_ms=timeout_ms)
