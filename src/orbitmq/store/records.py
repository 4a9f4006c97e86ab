"""The records of a put and their results."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

import msgspec

from orbitmq.message.flags import BORN_HOST_V6, STORE_HOST_V6
from orbitmq.message.hosts import HOST_V4_SIZE
from orbitmq.message.ids import offset_message_id, offset_message_ids
from orbitmq.message.unit import Unit
from orbitmq.store.positions import PhysicalOffset, QueueOffset


class PutStatus(Enum):
    """Names are RocketMQ's, for they reach tools and logs."""

    PUT_OK = auto()
    FLUSH_DISK_TIMEOUT = auto()
    FLUSH_SLAVE_TIMEOUT = auto()
    SLAVE_NOT_AVAILABLE = auto()
    CREATE_MAPEDFILE_FAILED = auto()
    SERVICE_NOT_AVAILABLE = auto()
    MESSAGE_ILLEGAL = auto()
    PROPERTIES_SIZE_EXCEEDED = auto()
    OS_PAGECACHE_BUSY = auto()
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = auto()
    WHEEL_TIMER_NOT_ENABLE = auto()
    WHEEL_TIMER_FLOW_CONTROL = auto()


# They depend on the disk, or on an option that may be changed. A put that ended otherwise will never succeed.
MAY_PASS: Final = (
    PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.OS_PAGECACHE_BUSY, PutStatus.CREATE_MAPEDFILE_FAILED,
    PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED,
)  # fmt: skip


class PutRecord(msgspec.Struct, gc=False):
    """A message on its way into the store.

    `properties` is the encoded text in UTF-8; tags are read out of it. The hosts' lengths decide the
    IPv6 bits of the system flag, the caller need not set them. `is_known` is a message that the store holds already, on
    its way to another place: `maxMessageSize`, which may have been lowered since, does not count for it. One that
    `makes_room` is stored though the disk is too full for others: a file of the log can be removed then.
    """

    topic: str
    queue_id: int
    body: bytes | memoryview
    properties: bytes
    born_timestamp: int
    born_host: bytes
    store_host: bytes
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    is_known: bool = False
    makes_room: bool = False


def copy_of(unit: Unit, topic: str, queue_id: int, properties: bytes) -> PutRecord:
    """A stored message for another place: same body, flags, birth and hosts, as many reconsume times."""
    return PutRecord(
        topic=topic,
        queue_id=queue_id,
        body=unit.body,
        properties=properties,
        flag=unit.flag,
        sys_flag=unit.sys_flag,
        born_timestamp=unit.born_timestamp,
        born_host=unit.born_host,
        store_host=unit.store_host,
        reconsume_times=unit.reconsume_times,
        is_known=True,
    )


class PutResult(msgspec.Struct, gc=False):
    """The position of a message, or of the first one of a batch. Only PUT_OK has a position.

    `reason` names the exceeded limit or the illegal name of a refused message. `size` counts every appended byte,
    `places` are the physical offsets of a batch, one per message. A timer message can be recalled by its handle;
    the half of a transaction has its id.
    """

    status: PutStatus
    physical_offset: PhysicalOffset = PhysicalOffset(-1)
    queue_offset: QueueOffset = QueueOffset(0)
    size: int = 0
    store_timestamp: int = 0
    store_host: bytes = b""
    places: tuple[int, ...] = ()
    reason: str = ""
    recall_handle: str = ""
    transaction_id: str = ""

    @property
    def count(self) -> int:
        """Messages stored."""
        return len(self.places) or int(self.size > 0)

    @property
    def end_offset(self) -> PhysicalOffset:
        """When the log is flushed up to here, the put is on disk."""
        return PhysicalOffset(self.physical_offset + self.size)

    @property
    def message_id(self) -> str:
        """The offset message id; of a batch, the ids joined by commas."""
        if self.places:
            return offset_message_ids(self.store_host, self.places)
        return offset_message_id(self.store_host, self.physical_offset)


UNAVAILABLE: Final = PutResult(PutStatus.SERVICE_NOT_AVAILABLE)
NO_FILE: Final = PutResult(PutStatus.CREATE_MAPEDFILE_FAILED)
BUSY: Final = PutResult(PutStatus.OS_PAGECACHE_BUSY)
PROPERTIES_TOO_LONG: Final = PutResult(PutStatus.PROPERTIES_SIZE_EXCEEDED)
TOO_MANY_LIGHT_QUEUES: Final = PutResult(PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED)


def with_host_bits(record: PutRecord) -> int:
    """The system flag with the bits for the length of the host fields."""
    sys_flag = record.sys_flag
    if len(record.born_host) != HOST_V4_SIZE:
        sys_flag |= BORN_HOST_V6
    if len(record.store_host) != HOST_V4_SIZE:
        sys_flag |= STORE_HOST_V6
    return sys_flag


def illegal(reason: str) -> PutResult:
    """The refusal of a message that no later try makes right."""
    return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=reason)


ILLEGAL_BATCH: Final = illegal("a batch has a body, is in no transaction and is not delayed")
