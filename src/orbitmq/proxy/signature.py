"""The header `authorization` of a RocketMQ 5 client: which account signed a request, and whether with its secret. Pure.

    MQv2-HMAC-SHA1 Credential=<access key>[/...], SignedHeaders=x-mq-date-time, Signature=<hex>

The signed content is the text of the header x-mq-date-time, in whatever form and time zone the client writes it;
neither method nor message are signed. No representation and no error contains a secret or a signature.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from typing import Final

from orbitmq.errors import StatusError
from orbitmq.wire.v2.enums import Code

ALGORITHM: Final = "MQv2-HMAC-SHA1"
HEADER_LENGTH_MAX: Final = 4096  # an access key, region and service names, and 40 digits
SHOWN_MAX: Final = 40


@dataclass(frozen=True, slots=True)
class Authorization:
    """An account, and its signature as the client wrote it."""

    access_key: str
    signature: str = field(repr=False)


def parse_authorization(header: str) -> Authorization:
    """StatusError for a header that is not of the form above, or names no account."""
    algorithm, _, rest = header[:HEADER_LENGTH_MAX].partition(" ")
    if algorithm != ALGORITHM:
        raise _refused(f"the header authorization begins with {algorithm[:SHOWN_MAX]!r}, not with {ALGORITHM}")
    parts: dict[str, str] = {}
    for part in rest.split(","):
        name, _, value = part.strip().partition("=")
        parts[name] = value
    access_key = parts.get("Credential", "").partition("/")[0]
    signature = parts.get("Signature", "")
    if not access_key or not signature or len(header) > HEADER_LENGTH_MAX:
        raise _refused("the header authorization names no account or no signature")
    return Authorization(access_key, signature)


def signature_of(date_time: str, secret: bytes) -> str:
    """Lower-case hex of the HMAC-SHA1."""
    return hmac.digest(secret, date_time.encode(errors="replace"), "sha1").hex()


def is_signed_with(authorization: Authorization, date_time: str, secret: bytes) -> bool:
    """Whether the request was signed with this secret; takes the same time for any wrong signature."""
    given = authorization.signature.lower().encode(errors="replace")
    return hmac.compare_digest(given, signature_of(date_time, secret).encode())


def _refused(reason: str) -> StatusError:
    return StatusError(Code.UNAUTHORIZED, f"{reason}: give the client an access key and its secret")
