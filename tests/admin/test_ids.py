"""A pasted id is taken for what it can be, and tells what it holds."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.admin.ids import IdKind, StoredPlace, identify
from orbitmq.message.hosts import encode_host
from orbitmq.message.ids import UniqueIds, offset_message_id

NOW_MS = 1_700_000_000_000
IPS = {"127.0.0.1": bytes([127, 0, 0, 1]), "fd00::1": bytes.fromhex("fd00") + bytes(13) + b"\x01"}


@pytest.mark.parametrize("host", IPS)
def test_an_offset_id_tells_broker_and_place(host: str) -> None:
    found = identify(f"  {offset_message_id(encode_host(host, 10911), 123_456)}\n", NOW_MS, UTC)
    assert found.kind is IdKind.OFFSET
    assert found.place == StoredPlace(host, 10911, 123_456)
    assert found.place.address == (f"[{host}]:10911" if ":" in host else f"{host}:10911")


@pytest.mark.parametrize("host", IPS)
def test_a_unique_id_tells_who_made_it_and_when(host: str) -> None:
    text = UniqueIds(IPS[host], 4711, b"\xca\xfe\xba\xbe", UTC).create(NOW_MS - 5000)
    found = identify(text, NOW_MS, UTC)
    assert (found.kind, found.place) == (IdKind.UNIQUE, None)
    assert found.made
    assert (found.made.ip, found.made.pid, found.made.created_at_ms) == (host, 4711, NOW_MS - 5000)


def test_an_id_of_last_month_is_not_dated_into_the_future() -> None:
    made_ms = int(datetime(2023, 10, 30, tzinfo=UTC).timestamp() * 1000)
    found = identify(UniqueIds(IPS["127.0.0.1"], 1, bytes(4), UTC).create(made_ms), NOW_MS, UTC)
    assert found.made
    assert found.made.created_at_ms == made_ms


@pytest.mark.parametrize(
    "text", ["order-17", "", "7F000001", "550e8400-e29b-41d4-a716-446655440000", "z" * 32, "f" * 32]
)  # fmt: skip
def test_anything_else_is_a_key(text: str) -> None:
    found = identify(text, NOW_MS)
    assert (found.kind, found.place, found.made) == (IdKind.KEY, None, None)


def test_what_would_be_the_port_tells_the_two_apart() -> None:
    """Process 1 of a producer and the port 65,537 of a broker are the same bytes: such a port cannot be."""
    assert identify("7F0000010001000000000000000A0000", NOW_MS).kind is IdKind.UNIQUE
    assert identify("7F0000010000271F00000000000000FF", NOW_MS).kind is IdKind.OFFSET


@given(st.text(max_size=60) | st.text("0123456789abcdefABCDEF", min_size=32, max_size=32))
def test_no_text_is_too_strange(text: str) -> None:
    assert identify(text, NOW_MS).text == text.strip()
