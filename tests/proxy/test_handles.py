"""Receipt handles: round trips, expiry, and texts that are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import StatusError
from orbitmq.message.pop import Receipt
from orbitmq.proxy.handles import NO_LOG_OFFSET, Handle, check_log_offset, handle_text, parse_handle, valid_handle
from orbitmq.wire.v2.enums import Code

TEXT = "100 1700000000000 60000 3 0 broker-a 2 117 4096"
INT32S = st.integers(0, (1 << 31) - 1)
INT64S = st.integers(0, (1 << 63) - 1)
BROKERS = st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1, max_size=255)
RECEIPTS = st.builds(Receipt, INT64S, INT64S, INT64S, INT32S, st.sampled_from("012"), BROKERS, INT32S, INT64S)


@given(st.builds(Handle, RECEIPTS, st.just(NO_LOG_OFFSET) | INT64S))
def test_round_trip(handle: Handle) -> None:
    assert parse_handle(handle.encode()) == handle
    assert Receipt.decode(handle.encode()) == handle.receipt, "brokers read it as a receipt"


def test_an_example() -> None:
    handle = parse_handle(TEXT)
    assert handle == (Receipt(100, 1_700_000_000_000, 60_000, 3, "0", "broker-a", 2, 117), 4096)
    assert handle_text(handle.receipt.encode(), 4096) == TEXT
    assert not handle.is_orderly
    assert parse_handle(TEXT.replace(" 3 0 ", " 999 0 ")).is_orderly


def test_a_handle_expires_with_its_invisible_time() -> None:
    assert valid_handle(TEXT, 1_700_000_059_999).log_offset == 4096
    with pytest.raises(StatusError, match="expired") as raised:
        valid_handle(TEXT, 1_700_000_060_000)
    assert raised.value.code == Code.INVALID_RECEIPT_HANDLE


def test_a_handle_without_log_offset_forwards_nothing() -> None:
    check_log_offset(parse_handle(TEXT))
    short = parse_handle(TEXT.rpartition(" ")[0])
    assert short.log_offset == NO_LOG_OFFSET
    with pytest.raises(StatusError):
        check_log_offset(short)


BAD = [
    "",
    " ",
    TEXT + " ",
    TEXT + " 1",
    " " + TEXT,
    TEXT.replace(" ", "  ", 1),
    TEXT.replace("broker-a", ""),
    TEXT.replace("broker-a", "a\x00b"),
    TEXT.replace("broker-a", "x" * 256),
    TEXT.replace("4096", "-2"),
    TEXT.replace("4096", "4096\n"),
    TEXT.replace("100 ", "-1 "),
    TEXT.replace("100 ", "+1 "),
    TEXT.replace("100 ", "١ "),
    TEXT.replace("100 ", "1_0 "),
    TEXT.replace(" 0 ", " 3 "),
    TEXT.replace("117", "9223372036854775808"),
    TEXT.replace(" 2 117", " 2147483648 117"),
    "1 " * 8,
    "9" * 100_000,
]


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_what_is_no_handle_is_refused_briefly(text: str) -> None:
    with pytest.raises(StatusError) as raised:
        parse_handle(text)
    assert raised.value.code == Code.INTERNAL_SERVER_ERROR
    assert len(raised.value.text) < 300


@given(st.text() | st.lists(st.sampled_from([*TEXT.split(" "), "-1", "x", ""])).map(" ".join))
def test_any_text_is_a_handle_or_refused(text: str) -> None:
    try:
        handle = parse_handle(text)
    except StatusError:
        return
    assert parse_handle(handle.encode()) == handle
