"""Times in mqadmin commands. Knows no command."""

from __future__ import annotations

import re
from datetime import datetime

TO_THE_END = -1
"""The time of `now` in requests to a broker: after the last message."""
_FORM = re.compile(r"(\d{4}-\d\d-\d\d)#(\d\d:\d\d:\d\d):(\d{3})")


def timestamp_ms(text: str) -> int | None:
    """`now`, milliseconds, or `yyyy-MM-dd#HH:mm:ss:SSS` in local time; None for anything else."""
    if text == "now":
        return TO_THE_END
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    try:
        return int(datetime.fromisoformat(f"{found[1]}T{found[2]}.{found[3]}").timestamp() * 1000)
    except ValueError:
        return None
