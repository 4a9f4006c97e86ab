"""The bodies of POP consumption."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Collection, Sequence
from enum import Enum
from typing import Final

import msgspec
from msgspec import Struct, field

from orbitmq.errors import BodyError
from orbitmq.message.model import MessageQueue
from orbitmq.message.pop import MAX_MESSAGES, RETRY, pop_retry_topic, pop_retry_topics
from orbitmq.message.topics import retry_topic
from orbitmq.wire.bodies import ConsumerConnection, ConsumeType, MessageModel

_BITS_BYTES_MAX: Final = 128  # a filter may leave out a thousand messages between those of a response


class BatchAck(Struct):
    """Acknowledgements of one response in one queue: bit i of `b` is the message at `so` + i."""

    c: str
    t: str
    so: int
    q: int
    rq: int
    pt: int
    it: int
    b: str | list[int]
    r: str = "0"

    def offsets(self) -> list[int]:
        """BodyError."""
        try:
            data = b64decode(self.b, validate=True) if isinstance(self.b, str) else bytes(one & 255 for one in self.b)
        except (binascii.Error, ValueError) as error:
            raise BodyError(f"the bits of acknowledged messages are no base64: {error}") from error
        bits = int.from_bytes(data, "little")
        if len(data) > _BITS_BYTES_MAX or bits.bit_count() > MAX_MESSAGES:
            raise BodyError(f"one response has {MAX_MESSAGES} messages at most")
        return [self.so + bit for bit in range(8 * len(data)) if bits >> bit & 1]

    @property
    def topic(self) -> str:
        return pop_retry_topic(self.t, self.c) if self.r == RETRY else self.t


class BatchAckBody(Struct, rename="camel"):
    """BATCH_ACK_MESSAGE."""

    acks: list[BatchAck]
    broker_name: str | None = None


_BATCHES = msgspec.json.Decoder(BatchAckBody)


def read_batch(body: bytes) -> list[BatchAck]:
    """The acknowledgements in a BATCH_ACK_MESSAGE. BodyError."""
    try:
        return _BATCHES.decode(body).acks
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BodyError(f"acknowledgements cannot be read: {error}") from error


class RequestMode(Enum):
    """By which kind of request a member reads its queues."""

    PULL = "PULL"
    POP = "POP"


class AssignmentQuery(Struct, frozen=True):
    """QUERY_ASSIGNMENT."""

    topic: str = ""
    consumer_group: str = ""
    client_id: str = ""
    strategy_name: str | None = None
    message_model: MessageModel | None = None


class Assignment(Struct, frozen=True):
    """A queue of a member; id -1 stands for all queues of a broker."""

    message_queue: MessageQueue
    mode: RequestMode


class Assignments(Struct, frozen=True):
    """Response to QUERY_ASSIGNMENT; None if the member keeps what it has."""

    message_queue_assignments: list[Assignment] | None = None


class RequestModeUpdate(Struct, frozen=True):
    """SET_MESSAGE_REQUEST_MODE."""

    topic: str = ""
    consumer_group: str = ""
    mode: RequestMode = RequestMode.PULL
    pop_share_queue_num: int = 0


class RequestModeTable(Struct, frozen=True):
    """config/messageRequestMode.json: topic -> group -> mode."""

    table: dict[str, dict[str, RequestModeUpdate]] = field(name="messageRequestModeMap", default_factory=dict)


class InFlightMessages(Struct, frozen=True):
    """Messages of one queue that were delivered together and are not acknowledged. They are redelivered at `due_ms`."""

    topic: str
    """The retry topic for those that were redelivered before."""
    queue_id: int
    offsets: list[int]
    delivered_ms: int
    due_ms: int


class InFlightList(Struct, frozen=True):
    """Response to GET_IN_FLIGHT: the next to be redelivered first. `messages` counts all; the broker may not know all
    before it `is_complete`, soon after a start.
    """

    messages: int
    is_complete: bool
    checkpoints: list[InFlightMessages]

    def lists_all(self, limit: int) -> bool:
        """Whether a message that is not listed is not in flight, if up to `limit` were asked for. `messages` may count
        some that were delivered after those that are listed.
        """
        return self.is_complete and len(self.checkpoints) < limit


def is_popped(group: str, members: Sequence[ConsumerConnection], topics: Collection[str]) -> bool | None:
    """Whether retries of the group wait in a retry topic for each topic. `members` are what brokers know of those that
    are online, `topics` are all. Members pop if they do not subscribe to the retry topic of push consumers; those that
    pull do not either, and have no retries. None while none is online and there are retry topics: the offset of a push
    consumer would tell.
    """
    if any(retry_topic(group) in one.subscription_table for one in members):
        return False
    has_retries = bool(pop_retry_topics(group, topics))
    if members:
        return has_retries or any(one.consume_type != ConsumeType.CONSUME_ACTIVELY for one in members)
    return None if has_retries else False
