"""The table of all targets."""

from __future__ import annotations

from fuzz import admin, disks, http2, records, streams, texts, traces
from fuzz.promise import Target

TARGETS: dict[str, Target] = {
    target.name: target for room in (streams, http2, records, texts, admin, traces, disks) for target in room.TARGETS
}
