"""Settings as the body of UPDATE_BROKER_CONFIG, GET_BROKER_CONFIG and their name-server twins: properties text.

Java writes `key=value` lines without escaping but reads them with the full rules of properties files, byte by byte
as ISO-8859-1. Must not know any setting.
"""

from __future__ import annotations

import io
from collections.abc import Mapping

import javaproperties

from orbitmq.errors import BodyError

SIZE_MAX = 64 << 10  # bytes; all options of a broker with their values have a tenth of that
CONTINUED_MAX = 100  # lines that end with a backslash: each costs the reader as much as all before it together


def encode_settings(pairs: Mapping[str, str]) -> bytes:
    """One line a pair."""
    return "".join(f"{key}={value}\n" for key, value in pairs.items()).encode()


def decode_settings(body: bytes) -> dict[str, str]:
    """Read the lines; BodyError when they are no properties text, or so long that reading them would take a second."""
    if len(body) > SIZE_MAX:
        raise BodyError(f"the settings have {len(body)} bytes, at most {SIZE_MAX} are read")
    if body.count(b"\\\n") + body.count(b"\\\r") > CONTINUED_MAX:
        raise BodyError(f"the settings have more than {CONTINUED_MAX} lines that go on in the next")
    try:
        return dict(javaproperties.load(io.BytesIO(body)))
    except (ValueError, UnicodeError) as error:
        raise BodyError(f"the settings are no properties text: {error}") from error
