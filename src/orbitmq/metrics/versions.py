"""The version numbers of clients and brokers of RocketMQ, as text. Pure."""

from __future__ import annotations

FIRST = 213  # V4_0_0; each release has two numbers, that of its snapshots before its own; ten for each minor


def version_name(number: int) -> str:
    """`v4_9_7` for 407, `v4_9_7_snapshot` for 406, and the number itself before 4.0.0."""
    if number < FIRST:
        return str(number)
    index, is_snapshot = divmod(number - FIRST, 2)
    index += is_snapshot
    major, rest = divmod(index, 100)
    return f"v{4 + major}_{rest // 10}_{rest % 10}{'_snapshot' if is_snapshot else ''}"
