"""The form of a signed administrative request: the fields of its own header, and a body only if the request has one.

A 4.x signature covers the concatenated values of the fields and the body, but neither field names nor the code. An
attacker who records a signed request can send its values under another code, and hide the superfluous ones in fields
that no handler reads. So requests that can do much harm must not have unknown fields. Whether their own fields are
present and valid is for the handler. Must not know accounts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orbitmq.wire.request import Request
from orbitmq.wire.signature import ACCESS_KEY, SIGNATURE

_TRUTHS: Final = frozenset({"true", "false"})
_OF_EVERY_REQUEST: Final[Mapping[str, frozenset[str]]] = {"ReqT": frozenset({"0"}), "oway": _TRUTHS, "lo": _TRUTHS}
"""Fields that clients may add to any request, with values too few to hide something in."""
_SHOWN_MAX: Final = 64  # characters of a field's name in a response


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
