"""Points in time as operators write them. Pure; time comes in."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from orbitmq.errors import BadArgument

FORMS = "use 2h or @2h for two hours ago, 2024-05-01T08:00:00Z, 2024-05-01#08:00:00:000, or milliseconds since 1970"
_AGO = re.compile(r"@?(\d+)(ms|s|m|h|d)")
_SPAN = re.compile(r"(\d+)(ms|s|m|h|d)")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_STOCK = "%Y-%m-%d#%H:%M:%S"


def moment_ms(text: str, now_ms: int) -> int:
    """Milliseconds since the epoch: their number, `now`, `2h` or `@2h` (so long ago), RFC 3339 or an ISO date (in
    local time unless it says otherwise), or `yyyy-MM-dd#HH:mm:ss:SSS` in local time, as RocketMQ's tool has it.
    AdminError else.
    """
    text = text.strip()
    if text == "now":
        return now_ms
    if text.isdecimal():
        return int(text)
    ago = _AGO.fullmatch(text)
    if ago:
        return now_ms - int(ago[1]) * _UNITS_MS[ago[2]]
    try:
        return round(_date(text).timestamp() * 1000)
    except ValueError as error:
        raise BadArgument(f"{text!r} is no point in time", FORMS) from error


def span_ms(text: str) -> int:
    """Milliseconds of `72h`, `30m`, `90s`, `3d`, or of 0. AdminError else."""
    found = _SPAN.fullmatch(text.strip())
    if found is None and text.strip() != "0":
        raise BadArgument(f"{text!r} is no span of time", "use 72h, 30m, 90s, 3d, or 0")
    return 0 if found is None else int(found[1]) * _UNITS_MS[found[2]]


def _date(text: str) -> datetime:
    if "#" not in text:
        return datetime.fromisoformat(text)
    seconds, _, milliseconds = text.rpartition(":")
    if text.count(":") < 3:
        seconds, milliseconds = text, "0"
    return datetime.strptime(seconds, _STOCK) + timedelta(milliseconds=int(milliseconds))  # noqa: DTZ007 -- local time
