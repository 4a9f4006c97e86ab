"""What an outbox stores of a message, how it reports a loss, and its default rules. Pure.

A kept message on disk:

    offset | size | field
         0 |    1 | version of this layout, 1
         1 |    4 | CRC-32 of what follows, big endian
         5 |      | MessagePack of `OutboxRecord`

and its history, which changes with every attempt: MessagePack of `AttemptHistory`.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import Enum

import msgspec

from orbitmq.client.core.outgoing import Outgoing
from orbitmq.client.outbox.backlog import Line
from orbitmq.errors import BrokerError, ClientError, MessageIllegal, OrbitMQError, RemotingError, UnitError
from orbitmq.message.model import MessageQueue
from orbitmq.message.properties import KEYS, decode_properties
from orbitmq.wire.codes import ResponseCode

VERSION = 1
HEAD = struct.Struct(">BI")

REFUSED_FOR_GOOD: frozenset[int] = frozenset(
    {ResponseCode.MESSAGE_ILLEGAL, ResponseCode.NO_PERMISSION, ResponseCode.REQUEST_CODE_NOT_SUPPORTED}
)
"""Response codes after which a retry is useless."""

FIRST_PAUSE_S = 5.0
PAUSE_MAX_S = 300.0  # the longest delay of a message once its broker is back, if nothing else is sent there


class LossReason(Enum):
    """Why a message that could not be sent is not (or no longer) in the outbox."""

    RULE_REJECTED = "the store rule rejected it"
    LIMIT_COUNT = "the outbox holds the maximum number of messages"
    LIMIT_BYTES = "the outbox holds the maximum number of bytes"
    LIMIT_MESSAGE_SIZE = "the message is larger than the outbox allows"
    EVICTED = "a newer message took its place"
    ASYNC_QUEUE_FULL = "too many messages wait to be written"
    WRITE_ERROR = "it could not be written to disk"
    CORRUPT_RECORD = "the stored message is damaged"
    EXPIRED = "it was older than age_max_s when it was due"
    GAVE_UP = "the redelivery rule gave up"
    NON_RETRYABLE = "the broker rejected it for good"
    UNCLEAN_SHUTDOWN = "the process ended before it was written"


@dataclass(frozen=True, slots=True)
class Loss:
    """One message that the outbox has lost, or `count` of them of which nothing else is known."""

    reason: LossReason
    """The reason."""
    detail: str
    """The details: which limit, which rule."""
    topic: str = ""
    """The topic of the message; this and the following fields are empty if nothing could be read."""
    msg_id: str = ""
    """The unique id of the message."""
    keys: str = ""
    """All keys of the message, separated by a space."""
    body: bytes = b""
    """The body as it would have been sent, possibly compressed; empty if nothing could be read."""
    first_failed_ms: int = 0
    """When its first send failed; milliseconds since the epoch."""
    error: str = ""
    """The error of the first send."""
    count: int = 1
    """How many messages."""


class OutboxRecord(msgspec.Struct, frozen=True):
    """A message that waits to be sent again, and its destination."""

    message: Outgoing
    first_failed_ms: int
    error: str
    key_kind: str = ""  # "s" str, "i" int, "b" bytes, "" none: MessagePack has no integers of any size
    key_bytes: bytes = b""
    broker_name: str | None = None
    queue_id: int = 0

    @property
    def key(self) -> str | int | bytes | None:
        """The sharding key the caller gave."""
        if self.key_kind == "b":
            return self.key_bytes
        text = self.key_bytes.decode()
        return int(text) if self.key_kind == "i" else text if self.key_kind == "s" else None

    @property
    def queue(self) -> MessageQueue | None:
        """The queue the caller chose."""
        if self.broker_name is None:
            return None
        return MessageQueue(self.message.topic, self.broker_name, self.queue_id)

    @property
    def line(self) -> Line:
        """The messages it must not overtake."""
        return line_of(self.message.topic, self.queue, self.key)

    def lost(self, reason: LossReason, detail: str) -> Loss:
        """The report that this message is lost."""
        keys = "" if self.message.batch else decode_properties(self.message.properties).get(KEYS, "")
        message = self.message
        return Loss(reason, detail, message.topic, message.msg_id, keys, message.body, self.first_failed_ms, self.error)


class AttemptHistory(msgspec.Struct, frozen=True):
    """The attempts to send a kept message so far."""

    attempts: int = 0
    next_ms: int = 0
    error: str = ""
    """The last error; empty before the first attempt."""


def new_kept(
    message: Outgoing, now_ms: int, error: str, queue: MessageQueue | None, key: str | int | bytes | None
) -> OutboxRecord:
    """The record of a message whose send has just failed."""
    kind = "" if key is None else "b" if isinstance(key, bytes) else "i" if isinstance(key, int) else "s"
    data = key if isinstance(key, bytes) else b"" if key is None else str(key).encode()
    place = (None, 0) if queue is None else (queue.broker_name, queue.queue_id)
    return OutboxRecord(message, now_ms, error, kind, data, *place)


def line_of(topic: str, queue: MessageQueue | None, key: str | int | bytes | None) -> Line:
    """The line of a message for this queue, or with this key, or for any queue."""
    if queue is not None:
        return (topic, queue.broker_name, queue.queue_id)
    return (topic,) if key is None else (topic, key)


_encoder = msgspec.msgpack.Encoder()
_kept_decoder = msgspec.msgpack.Decoder(OutboxRecord)
_history_decoder = msgspec.msgpack.Decoder(AttemptHistory)


def encode_kept(kept: OutboxRecord) -> bytes:
    """The bytes on disk."""
    content = _encoder.encode(kept)
    return HEAD.pack(VERSION, zlib.crc32(content)) + content


def decode_kept(data: bytes) -> OutboxRecord:
    """The message of these bytes. UnitError when they are not what `encode_kept` made."""
    if len(data) < HEAD.size:
        raise UnitError(f"a kept message of {len(data)} bytes")
    version, checksum = HEAD.unpack_from(data)
    if version != VERSION:
        raise UnitError(f"a kept message of version {version}, only {VERSION} is known")
    content = data[HEAD.size :]
    if zlib.crc32(content) != checksum:
        raise UnitError("the checksum of a kept message does not fit")
    try:
        return _kept_decoder.decode(content)
    except msgspec.MsgspecError as error:
        raise UnitError(f"a kept message that cannot be read: {error}") from error


def encode_history(history: AttemptHistory) -> bytes:
    """The bytes on disk."""
    return _encoder.encode(history)


def decode_history(data: bytes) -> AttemptHistory:
    """The history of these bytes; a damaged one counts as none, since the message itself is whole."""
    try:
        return _history_decoder.decode(data)
    except msgspec.MsgspecError:
        return AttemptHistory()


# ------------------------------------------------------------------------------------------------------------- rules


def worth_keeping(_message: Outgoing, error: OrbitMQError) -> bool:
    """The default store rule: keep what a retry may send, not what is illegal or was rejected for good."""
    if isinstance(error, MessageIllegal):
        return False
    if isinstance(error, (BrokerError, ClientError)):
        return error.code not in REFUSED_FOR_GOOD
    return isinstance(error, RemotingError)


def doubling_pause(attempts: int, chance: float) -> float:
    """The default redelivery rule: seconds until the next attempt after `attempts` of them, 5 s at first, doubled each
    time up to 5 minutes, and by `chance` (0 to 1) up to a quarter shorter, so that not all are sent at once.
    """
    pause = min(PAUSE_MAX_S, FIRST_PAUSE_S * 2.0 ** min(attempts - 1, 16))
    return pause * (1 - chance / 4)
