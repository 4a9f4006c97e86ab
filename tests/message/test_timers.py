"""Times that senders name, and handles that recall their messages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import MessageIllegal
from orbitmq.message.model import Message
from orbitmq.message.timers import RecallHandle, due_ms, requested_ms

NAMES = st.text(st.characters(codec="utf-8", exclude_characters=" "), min_size=1, max_size=40)


@given(NAMES, NAMES, st.integers(0, (1 << 63) - 1), NAMES)
def test_a_handle_comes_back_as_it_was(topic: str, broker: str, due: int, unique_id: str) -> None:
    handle = RecallHandle(topic, broker, due, unique_id)
    assert RecallHandle.decode(handle.encode()) == handle


def test_the_handle_of_rocketmq() -> None:
    text = "djEgVCBicm9rZXItYSAxNzk1OTI2NDExMDAxIEMwMDAwMjAyNTlCRTJDMzI1NzdEOTEyNjVBMEYwMDAx"
    expected = ("T", "broker-a", 1795926411001, "C000020259BE2C32577D91265A0F0001")
    assert RecallHandle.decode(text) == expected
    assert RecallHandle(*expected).encode() == text


@pytest.mark.parametrize("text", ["", "x", "djEgVCBi", "djIgYSBiIDEgYw==", "djEgYSBiIHggYw==", "ü"])
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(MessageIllegal):
        RecallHandle.decode(text)


def test_a_wrong_time_of_a_handle_is_called_that() -> None:
    with pytest.raises(MessageIllegal, match=r"^the time in the recall handle must be a whole number, it is 'x'$"):
        RecallHandle.decode("djEgYSBiIHggYw==")


def test_which_time_counts() -> None:
    """As in RocketMQ 5: seconds before milliseconds before the absolute time; none for one that waited."""
    now_ms = 1_000_000
    all_three = {"TIMER_DELIVER_MS": "7", "TIMER_DELAY_MS": "5", "TIMER_DELAY_SEC": "3"}
    assert requested_ms(all_three, now_ms) == now_ms + 3000
    del all_three["TIMER_DELAY_SEC"]
    assert requested_ms(all_three, now_ms) == now_ms + 5
    del all_three["TIMER_DELAY_MS"]
    assert requested_ms(all_three, now_ms) == 7
    assert requested_ms({}, now_ms) is None
    assert requested_ms({**all_three, "TIMER_OUT_MS": "1"}, now_ms) is None
    assert requested_ms({"TIMER_DELAY_MS": "+5"}, now_ms) == now_ms + 5


def test_when_a_waiting_message_is_due() -> None:
    """RocketMQ rounds down to seconds: the time that was asked for is not forgotten."""
    assert due_ms({"TIMER_OUT_MS": "999"}.get) == 1000
    assert due_ms({"TIMER_OUT_MS": "1000", "TIMER_DELIVER_MS": "1743"}.get) == 1743
    assert due_ms({"TIMER_OUT_MS": "soon"}.get) is None
    assert due_ms({}.get) is None


def test_a_message_names_its_time() -> None:
    at = datetime(2027, 1, 1, tzinfo=UTC)
    assert Message("t", b"b", deliver_at=at).properties["TIMER_DELIVER_MS"] == "1798761600000"
    assert Message("t", b"b", deliver_after=timedelta(minutes=1)).properties["TIMER_DELAY_MS"] == "60000"
    assert Message("t", b"b", deliver_after=0.25).properties["TIMER_DELAY_MS"] == "250"


@pytest.mark.parametrize(
    "wrong",
    [
        {"deliver_at": datetime(2027, 1, 1)},  # noqa: DTZ001 - that it has no zone is the fault
        {"deliver_at": 5},
        {"deliver_after": -1},
        {"deliver_after": float("nan")},
        {"deliver_after": "1"},
        {"deliver_after": 1, "delay_level": 1},
        {"deliver_after": 1, "deliver_at": datetime(2027, 1, 1, tzinfo=UTC)},
    ],
)
def test_a_wrong_time_is_named(wrong: dict[str, object]) -> None:
    with pytest.raises(MessageIllegal, match="deliver_a"):
        Message("t", b"b", **wrong)  # type: ignore[arg-type]
