"""A stored message as it is shown: its place, times, names, and its body in a form that can be read. Pure."""

from __future__ import annotations

import base64
import codecs
import json
from collections.abc import Callable, Mapping
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from orbitmq.errors import ConfigurationError, SchemaIllegal, UnitError, WrongBody
from orbitmq.message.compression import COMPRESSION_FLAGS, DECOMPRESSED_SIZE_MAX, ZLIB, decompress
from orbitmq.message.flags import (
    COMPRESSED,
    COMPRESSION_MASK,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_NOT,
    TRANSACTION_PREPARED,
)
from orbitmq.message.model import MessageExt
from orbitmq.message.properties import DELAY, KEYS, REAL_TOPIC, RETRY_TOPIC, TAGS, UNIQ_KEY
from orbitmq.schemas.model import Schema
from orbitmq.schemas.reading import json_of

SHOWN_BYTES = 64 << 10
"""Default limit of a body that is shown: more is useless in a terminal or on a page, and 64 such messages are 4 MiB."""
TYPED_MAX = 1 << 20
"""Bytes of a body that is read by its schema: values of Python take some ten times as much."""
ANY_CHARSET = "auto"
"""Stands for the charset in which the bytes look most like text."""
_PLAUSIBLE = 0.5
"""The share of common characters from which on bytes are taken for text of a charset: other bytes have few of them."""
_COMPRESSIONS = {flag: name for name, flag in COMPRESSION_FLAGS.items()}
_TRANSACTIONS = {TRANSACTION_NOT: None, TRANSACTION_PREPARED: "prepared", TRANSACTION_COMMIT: "committed"}
_CONTROLS = frozenset(map(chr, range(32))) - set("\t\n\r")


class BodyForm(StrEnum):
    """How the bytes of a body are written."""

    AUTO = "auto"
    """Text where the bytes are text, else base64: nothing is lost, so that it can be sent again."""
    TEXT = "text"
    """In the charset, with invalid bytes replaced."""
    JSON = "json"
    """Indented; text when it is no JSON."""
    HEX = "hex"
    BASE64 = "base64"


class Body(Struct, frozen=True, rename="camel"):
    """A body as it is shown."""

    form: str
    """text, json, hex or base64: how `content` is written; avro or protobuf: the JSON of such a body."""
    content: str
    size_bytes: int
    """Of the whole body, unpacked."""
    charset: str | None = None
    """Of a text."""
    truncated: bool = False
    """Whether `content` is the beginning only."""
    compression: str | None = None
    """How it is stored: ZLIB, LZ4 or ZSTD; None when it is stored as it is."""
    problem: str | None = None
    """Why it is shown in another form than requested: it cannot be unpacked, or is not in that form."""


class StoredMessage(Struct, frozen=True, rename="camel", kw_only=True):
    """A message at its place in a broker's store."""

    topic: str
    """The topic it is stored in: half, delayed and retried messages are in system topics."""
    real_topic: str
    """The topic it was sent to."""
    broker_name: str
    queue_id: int
    queue_offset: int
    msg_id: str
    """The producer's unique id, else the offset id."""
    offset_msg_id: str
    tags: str | None
    keys: list[str]
    born_at_ms: int
    """By the producer's clock."""
    born_host: str
    stored_at_ms: int
    """By the broker's clock."""
    store_host: str
    commit_log_offset: int
    size_bytes: int
    """In the broker's log, with everything."""
    reconsume_times: int
    """How often its group has failed to consume it."""
    delay_level: int | None
    transaction: str | None
    """prepared or committed; None outside transactions."""
    prepared_transaction_offset: int | None
    """Where its half is in the log."""
    flag: int
    sys_flag: int
    body_crc: int
    properties: dict[str, str]
    body: Body | None
    """None if bodies were not requested."""


def body_view(
    body: bytes,
    sys_flag: int,
    form: BodyForm = BodyForm.AUTO,
    charset: str = "utf-8",
    limit: int | None = SHOWN_BYTES,
    unpacked_max: int = DECOMPRESSED_SIZE_MAX,
) -> Body:
    """The first `limit` bytes of a body as stored, unpacked first unless that gives more than `unpacked_max` bytes, in
    a charset or `ANY_CHARSET`. ConfigurationError for an unknown charset.
    """
    if charset != ANY_CHARSET:
        check_charset(charset)
    packed, problem = _compression(sys_flag), None
    try:
        whole = decompress(body, sys_flag, unpacked_max)
    except UnitError as error:
        whole, problem, form = body, str(error), BodyForm.BASE64
    part = whole if limit is None else whole[:limit]
    if charset == ANY_CHARSET:
        charset = charset_of(part, is_cut=len(part) < len(whole))
    written, content, doubt = _written(part, form, charset, is_cut=len(part) < len(whole))
    return Body(
        form=written,
        content=content,
        size_bytes=len(whole),
        charset=charset if written == BodyForm.TEXT else None,
        truncated=len(part) < len(whole),
        compression=packed,
        problem=problem or doubt,
    )


def typed_view(body: bytes, sys_flag: int, schema: Schema, limit: int | None = SHOWN_BYTES) -> Body:
    """The first `limit` characters of the JSON of a body of Avro or Protobuf, unpacked first. UnitError if it cannot be
    unpacked or is too large, WrongBody, SchemaIllegal and ConfigurationError as of `json_of`.
    """
    whole = decompress(body, sys_flag, TYPED_MAX)
    if len(whole) > TYPED_MAX:
        raise UnitError(f"it has {len(whole)} bytes, and at most {TYPED_MAX} are read by a schema")
    text = json_of(whole, schema)
    part = text if limit is None else text[:limit]
    cut = len(part) < len(text)
    return Body(schema.kind, part, len(whole), truncated=cut, compression=_compression(sys_flag))


def _body(message: MessageExt, form: BodyForm, charset: str, limit: int | None, schema: Schema | None) -> Body:
    problem = None
    if schema is not None and form in (BodyForm.AUTO, BodyForm.JSON):
        try:
            return typed_view(message.body, message.sys_flag, schema, limit)
        except (ConfigurationError, SchemaIllegal, UnitError, WrongBody) as error:
            problem = f"it is not read by schema {schema.id}: {error}"
    found = body_view(message.body, message.sys_flag, form, charset, limit)
    return replace(found, problem=problem or found.problem)


def check_charset(charset: str) -> None:
    """ConfigurationError if no decoder has this name."""
    try:
        "".encode(charset)
    except LookupError as error:
        raise ConfigurationError(f"there is no charset {charset}; utf-8, gbk, utf-16 and latin-1 are some") from error


def charset_of(part: bytes, *, is_cut: bool = False) -> str:
    """The charset of these bytes: UTF-8 and UTF-16 are recognised for certain, those of East Asia by their common
    characters, in which texts of one look strange in the others; utf-8 for what is no text.
    """
    if part.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and _text(part, "utf-16", is_cut=is_cut):
        return "utf-16"
    if part.isascii() or _text(part, "utf-8", is_cut=is_cut) is not None:
        return "utf-8"
    scores = {name: _commonness(part, name, is_cut=is_cut) for name in _COMMON}
    best = max(scores, key=lambda name: scores[name])
    return best if scores[best] >= _PLAUSIBLE else "utf-8"


_COMMON: Mapping[str, Callable[[bytes], bool]] = {
    "gb18030": lambda code: len(code) == 2 and (0xB0 <= code[0] <= 0xD7 or 0xA1 <= code[0] <= 0xA3) and code[1] > 0xA0,
    "big5": lambda code: len(code) == 2 and 0xA1 <= code[0] <= 0xC6,
    "shift_jis": lambda code: code[0] in (0x81, 0x82, 0x83),
    "euc-kr": lambda code: len(code) == 2 and 0xB0 <= code[0] <= 0xC8,
}
"""Charset -> whether these bytes are one of its everyday characters. Of equal ones the first counts."""


def _commonness(part: bytes, charset: str, *, is_cut: bool) -> float:
    """The share of common ones among the characters that are not ASCII; 0 for bytes that are not in the charset."""
    text = _text(part, charset, is_cut=is_cut)
    wide = [] if text is None else [one for one in text if not one.isascii()]
    is_common = _COMMON[charset]
    return sum(is_common(one.encode(charset)) for one in wide) / len(wide) if wide else 0.0


def _compression(sys_flag: int) -> str | None:
    if not sys_flag & COMPRESSED:
        return None
    return _COMPRESSIONS.get(sys_flag & COMPRESSION_MASK, ZLIB)


def _written(part: bytes, form: BodyForm, charset: str, *, is_cut: bool) -> tuple[str, str, str | None]:
    """The body in the requested form, or in one that is possible; and the problem with the requested form."""
    if form is BodyForm.HEX:
        return BodyForm.HEX, part.hex(), None
    if form is BodyForm.BASE64:
        return BodyForm.BASE64, base64.b64encode(part).decode(), None
    text = _text(part, charset, is_cut=is_cut)
    if form is BodyForm.AUTO:
        if text is None:
            return BodyForm.BASE64, base64.b64encode(part).decode(), None
        return BodyForm.TEXT, text, None
    doubt = None if text is not None else f"it holds bytes that are no {charset} text"
    if text is None:
        text = part.decode(charset, "replace")
    if form is BodyForm.TEXT:
        return BodyForm.TEXT, text, doubt
    try:
        return BodyForm.JSON, json.dumps(json.loads(text), ensure_ascii=False, indent=2), doubt
    except (ValueError, RecursionError) as error:
        return BodyForm.TEXT, text, f"it is no JSON: {error}" if not is_cut else "it is too long to be shown as JSON"


def _text(part: bytes, charset: str, *, is_cut: bool) -> str | None:
    """The decoded text; None for bytes that are not text of this charset. A character that was cut off is left out."""
    decoder = codecs.getincrementaldecoder(charset)("strict")
    try:
        text = decoder.decode(part, final=not is_cut)
    except UnicodeError:
        return None
    return None if _CONTROLS.intersection(text) else text


def shown(
    message: MessageExt,
    form: BodyForm | None = BodyForm.AUTO,
    charset: str = "utf-8",
    limit: int | None = SHOWN_BYTES,
    schema: Schema | None = None,
) -> StoredMessage:
    """`message`, which was read without unpacking its body; without `form` the body is left out. With the `schema` that
    a body of Avro or Protobuf was written with, the forms for reading are its JSON.
    """
    properties = message.properties
    return StoredMessage(
        topic=message.topic,
        real_topic=real_topic(message),
        broker_name=message.broker_name,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        msg_id=message.msg_id,
        offset_msg_id=message.offset_msg_id,
        tags=properties.get(TAGS),
        keys=properties.get(KEYS, "").split(),
        born_at_ms=message.born_timestamp,
        born_host=message.born_host,
        stored_at_ms=message.store_timestamp,
        store_host=message.store_host,
        commit_log_offset=message.commit_log_offset,
        size_bytes=message.store_size,
        reconsume_times=message.reconsume_times,
        delay_level=_number(properties.get(DELAY)),
        transaction=_TRANSACTIONS.get(message.sys_flag & TRANSACTION_MASK, "rolled back"),
        prepared_transaction_offset=message.prepared_transaction_offset or None,
        flag=message.flag,
        sys_flag=message.sys_flag,
        body_crc=message.body_crc,
        properties=properties,
        body=None if form is None else _body(message, form, charset, limit, schema),
    )


def real_topic(message: MessageExt) -> str:
    """The topic the application sent it to."""
    found = message.properties
    return found.get(RETRY_TOPIC) or found.get(REAL_TOPIC) or message.topic


def unique_id(message: MessageExt) -> str | None:
    """The producer's id; None of a producer that makes none."""
    return message.properties.get(UNIQ_KEY)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and int(text) else None
