"""Signatures of requests: Apache RocketMQ's access control of 4.x, both ends of it.

Content is the values of all header fields in the order of their keys, then the body, without a border between any two;
the signature is the Base64 text of its HMAC-SHA1. Neither the code nor the names of fields are in it, nor a time or a
number. Pure; must not know accounts, nor which request needs a signature.
"""

from __future__ import annotations

import hmac
from binascii import b2a_base64
from collections.abc import Mapping
from dataclasses import dataclass, field

from orbitmq.wire.command import Command

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105 - the name of the field
LATE_FIELDS = frozenset({"_UNIQUE_KEY_QUERY", "__ZONE_NAME", "__ZONE_MODE"})
"""Fields that some clients add after signing: the flag of a search by unique key (clients before 4.9.4; later ones sign
it, which brokers 4.9.7 refuse and 5.3.3 require, so clients with an account leave it out), and the zone of a 5.x
client. They name no topic and no group.
"""


@dataclass(frozen=True)
class Credentials:
    """An account's credentials. No representation contains the secret."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)


def sign(command: Command, credentials: Credentials) -> None:
    """Put access key and signature over everything else onto a request; an older signature is replaced."""
    ext = {} if command.ext is None else command.ext
    ext[ACCESS_KEY] = credentials.access_key
    if credentials.security_token:
        ext[SECURITY_TOKEN] = credentials.security_token
    ext[SIGNATURE] = signature_of(signed_content(ext, command.body), credentials.secret_key.encode())
    command.ext = ext


def signed_fields(command: Command, secret: bytes) -> Mapping[str, str] | None:
    """The fields that the request's signature covers; None if it was not made with this secret. Takes the same time for
    any wrong signature.
    """
    ext = command.ext or {}
    given = ext.get(SIGNATURE)
    if given is None:
        return None
    if _matches(given, signed_content(ext, command.body), secret):
        return ext
    if LATE_FIELDS.isdisjoint(ext):
        return None
    without = {key: value for key, value in ext.items() if key not in LATE_FIELDS}
    return without if _matches(given, signed_content(without, command.body), secret) else None


def _matches(given: str, content: bytes, secret: bytes) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), signature_of(content, secret).encode())


def signed_content(ext: Mapping[str, str], body: bytes) -> bytes:
    """The signed bytes. A field without value counts as empty: binary headers cannot distinguish the two."""
    order = sorted(ext) if all(map(str.isascii, ext)) else sorted(ext, key=_utf16)
    text = "".join([ext[key] for key in order if key != SIGNATURE])
    return text.encode(errors="replace") + body  # as Java encodes unpaired surrogates


def _utf16(key: str) -> bytes:
    """Java compares strings by UTF-16 code units, Python by code points; they differ beyond the basic plane."""
    return key.encode("utf-16-be", errors="surrogatepass")


def signature_of(content: bytes, secret: bytes) -> str:
    """Base64 of HMAC-SHA1, as the protocol has it."""
    return b2a_base64(hmac.digest(secret, content, "sha1"), newline=False).decode()
