"""A router finds the handler of a code, and makes an answer of whatever goes wrong."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from orbitmq.errors import HeaderError, MessageIllegal, RequestRejected, StorePoisoned
from orbitmq.net.routing import Router
from orbitmq.wire.codes import ResponseCode, SerializeType
from orbitmq.wire.command import Command, request
from orbitmq.wire.requests import RequestCode
from tests.support.loops import settle


def test_a_handler_may_serve_several_codes() -> None:
    router = Router()
    router.add((RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2), print)
    router.add(RequestCode.HEART_BEAT, repr)  # type: ignore[arg-type]
    assert router.handlers == {10: print, 310: print, 34: repr}


@pytest.mark.parametrize("kind", list(SerializeType))
def test_an_unknown_code_is_answered_as_not_supported(kind: SerializeType) -> None:
    asked = request(4711)
    asked.serialize_type = kind
    answer = Router().unsupported(None, asked)  # type: ignore[arg-type]
    assert (answer.code, answer.opaque, answer.serialize_type) == (3, asked.opaque, kind)
    assert answer.is_response
    assert answer.remark is not None
    assert "4711" in answer.remark


@pytest.mark.parametrize(
    ("error", "code", "remark"),
    [
        (RequestRejected(ResponseCode.NO_PERMISSION, "not today"), 16, "not today"),
        (MessageIllegal("too large"), 13, "too large"),
        (StorePoisoned("the disk failed"), 14, "the disk failed"),
        (HeaderError("queueId is missing"), 1, "queueId is missing"),
    ],
)
def test_an_error_of_the_family_answers_with_its_own_code(
    error: Exception, code: int, remark: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        answer = Router().failed(request(10), error)
    assert (answer.code, answer.remark) == (code, remark)
    assert not caplog.records


def test_an_error_of_our_own_making_is_logged_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        answer = Router("broker").failed(request(10), KeyError("queue"))
    assert (answer.code, answer.remark) == (1, "KeyError: 'queue'")
    (record,) = caplog.records
    assert "node=broker code=10" in record.message
    assert record.exc_info is not None


async def test_a_change_that_has_begun_goes_on_when_its_connection_is_lost() -> None:
    router, may_go_on, seen = Router(), asyncio.Event(), []

    async def handler(_: object, command: Command) -> Command:
        seen.append("begun")
        await may_go_on.wait()
        seen.append("done")
        return command.response(ResponseCode.SUCCESS)

    router.add_change(1, handler)
    router.add(2, handler)
    for code in (1, 2):
        asked = asyncio.ensure_future(router.handlers[code](None, request(code)))  # type: ignore[arg-type]
        await settle()
        asked.cancel()
        await settle()
    assert seen == ["begun", "begun"]
    may_go_on.set()
    await router.shielded.settled()
    assert seen == ["begun", "begun", "done"]


def test_a_guard_sees_every_request_also_of_codes_added_later_or_never() -> None:
    seen: list[int] = []

    def check(_connection: object, command: Command) -> None:
        seen.append(command.code)
        if command.code == 13:
            raise RequestRejected(1, "not you")

    router = Router()
    router.add((10, 13), lambda _connection, command: command.response(0))
    router.guard(check)
    router.add(11, lambda _connection, command: command.response(0))
    connection: Any = None
    for code in (10, 11):
        answer = router.handlers[code](connection, request(code))
        assert isinstance(answer, Command)
        assert answer.code == 0
    unknown = router.unsupported(connection, request(12))
    assert isinstance(unknown, Command)
    assert unknown.code == 3
    with pytest.raises(RequestRejected, match="not you"):
        router.handlers[13](connection, request(13))
    assert seen == [10, 11, 12, 13]
