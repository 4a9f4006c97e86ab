"""Where reading begins and ends, what a message is in a format of one's own, and that an outage loses nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from orbitmq.admin import scan, topic_tail
from orbitmq.admin.bodies import BodyForm, shown
from orbitmq.admin.results import Failure
from orbitmq.admin.scan import MessageFilter
from orbitmq.admin.session import Session
from orbitmq.admin.topic_tail import TailEnd, TailStart, place_of, stop_of, tail, writer
from orbitmq.errors import AdminError, ConfigurationError
from orbitmq.message.model import MessageExt
from orbitmq.message.properties import encode_properties
from orbitmq.net.connection import Connection
from orbitmq.net.remoting import Remoting
from orbitmq.net.routing import Answer
from orbitmq.wire.command import Command
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import FakeSystem, fake_system, refuse

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("-10", TailStart(last=10)),
        ("begin", TailStart()),
        ("end", TailStart(last=0)),
        ("offset:5", TailStart(offset=5)),
        ("@2h", TailStart(at_ms=NOW_MS - 7_200_000)),
        ("1650000000000", TailStart(at_ms=1_650_000_000_000)),
    ],
)
def test_places(text: str, place: TailStart) -> None:
    assert place_of(text, NOW_MS) == place


def test_what_is_no_place() -> None:
    with pytest.raises(AdminError, match="no point in time"):
        place_of("yesterday", NOW_MS)
    with pytest.raises(ConfigurationError, match="at most the last 10000"):
        place_of("-10001", NOW_MS)


def test_stops() -> None:
    assert stop_of(None, NOW_MS) == TailEnd()
    assert stop_of("end", NOW_MS) == TailEnd(at_end=True)
    assert stop_of("@1h", NOW_MS) == TailEnd(at_end=True, at_ms=NOW_MS - 3_600_000)
    assert stop_of(str(NOW_MS + 5), NOW_MS) == TailEnd(at_ms=NOW_MS + 5)


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
    with pytest.raises(ConfigurationError, match="is not a field of a format"):
        writer(pattern)


@asynccontextmanager
async def orders(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeSystem]:
    """One queue of a hundred messages; who does not answer is asked again at once."""
    monkeypatch.setattr(scan, "PAUSE_S", 0.0)
    async with fake_system() as fake:
        fake.topics["Orders"] = 1
        for number in range(100):
            fake.put("Orders", 0, b"%d" % number, encode_properties({"TAGS": "red"}))
        yield fake


END = TailEnd(at_end=True)


async def tailed(
    system: FakeSystem, place: TailStart, *, number: int | None = None, text: str | None = None
) -> tuple[list[bytes], list[Failure], list[str]]:
    failures: list[Failure] = []
    warnings: list[str] = []
    remoting = Remoting()
    read = tail(
        Session(remoting, [system.address]),
        "Orders",
        place,
        END if number is None else TailEnd(),
        MessageFilter(text=text),
        number=number,
        on_failure=failures.append,
        on_warning=warnings.append,
    )
    bodies = [message.body async for message in read]
    await remoting.close()
    return bodies, failures, warnings


ALL = [b"%d" % number for number in range(100)]


async def test_a_broker_that_fails_while_its_queue_is_read_is_read_on_from_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = 0

    def second_fails(_: Connection, command: Command) -> Answer:
        nonlocal asked
        asked += 1
        return command.response(1, "no") if asked == 2 else None

    async with orders(monkeypatch) as system:
        system.answers[RequestCode.PULL_MESSAGE] = second_fails
        bodies, failures, _ = await tailed(system, TailStart(), number=100)
        assert bodies == ALL
        assert [failure.name for failure in failures] == ["SYSTEM_ERROR"]


async def test_a_queue_whose_limits_nobody_tells_at_first_is_followed_as_soon_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with orders(monkeypatch) as system:
        system.answers[RequestCode.GET_MAX_OFFSET] = refuse(1, times=3)
        bodies, failures, _ = await tailed(system, TailStart(), number=100)
        assert bodies == ALL
        assert [failure.name for failure in failures] == ["SYSTEM_ERROR"], "an outage is told once"
        system.answers[RequestCode.GET_MAX_OFFSET] = refuse(1, times=1)
        assert (await tailed(system, TailStart(offset=98), number=2))[0] == ALL[98:]


async def test_the_last_ones_are_looked_for_within_a_budget_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_tail, "BUDGET", 40)
    told = "of the newest 40 messages 1 match; older ones were not read"
    async with orders(monkeypatch) as system:
        bodies, _, warnings = await tailed(system, TailStart(last=10), text="65")
        assert (bodies, warnings) == ([b"65"], [f"{told}: --from with a time or an offset has no such limit"])
        assert (await tailed(system, TailStart(last=3)))[::2] == (ALL[97:], [])
