"""The stored form of a transaction, as RocketMQ 4.9 writes it. Pure; knows no store, clock or producer.

A half message is stored in queue 0 of the half topic; its properties keep its real topic and queue. An op message, in
the op topic, ends it: its body is the half message's queue offset in decimal, its tag `d`. A checked half message that
stays pending is copied to the end of the queue, so that the queue's oldest pending one is never old.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from orbitmq.errors import UnitError
from orbitmq.message.flags import TRANSACTION_COMMIT, TRANSACTION_NOT, transaction_type, with_transaction_type
from orbitmq.message.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    DELAY,
    NAME_END,
    PGROUP,
    PROPERTIES_SIZE_MAX,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    TRAN_MSG,
    TRAN_PREPARED_QUEUE_OFFSET,
    TRANSACTION_CHECK_TIMES,
    UNIQ_KEY,
    WAIT,
    decode_properties,
    encode_properties,
    find_property,
)
from orbitmq.message.topics import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_CHECK_MAX_TOPIC
from orbitmq.message.unit import Buffer, Unit, decode_unit, encode_unit
from orbitmq.store.records import PutRecord, copy_of

QUEUE_ID = 0  # of all three topics
OP_TAG = "d"
_TRAN_MSG = (TRAN_MSG + NAME_END).encode()
OP_PROPERTIES = encode_properties({WAIT: "true", TAGS: OP_TAG}).encode()
# What copies and questions may add to the properties of a half message: a copy that does not fit could not be stored.
COPY_GROWTH: Final = 1 + len(
    encode_properties({TRANSACTION_CHECK_TIMES: "9" * 10, TRAN_PREPARED_QUEUE_OFFSET: "9" * 19, WAIT: "false"})
)

# What a message and its copies share, and no other message has: unique id, born timestamp and born host.
Identity: TypeAlias = tuple[str, int, bytes]


class Half(Struct, frozen=True, gc=False):
    """A half message as it was read, or a discarded one, which looks the same. Places are those of this copy."""

    unit: Unit
    properties: dict[str, str]
    topic: str
    queue_id: int

    @property
    def offset(self) -> int:
        return self.unit.queue_offset

    @property
    def group(self) -> str:
        """The producer group that decides."""
        return self.properties.get(PGROUP, "")

    @property
    def unique_id(self) -> str:
        return self.properties.get(UNIQ_KEY, "")

    @property
    def identity(self) -> Identity | None:
        """None if the sender sets no unique id: copies cannot be recognized then."""
        unit = self.unit
        return (self.unique_id, unit.born_timestamp, unit.born_host) if self.unique_id else None

    @property
    def checks(self) -> int:
        """How often a producer has been asked."""
        return _whole(self.properties.get(TRANSACTION_CHECK_TIMES), 0)

    @property
    def is_copy(self) -> bool:
        return TRANSACTION_CHECK_TIMES in self.properties or TRAN_PREPARED_QUEUE_OFFSET in self.properties

    @property
    def origin(self) -> int | None:
        """The queue offset of the original, as the copy records it."""
        text = self.properties.get(TRAN_PREPARED_QUEUE_OFFSET, "")
        return int(text) if text.isdecimal() else None

    def immunity_ms(self, otherwise: int) -> int | None:
        """The time before which the sender must not be asked; None if it is not set, `otherwise` if it is no number."""
        text = self.properties.get(CHECK_IMMUNITY_TIME_IN_SECONDS)
        if text is None:
            return None
        seconds = _whole(text, -1)
        return otherwise if seconds == -1 else seconds * 1000

    @property
    def waits_for_store(self) -> bool:
        """Whether the response to the sender must wait until the message is durable."""
        return self.properties.get(WAIT, "true").lower() == "true"


def _whole(text: str | None, otherwise: int) -> int:
    try:
        return otherwise if text is None else int(text)
    except ValueError:
        return otherwise


def read_half(stored: Buffer | None, topic: str = HALF_TOPIC, *, with_body: bool = True) -> Half | None:
    """The half message in these bytes; None when they are none, or a message of another topic."""
    try:
        unit = decode_unit(stored, with_body=with_body) if stored is not None else None
    except UnitError:
        return None
    if unit is None or unit.topic != topic:
        return None
    properties = decode_properties(unit.properties)
    real_topic, queue_id = properties.get(REAL_TOPIC), properties.get(REAL_QID, "")
    if real_topic is None or not queue_id.isdecimal():
        return None
    return Half(unit, properties, real_topic, int(queue_id))


def is_transactional(text: str) -> bool:
    """Whether the properties text of a send makes it the first half of a transaction."""
    value = find_property(text.encode(), _TRAN_MSG)
    return value is not None and value.lower() == b"true"


def make_half(record: PutRecord, text: str) -> None:
    """Readdress a message to the half topic. It is stored as an ordinary message, or no queue would hold it."""
    properties = decode_properties(text)
    properties[REAL_TOPIC] = record.topic
    properties[REAL_QID] = str(record.queue_id)
    record.properties = encode_properties(properties).encode()
    record.sys_flag = with_transaction_type(record.sys_flag, TRANSACTION_NOT)
    record.topic = HALF_TOPIC
    record.queue_id = QUEUE_ID


def committed(half: Half) -> PutRecord:
    """The delivered message. It keeps all properties of the half message, those about the transaction included; only a
    delayed one loses the transaction flag, as in RocketMQ.
    """
    unit, properties = half.unit, half.properties
    text = unit.properties
    if _whole(properties.get(DELAY), 0) > 0:
        text = encode_properties({name: value for name, value in properties.items() if name != TRAN_MSG})
    record = copy_of(unit, half.topic, half.queue_id, text.encode())
    record.sys_flag = with_transaction_type(unit.sys_flag, TRANSACTION_COMMIT)
    record.prepared_transaction_offset = unit.physical_offset
    return record


def became(half: Half, stored: Buffer | None) -> bool:
    """Whether these bytes are the message that was delivered for a half message, or for a copy of it."""
    try:
        unit = decode_unit(stored, with_body=False) if stored is not None else None
    except UnitError:
        return False
    if unit is None or transaction_type(unit.sys_flag) != TRANSACTION_COMMIT:
        return False
    if half.identity is None:
        return unit.prepared_transaction_offset == half.unit.physical_offset
    unique_id = decode_properties(unit.properties).get(UNIQ_KEY, "")
    return half.identity == (unique_id, unit.born_timestamp, unit.born_host)


def op_record(offset: int, now_ms: int, host: bytes) -> PutRecord:
    """The op message for the half message at this queue offset."""
    return PutRecord(OP_HALF_TOPIC, QUEUE_ID, b"%d" % offset, OP_PROPERTIES, now_ms, host, host)


def decided_offsets(body: bytes) -> list[int]:
    """What an op message ends. RocketMQ 5 names several half messages in one."""
    return [int(part) for part in body.split(b",") if part.isdigit()]


def checked_copy(half: Half) -> Half:
    """The half message with one more check on its count."""
    return _with(half, TRANSACTION_CHECK_TIMES, str(half.checks + 1))


def immune_copy(half: Half) -> Half:
    """A copy of the half message that records the offset of the original."""
    return _with(half, TRAN_PREPARED_QUEUE_OFFSET, half.properties.get(TRAN_PREPARED_QUEUE_OFFSET, str(half.offset)))


def resumed_copy(half: Half) -> Half:
    """A copy of the half message without checks."""
    return _with(half, TRANSACTION_CHECK_TIMES, "0")


def _with(half: Half, name: str, value: str) -> Half:
    return replace(half, properties=half.properties | {name: value})


def copy_record(half: Half) -> PutRecord:
    """The half message on its way behind the others."""
    return _copied(half, HALF_TOPIC)


def discard_record(half: Half) -> PutRecord:
    """The half message for the topic of abandoned ones."""
    return _copied(half, TRANSACTION_CHECK_MAX_TOPIC)


def _copied(half: Half, topic: str) -> PutRecord:
    """RocketMQ drops flag and reconsume times here."""
    record = copy_of(half.unit, topic, QUEUE_ID, encode_properties(half.properties).encode())
    record.flag = record.reconsume_times = 0
    return record


def check_unit(half: Half, queue_offset: int, physical_offset: int) -> bytes:
    """The message in a check request: with its real topic and queue, and the offsets of the newest copy."""
    text = encode_properties(half.properties | {WAIT: "false"})
    if len(text.encode()) > PROPERTIES_SIZE_MAX:
        text = encode_properties(half.properties)
    return encode_unit(
        replace(
            half.unit,
            topic=half.topic,
            queue_id=half.queue_id,
            queue_offset=queue_offset,
            physical_offset=physical_offset,
            properties=text,
        )
    )
