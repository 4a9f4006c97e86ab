"""The types of the client's interface: results, statuses, contexts. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from orbitmq.message.model import MessageExt, MessageQueue

ACK_ALL = 2**31 - 1


class SendStatus(Enum):
    """The outcome of a send. The middle three mean that the master has stored the message but flush or replication is
    not confirmed; sending such a message again creates a duplicate.
    """

    SEND_OK = "stored as safely as the broker is configured to"
    FLUSH_DISK_TIMEOUT = "stored; not confirmed on disk in time"
    FLUSH_SLAVE_TIMEOUT = "stored; not confirmed by a slave in time"
    SLAVE_NOT_AVAILABLE = "stored; no slave was available"
    STORED_LOCALLY = "not sent; kept in the producer's outbox, which sends it later"

    def __repr__(self) -> str:
        return f"SendStatus.{self.name}"


@dataclass(frozen=True, slots=True)
class SendResult:
    """The response of a broker to a send."""

    status: SendStatus
    """Every status except STORED_LOCALLY means that a broker has the message."""
    msg_id: str
    """The unique id that the client assigned; of a batch all ids, joined by commas."""
    offset_msg_id: str
    """The id that consists of the broker's address and the physical offset in its commit log."""
    queue: MessageQueue
    """Where the message is."""
    queue_offset: int
    """Queue offset; of a batch that of its first message."""
    region_id: str = "DefaultRegion"
    """The region of the broker."""
    trace_on: bool = True
    """Whether the broker requests traces of this message."""
    transaction_id: str | None = None
    """The broker's id of the transaction, for a half message."""
    recall_handle: str | None = None
    """Of a message with a time to deliver: what `recall` needs; None for others, and from brokers without it."""


class LocalTransactionState(Enum):
    """The outcome of the local transaction that decides about a half message."""

    COMMIT_MESSAGE = "deliver the message"
    ROLLBACK_MESSAGE = "drop it"
    UNKNOWN = "not decided yet; the broker checks later"


@dataclass(frozen=True, slots=True)
class TransactionSendResult(SendResult):
    """The result of sending a half message, and the outcome of its local transaction."""

    local_state: LocalTransactionState = LocalTransactionState.UNKNOWN
    """The decision that was sent, or was to be sent, to the broker."""


class ConsumeConcurrentlyStatus(Enum):
    """What a listener returns for its messages."""

    CONSUME_SUCCESS = "consumed"
    RECONSUME_LATER = "failed; deliver again after a while"


@dataclass(frozen=True, slots=True)
class Rejection:
    """A message that its listener makes a dead letter of."""

    message: MessageExt
    """One of those that the listener was called with."""
    reason: str
    """Why, for people."""


@dataclass(slots=True)
class ListenerContext:
    """What the contexts of all listeners have."""

    rejections: tuple[Rejection, ...] = field(default=(), init=False)
    """The messages that were rejected so far."""

    def reject(self, message: MessageExt, reason: str) -> None:
        """Make a dead letter of a message that no retry would help, whatever the listener returns for it. It goes to
        the group's dead letter topic when the listener has returned, with `reason` as its property DEAD_LETTER_REASON
        (its first 1000 characters). If no broker accepts it, it is delivered again. A broadcasting consumer drops it.
        Nothing is raised.
        """
        self.rejections = (*self.rejections, Rejection(message, reason))


@dataclass(slots=True)
class ConcurrentContext(ListenerContext):
    """Passed to a listener with its messages; the listener may set its fields."""

    message_queue: MessageQueue
    """Where the messages came from."""
    delay_level_when_next_consume: int = 0
    """When failed messages are delivered again: 0 lets the broker choose by the number of failures, -1 means never
    (they go to the dead letter topic at once), above 0 is the delay level.
    """
    ack_index: int = ACK_ALL
    """With CONSUME_SUCCESS: the index of the last message that succeeded; those after it are delivered again."""


class ConsumeOrderlyStatus(Enum):
    """What an orderly listener returns for its messages."""

    SUCCESS = "consumed"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "failed; deliver them again after a while, and nothing else of the queue before"
    COMMIT = "commit these and all earlier uncommitted messages; only without auto_commit"
    ROLLBACK = "deliver all uncommitted messages again; only without auto_commit"


@dataclass(slots=True)
class OrderlyContext(ListenerContext):
    """Passed to an orderly listener with its messages; the listener may set its fields."""

    message_queue: MessageQueue
    """Where the messages came from."""
    auto_commit: bool = True
    """Whether SUCCESS commits. Without it the listener returns COMMIT or ROLLBACK when it has decided."""
    suspend_current_queue_ms: int = -1
    """How long the queue pauses after a failure, 10 to 30,000; -1 uses the consumer's setting."""


class PullStatus(Enum):
    """The outcome of a pull."""

    FOUND = "messages"
    NO_NEW_MSG = "nothing new in the queue"
    NO_MATCHED_MSG = "new messages, none of which matches the subscription"
    OFFSET_ILLEGAL = "the requested offset is outside the queue"


@dataclass(frozen=True, slots=True)
class PullResult:
    """The result of a pull. Offsets are those of the queue; `max_offset` is the next one to be written."""

    status: PullStatus
    """Why there are messages, or none."""
    next_begin_offset: int
    """The offset for the next pull."""
    min_offset: int
    """The first one that can be read."""
    max_offset: int
    messages: list[MessageExt] = field(default_factory=list)
    """In the order of the queue."""
