"""The remoting command: header and body of one frame. Pure: must not know sockets, nor what a request means."""

from __future__ import annotations

import itertools
from typing import Any, Final, TypeVar

import msgspec

from orbitmq.wire.codes import VERSION
from orbitmq.wire.header import Header, from_ext
from orbitmq.wire.text_map import to_ext

FLAG_RESPONSE: Final = 1
FLAG_ONEWAY: Final = 2
LANGUAGE: Final = "JAVA"  # sent by every client but Python ones, and by brokers in responses

_opaque_source = itertools.count()
H = TypeVar("H", bound=Header)


def next_opaque() -> int:
    """A process-wide correlation number; wraps at 32 bits into the negative, as Java's does."""
    return ((next(_opaque_source) + 0x80000000) & 0xFFFFFFFF) - 0x80000000


class Command(msgspec.Struct, gc=False):
    """One request or response. `ext` None means no header fields at all, `{}` an empty set: both occur on the wire."""

    code: int = 0
    ext: dict[str, str] | None = msgspec.field(name="extFields", default=None)
    flag: int = 0
    language: str = LANGUAGE
    opaque: int | None = None
    remark: str | None = None
    version: int = 0
    # Not members of the header text; the frame decoder sets them, whatever a peer sends under these names.
    body: bytes = msgspec.field(name="~body", default=b"")
    body_parts: Any = msgspec.field(
        name="~parts", default=()
    )  # a sequence of bytes and memoryview, sent instead of `body`
    serialize_type: int = msgspec.field(name="~type", default=0)
    typed: Any = msgspec.field(name="~typed", default=None)

    @property
    def is_response(self) -> bool:
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        return self.flag & FLAG_ONEWAY != 0

    def header(self, kind: type[H]) -> H:
        """The typed header; HeaderError names the missing or malformed field."""
        if type(self.typed) is kind:
            return self.typed
        return from_ext(kind, self.ext)

    def response(
        self, code: int, remark: str | None = None, header: Header | None = None, body: bytes = b""
    ) -> Command:
        """The response to this request: same correlation number, same serialization."""
        return Command(
            code=code,
            ext=None if header is None else to_ext(header),
            flag=FLAG_RESPONSE,
            opaque=self.opaque,
            remark=remark,
            version=VERSION,
            body=body,
            serialize_type=self.serialize_type,
        )


def request(
    code: int, header: Header | None = None, body: bytes = b"", *, oneway: bool = False, language: str = LANGUAGE
) -> Command:
    """A new request with its own opaque."""
    return Command(
        code=code,
        ext=None if header is None else to_ext(header),
        flag=FLAG_ONEWAY if oneway else 0,
        language=language,
        opaque=next_opaque(),
        version=VERSION,
        body=body,
    )
