"""The nouns of the client's interface: results, statuses, contexts. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from orbitmq.message.model import MessageExt, MessageQueue

ACK_ALL = 2**31 - 1


class SendStatus(Enum):
    """What became of a message. The middle three mean: stored on the master, something more not confirmed; sending such
    a message again makes a second one.
    """

    SEND_OK = "stored as safely as the broker is configured to"
    FLUSH_DISK_TIMEOUT = "stored; not confirmed on disk in time"
    FLUSH_SLAVE_TIMEOUT = "stored; not confirmed by a slave in time"
    SLAVE_NOT_AVAILABLE = "stored; no slave was there"
    STORED_LOCALLY = "not sent; kept in the producer's outbox, which sends it later"


@dataclass(frozen=True, slots=True)
class SendResult:
    """The broker's receipt."""

    status: SendStatus
    """Every one but STORED_LOCALLY means that a broker has the message."""
    msg_id: str
    """The unique id the client gave; of a batch all ids, joined by commas."""
    offset_msg_id: str
    """The id made of the broker's address and the position in its commit log."""
    queue: MessageQueue
    """Where the message is."""
    queue_offset: int
    """Position in the queue; of a batch that of its first message."""
    region_id: str = "DefaultRegion"
    """What the broker calls its region."""
    trace_on: bool = True
    """Whether the broker wants traces of this message."""
    transaction_id: str | None = None
    """What the broker calls the transaction of a half message."""


class LocalTransactionState(Enum):
    """How the work between the two halves of a transaction ended."""

    COMMIT_MESSAGE = "deliver the message"
    ROLLBACK_MESSAGE = "drop it"
    UNKNOWN = "not known yet; the broker asks later"


@dataclass(frozen=True, slots=True)
class TransactionSendResult(SendResult):
    """The receipt of a half message, and how its transaction ended."""

    local_state: LocalTransactionState = LocalTransactionState.UNKNOWN
    """What the broker was told, or was to be told."""


class ConsumeConcurrentlyStatus(Enum):
    """What a listener says about its messages."""

    CONSUME_SUCCESS = "done"
    RECONSUME_LATER = "failed; deliver again after a while"


@dataclass(slots=True)
class ConcurrentContext:
    """Goes to a listener with its messages; what the listener sets here is obeyed."""

    message_queue: MessageQueue
    """Where the messages came from."""
    delay_level_when_next_consume: int = 0
    """When failed messages come again: 0 lets the broker choose by the number of failures, -1 means never (they go to
    the dead letter topic at once), above 0 is the delay level."""
    ack_index: int = ACK_ALL
    """With CONSUME_SUCCESS: the index of the last message that succeeded; those behind it come again."""


class ConsumeOrderlyStatus(Enum):
    """What a listener says that gets messages in order."""

    SUCCESS = "done"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "failed; deliver them again after a while, nothing else of the queue meanwhile"
    COMMIT = "done, and all before that were not committed yet; only without auto_commit"
    ROLLBACK = "deliver again everything that was not committed yet; only without auto_commit"


@dataclass(slots=True)
class OrderlyContext:
    """Goes to an ordered listener with its messages; what the listener sets here is obeyed."""

    message_queue: MessageQueue
    """Where the messages came from."""
    auto_commit: bool = True
    """Whether SUCCESS is final. Without it the listener says COMMIT or ROLLBACK when it knows."""
    suspend_current_queue_ms: int = -1
    """How long the queue rests after a failure, within 10 and 30,000; -1 is the consumer's setting."""


class PullStatus(Enum):
    """What a pull brought."""

    FOUND = "messages"
    NO_NEW_MSG = "nothing new in the queue"
    NO_MATCHED_MSG = "new messages, none of them matches the subscription"
    OFFSET_ILLEGAL = "the asked offset is outside the queue"


@dataclass(frozen=True, slots=True)
class PullResult:
    """One pull's outcome; the offsets are of the queue, `max_offset` is the next one to be written."""

    status: PullStatus
    """Why there are messages, or none."""
    next_begin_offset: int
    """Where the next pull should begin."""
    min_offset: int
    """The first one that can be read."""
    max_offset: int
    messages: list[MessageExt] = field(default_factory=list)
    """In the order of the queue."""
