"""The JSON output: one object per run, the same for every kind.

Must not know a terminal or a page. A field that ends in `AtMs` is a point in time, in milliseconds since 1970, and has
an RFC 3339 twin: `storedAtMs` and `storedAt`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from orbitmq.admin.results import Result

API_VERSION = "orbitmq/v1"
INSTANT = "AtMs"
FORMER_KEYS = {
    "ClusterHealth": {"check": "rule"},
    "Examination": {"check": "rule"},
    "GroupDiagnosis": {"sentence": "message", "command": "remedy"},
}
"""Kind -> former key of its items -> the key it is now. Both are written; do not use the former in new scripts."""
_YEAR_10000_MS = 253_402_300_800_000
RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
"""What `rfc3339` makes, or looks so, within a sentence."""


def envelope(kind: str, found: Result[Any], cluster: str | None, now_ms: int) -> dict[str, Any]:
    """`found` as plain objects. Unknown values are null."""
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "cluster": cluster,
        "generatedAtMs": now_ms,
        "generatedAt": rfc3339(now_ms),
        "partial": found.partial,
        "items": [plain(item, kind) for item in found.items],
        "warnings": list(found.warnings),
        "errors": [plain(failure) for failure in found.failures],
    }


def plain(item: Any, kind: str | None = None) -> Any:
    """An item as dicts, lists, text and numbers, points in time in both forms, with the former keys of its kind."""
    shown = _with_times(msgspec.to_builtins(item, str_keys=True))
    for former, key in FORMER_KEYS.get(kind or "", {}).items():
        shown[former] = shown[key]
    return shown


def _with_times(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_times(one) for one in value]
    if not isinstance(value, dict):
        return value
    shown: dict[str, Any] = {}
    for key, one in value.items():
        shown[key] = _with_times(one)
        if key.endswith(INSTANT) and (one is None or isinstance(one, int)):
            shown[key.removesuffix("Ms")] = None if one is None else rfc3339(one)
    return shown


def at_ms_of(text: str) -> int | None:
    """The time that `rfc3339` made a text of; None for a text that only looks like it."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return None


def rfc3339(at_ms: int) -> str | None:
    """`2026-11-21T10:00:00.000Z`; None for a time no calendar has, as a damaged message may carry one."""
    if not 0 <= at_ms < _YEAR_10000_MS:
        return None
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
