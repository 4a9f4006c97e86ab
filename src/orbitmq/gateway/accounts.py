"""The account of a request: Basic authentication, of which the brokers check the signatures. Pure."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Final

from orbitmq.gateway.problems import Refused
from orbitmq.wire.signature import Credentials

PART_LENGTH_MAX: Final = 256  # of access key and secret; those of RocketMQ's tools are shorter


def account_of(header: str | None) -> Credentials | None:
    """The account in an Authorization header; None without one. Refused for what is no Basic authentication."""
    if header is None:
        return None
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        raise Refused(401, f"the authentication scheme {scheme[:20]!r} is not known here", "use Basic authentication")
    try:
        text = b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise Refused(401, "the Basic authentication is not base64 of UTF-8 text") from error
    access_key, separator, secret = text.partition(":")
    if not separator or not access_key or not secret:
        raise Refused(401, "the Basic authentication lacks an access key or a secret", "send access key:secret")
    if max(len(access_key), len(secret)) > PART_LENGTH_MAX or not text.isprintable():
        raise Refused(401, "no account has such an access key or secret")
    return Credentials(access_key, secret)
