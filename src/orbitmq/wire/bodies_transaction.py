"""The body that shows pending transactions; orbitmq's own."""

from __future__ import annotations

from msgspec import Struct, field


class PendingTransaction(Struct, frozen=True, kw_only=True):
    """One message that waits for its producer's decision. Times are milliseconds since the epoch."""

    topic: str
    queue_id: int
    keys: str | None = None
    unique_id: str
    offset_message_id: str = field(name="offsetMsgId")
    producer_group: str
    queue_offset: int  # of the half queue
    born_timestamp: int
    age_ms: int = field(name="ageMillis")
    checks: int
    next_check: int = field(name="nextCheckTimestamp")


class PendingTransactions(Struct, frozen=True):
    """One page: the next one begins at `next_offset`, which is -1 behind the last."""

    transactions: list[PendingTransaction]
    next_offset: int
