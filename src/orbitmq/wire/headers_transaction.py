"""Header declarations of transactions: their end, check requests, and tools that list them."""

from __future__ import annotations

from orbitmq.wire.header import Header, Int32, Int64, renamed


class EndTransactionHeader(Header):
    """END_TRANSACTION (37). `tran_state_table_offset` is the half message's queue offset, `commit_log_offset` its place
    in the log; `commit_or_rollback` is a transaction type of the system flag, 0 for a producer that does not know.
    """

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    from_transaction_check: bool = False
    msg_id: str | None = None
    transaction_id: str | None = None
    broker_name: str | None = renamed("bname", None)


class CheckTransactionStateHeader(Header):
    """CHECK_TRANSACTION_STATE (39), broker to producer; the body is the message."""

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class ResumeCheckHalfMessageHeader(Header):
    """RESUME_CHECK_HALF_MESSAGE (323): an offset message id."""

    msg_id: str


class PendingTransactionsHeader(Header):
    """GET_PENDING_TRANSACTIONS (30001), orbitmq's own. `offset`: where to begin in the half queue, from the previous
    response; `topic` and `producer_group` exclude all others.
    """

    offset: Int64 = 0
    limit: Int32 = 100
    topic: str | None = None
    producer_group: str | None = None
