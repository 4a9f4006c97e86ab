"""Where reading begins and ends, and what a message is in a format of one's own."""

from __future__ import annotations

import pytest

from orbitmq.admin.bodies import BodyForm, shown
from orbitmq.admin.tailing import Place, Stop, place_of, stop_of, writer
from orbitmq.errors import AdminError, ConfigurationError
from orbitmq.message.model import MessageExt

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("-10", Place(last=10)),
        ("begin", Place()),
        ("end", Place(last=0)),
        ("offset:5", Place(offset=5)),
        ("@2h", Place(at_ms=NOW_MS - 7_200_000)),
        ("1650000000000", Place(at_ms=1_650_000_000_000)),
    ],
)
def test_places(text: str, place: Place) -> None:
    assert place_of(text, NOW_MS) == place


def test_what_is_no_place() -> None:
    with pytest.raises(AdminError, match="no point in time"):
        place_of("yesterday", NOW_MS)
    with pytest.raises(ConfigurationError, match="at most the last 10000"):
        place_of("-10001", NOW_MS)


def test_stops() -> None:
    assert stop_of(None, NOW_MS) == Stop()
    assert stop_of("end", NOW_MS) == Stop(at_end=True)
    assert stop_of("@1h", NOW_MS) == Stop(at_end=True, at_ms=NOW_MS - 3_600_000)
    assert stop_of(str(NOW_MS + 5), NOW_MS) == Stop(at_ms=NOW_MS + 5)


MESSAGE = shown(
    MessageExt(
        "Orders", b"hello", 0, {"KEYS": "a b", "TAGS": "red"}, broker_name="broker-a", queue_id=3, queue_offset=17,
        store_timestamp=5, msg_id="A1",
    )
)  # fmt: skip


def test_a_format_is_filled_in() -> None:
    assert writer("%T %k %t %v %i %b %p %o %s %S%%\\n\\t\\\\\\x")(MESSAGE) == (
        "Orders a b red hello A1 broker-a 3 17 5 5%\n\t\\\\x"
    )
    assert writer("%v")(shown(MessageExt("T", b"%k"))) == "%k", "what is filled in is no format"
    assert writer("%v|%t|%S")(shown(MessageExt("T", b"x"), None)) == "||0"
    assert writer("%v")(shown(MessageExt("T", b"\xff"), BodyForm.HEX)) == "ff"


@pytest.mark.parametrize("pattern", ["%x", "abc%", "%k %\n"])
def test_a_field_that_is_none_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigurationError, match="is no field of a format"):
        writer(pattern)
