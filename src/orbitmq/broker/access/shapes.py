"""What a signed request of an administrator looks like: the fields of its own header, and a body only where it has one.

A signature of 4.x covers the values of the fields joined without borders, and the body, but neither the names of the
fields nor the code. Whoever hears a signed request can therefore send its values under another code, and hide those
that do not fit in fields that nobody reads. Where much can be broken, nothing but what the request knows is taken;
whether its own fields are there and can be read is for its handler. Must not know accounts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orbitmq.wire.request import Request
from orbitmq.wire.signature import ACCESS_KEY, SIGNATURE

_TRUTHS: Final = frozenset({"true", "false"})
_OF_EVERY_REQUEST: Final[Mapping[str, frozenset[str]]] = {"ReqT": frozenset({"0"}), "oway": _TRUTHS, "lo": _TRUTHS}
"""Fields that clients may add to any request, with values too few to hide something in."""
_SHOWN_MAX: Final = 64  # characters of a field's name in an answer


def known_fields(request: Request) -> frozenset[str]:
    """The fields it may have."""
    return request.unread_fields | {ACCESS_KEY, SIGNATURE, *request.header.__struct_encode_fields__}


def misfit(request: Request, signed: Mapping[str, str], body: bytes) -> str | None:
    """Why signed fields and body are not those of such a request; None when they are, or when it may have others."""
    if not request.is_exact:
        return None
    known = known_fields(request)
    strange = sorted(
        name for name, value in signed.items() if name not in known and value not in _OF_EVERY_REQUEST.get(name, ())
    )
    if strange:
        return f"field {strange[0][:_SHOWN_MAX]} is no field of a request with code={request:d}"
    if body and not request.has_body:
        return f"a request with code={request:d} has no body"
    return None
