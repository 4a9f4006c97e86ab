"""A broker's registration as bytes: plain JSON, or the packed form brokers send with compressedRegister=true.

The packed form is one zlib stream of

    text        data version, JSON
    count       i32  topics
    text        x count: `name readQueues writeQueues perm filterType`, split by one space; 5.x adds attributes
    text        addresses of filter servers, JSON array
    ...         5.x adds queue mappings, which are not used here

where a text is i32 size and UTF-8 bytes. As in RocketMQ, it lacks topic system flags and the order flag. Must not know
who registers, nor the route table.
"""

from __future__ import annotations

import struct
import zlib

import msgspec

from orbitmq.errors import BodyError
from orbitmq.message.config import SINGLE_TAG, DataVersion, TopicConfig
from orbitmq.message.flags import PERM_READ, PERM_WRITE
from orbitmq.message.javajson import loads
from orbitmq.wire.bodies import BrokerRegistration, TopicTable
from orbitmq.wire.header import Int64
from orbitmq.wire.objects import decode, decode_request, encode, from_plain

INFLATED_SIZE_MAX = 64 << 20  # 64 MiB: about half a million topics; a small frame must not unfold into all memory
TOPICS_MAX = 500_000  # topics: 16 million empty ones would fit, and stall the event loop for seconds
CRC_MASK = 0x7FFFFFFF
_COMPRESSION_LEVEL = 9
_INT32 = struct.Struct(">i")


def registration_crc(body: bytes) -> int:
    """The checksum for the header field bodyCrc32: over the bytes as sent, without the sign bit."""
    return zlib.crc32(body) & CRC_MASK


def encode_registration(registration: BrokerRegistration, *, compressed: bool = False) -> bytes:
    """The body of REGISTER_BROKER."""
    if not compressed:
        return encode(registration)
    table = registration.topic_table
    texts = [topic_line(config).encode() for config in table.topics.values()]
    packed = [
        _packed(encode(table.data_version)),
        _INT32.pack(len(texts)),
        *map(_packed, texts),
        _packed(encode(registration.filter_servers)),
    ]
    return zlib.compress(b"".join(packed), _COMPRESSION_LEVEL)


def plain_registration(table: str) -> bytes:
    """The same out of the text of a topic table, without filter servers."""
    return f'{{"filterServerList":[],"topicConfigSerializeWrapper":{table}}}'.encode()


def decode_registration(body: bytes, *, compressed: bool = False) -> BrokerRegistration:
    """Read the body of REGISTER_BROKER; without body the broker has no topics. BodyError when it is malformed."""
    if not body:
        return BrokerRegistration()
    if not compressed:
        try:
            return _quick(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return decode_request(BrokerRegistration, body)
    texts = _Texts(_inflate(body))
    version = decode(DataVersion, texts.take())
    topics = [topic_from_line(texts.take()) for _ in range(texts.topics())]
    return BrokerRegistration(
        filter_servers=from_plain(list[str], loads(texts.take())),
        topic_table=TopicTable(data_version=version, topics={config.name: config for config in topics}),
    )


def decode_head(body: bytes, *, compressed: bool = False) -> BrokerRegistration | None:
    """A registration but for its topics, which may be ten thousand; None when it can only be read as a whole."""
    try:
        if compressed:
            texts = _Texts(_inflate(body))
            version = decode(DataVersion, texts.take())
            for _ in range(texts.topics()):
                texts.skip()
            return BrokerRegistration(from_plain(list[str], loads(texts.take())), TopicTable(version))
        envelope = _read_envelope(body)
    except (BodyError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    table = envelope.table or _TableEnvelope()
    return BrokerRegistration(envelope.filter_servers or [], TopicTable(_version(table)))


def _quick(body: bytes) -> BrokerRegistration:
    """Read a registration that keeps to strict JSON, a tenth of the time. msgspec.DecodeError when it does not."""
    envelope = _read_envelope(body)
    table = envelope.table or _TableEnvelope()
    topics = {name: TopicConfig(*msgspec.structs.astuple(one)) for name, one in _read_topics(table.topics).items()}
    return BrokerRegistration(envelope.filter_servers or [], TopicTable(_version(table), topics))


def _version(table: _TableEnvelope) -> DataVersion:
    return DataVersion(*msgspec.structs.astuple(table.version)) if table.version is not None else DataVersion()


class _Topic(msgspec.Struct, gc=False):
    """A topic as Java writes it, members in the order of `TopicConfig`."""

    name: str = msgspec.field(name="topicName")
    read_queues: Int64 = msgspec.field(name="readQueueNums", default=16)
    write_queues: Int64 = msgspec.field(name="writeQueueNums", default=16)
    perm: Int64 = PERM_READ | PERM_WRITE
    filter_type: str = msgspec.field(name="topicFilterType", default=SINGLE_TAG)
    sys_flag: Int64 = msgspec.field(name="topicSysFlag", default=0)
    order: bool = False


class _Version(msgspec.Struct, gc=False):
    """A `DataVersion` whose numbers fit into 64 bits."""

    counter: Int64 = 0
    timestamp: Int64 = 0


class _TableEnvelope(msgspec.Struct):
    version: _Version | None = msgspec.field(name="dataVersion", default=None)
    topics: msgspec.Raw = msgspec.field(name="topicConfigTable", default=msgspec.Raw(b"{}"))


class _Envelope(msgspec.Struct):
    filter_servers: list[str] | None = msgspec.field(name="filterServerList", default=None)
    table: _TableEnvelope | None = msgspec.field(name="topicConfigSerializeWrapper", default=None)


_read_envelope = msgspec.json.Decoder(_Envelope).decode
_read_topics = msgspec.json.Decoder(dict[str, _Topic]).decode


def topic_line(config: TopicConfig) -> str:
    """A topic as one line of the packed form."""
    return f"{config.name} {config.read_queues} {config.write_queues} {config.perm} {config.filter_type}"


def topic_from_line(line: str) -> TopicConfig:
    """Read `topic_line`; parts after the fifth are 5.x's. BodyError when a part is missing or no number."""
    name, *rest = line.split(" ")
    try:
        read_queues, write_queues, perm = map(int, rest[:3])
        return TopicConfig(name, read_queues, write_queues, perm, rest[3])
    except (ValueError, IndexError):
        raise BodyError(f"topic line {line!r:.200} is not `name readQueues writeQueues perm filterType`") from None


def _packed(text: bytes) -> bytes:
    return _INT32.pack(len(text)) + text


def _inflate(body: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(body, INFLATED_SIZE_MAX)
    except zlib.error as error:
        raise BodyError(f"the registration is not a zlib stream: {error}") from error
    if not stream.eof:
        raise BodyError(f"the registration is cut short, or larger than {INFLATED_SIZE_MAX} bytes unpacked")
    return data


class _Texts:
    """Walks over the unpacked form."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def count(self) -> int:
        if self._at + _INT32.size > len(self._data):
            raise BodyError("the registration ends inside a number")
        (value,) = _INT32.unpack_from(self._data, self._at)
        self._at += _INT32.size
        return int(value)

    def topics(self) -> int:
        """How many topics follow."""
        count = self.count()
        if count > TOPICS_MAX:
            raise BodyError(f"the registration has {count} topics, at most {TOPICS_MAX} are allowed")
        return count

    def skip(self) -> None:
        size = self.count()
        self._at += max(0, size)

    def take(self) -> str:
        size = self.count()
        text = self._data[self._at : self._at + size] if size >= 0 else b""
        if len(text) != size:
            raise BodyError("the registration ends inside a text")
        self._at += size
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            raise BodyError(f"the registration holds a text that is not UTF-8: {error}") from error
