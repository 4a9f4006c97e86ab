"""Promises of what reads traces of messages; alone, for its room makes every process that imports it start slowly."""

from __future__ import annotations

from collections.abc import Iterator

from fuzz.promise import Target, is_refused, outcome
from orbitmq.client.core.trace import decode_trace, encode_record
from orbitmq.errors import BodyError


def check_trace(data: bytes) -> None:
    records = outcome(BodyError, lambda: decode_trace(data))
    if is_refused(records):
        return
    text = "".join(map(encode_record, records))
    assert decode_trace(text.encode()) == records


def _trace_seeds() -> Iterator[bytes]:
    fields = {"Pub": 14, "SubBefore": 8, "SubAfter": 9, "EndTransaction": 13}
    for kind, count in fields.items():
        for value in ("1", "null", "true"):
            yield "\x01".join([kind, *[value] * count]).encode() + b"\x02"


TARGETS = (
    Target(
        "trace", "records or BodyError; written again they read the same", check_trace, _trace_seeds, 15,
        (b"Pub\x01", b"SubBefore\x01", b"SubAfter\x01", b"EndTransaction\x01", b"\x02", b"null"),
    ),
)  # fmt: skip
