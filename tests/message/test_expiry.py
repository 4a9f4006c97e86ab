"""Until when a message is worth consuming."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from orbitmq.errors import MessageIllegal
from orbitmq.message.expiry import expires_at_ms, is_expired, split_expired, with_expiry
from orbitmq.message.model import Message

NOON = datetime(2027, 1, 1, 12, tzinfo=UTC)
NOON_MS = 1_798_804_800_000


def expiring(at: str) -> Message:
    return Message("T", b"x", properties={"EXPIRES_AT_MS": at})


@pytest.mark.parametrize("at", [NOON, NOON.astimezone(timezone(timedelta(hours=3)))])
def test_a_message_expires_at_a_time(at: datetime) -> None:
    message = Message("T", b"x", expires_at=at)
    assert message.properties["EXPIRES_AT_MS"] == str(NOON_MS)
    assert [is_expired(message, NOON_MS + more) for more in (-1, 0, 1)] == [False, True, True]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, 1_005_000),
        ({"deliver_after": 60}, 1_065_000),
        ({"deliver_at": datetime.fromtimestamp(2000, UTC)}, 2_005_000),
        ({"deliver_at": datetime.fromtimestamp(999, UTC)}, 1_005_000),  # is delivered at once
    ],
)
def test_a_span_counts_from_delivery(more: dict[str, Any], expected: int) -> None:
    message = Message("T", b"x", expires_after=timedelta(seconds=5), **more)
    sent = with_expiry(message.properties, 1_000_000)
    assert expires_at_ms(sent) == expected
    assert "EXPIRES_AFTER_MS" not in sent
    assert "EXPIRES_AFTER_MS" in message.properties  # so that it may be sent again


@pytest.mark.parametrize("text", ["", "soon", "-1", "1.5", "²", "9" * 19])
def test_what_is_no_time_never_expires(text: str) -> None:
    message = Message("T", b"x")
    message.properties["EXPIRES_AT_MS"] = text
    assert not is_expired(message, 1 << 62)


def test_messages_that_do_not_expire_are_not_copied() -> None:
    plain = [Message("T", b"x"), expiring("11")]
    assert split_expired(plain, 10)[0] is plain
    assert split_expired([*plain, expiring("10")], 10)[0] == plain
    assert [one.properties["EXPIRES_AT_MS"] for one in split_expired([*plain, expiring("10")], 10)[1]] == ["10"]


@pytest.mark.parametrize(
    "given",
    [
        {"expires_at": datetime(2027, 1, 1)},  # noqa: DTZ001
        {"expires_at": 5},
        {"expires_after": -1},
        {"expires_after": True},
        {"expires_after": "1"},
        {"expires_after": 1, "expires_at": NOON},
        {"expires_after": 1, "delay_level": 3},
    ],
)
def test_what_is_no_time_to_expire_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(MessageIllegal, match="expires_a"):
        Message("T", b"x", **given)
