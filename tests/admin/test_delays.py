"""Timer messages are listed by pages of times, of which many may be equal."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from orbitmq.admin.delays import PAGE, PAGE_MAX, timers
from orbitmq.admin.results import Result
from orbitmq.admin.session import Session
from orbitmq.net.connection import Connection
from orbitmq.net.remoting import Remoting
from orbitmq.wire.bodies import PendingTimer, PendingTimers
from orbitmq.wire.command import Command
from orbitmq.wire.headers_timer import PendingTimersHeader
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import fake_system

MIDNIGHT = 1_700_000_000_000


async def listed(dues: Sequence[int], limit: int) -> Result[int]:
    """The times of the messages that are listed of a broker where messages wait for `dues`, with the warnings."""
    waiting = [PendingTimer(due, place) for place, due in enumerate(dues)]

    def pending(_: Connection, command: Command) -> Command:
        header = command.header(PendingTimersHeader)
        page = [one for one in waiting if one.due_ms >= header.due_ms][: min(header.limit, PAGE_MAX)]
        return command.response(0, body=encode(PendingTimers(len(waiting), True, page)))

    remoting = Remoting()
    async with fake_system() as system:
        system.answers[RequestCode.GET_PENDING_TIMERS] = pending
        found = await timers(Session(remoting, [system.address]), limit)
    await remoting.close()
    return Result([one.due_at_ms for one in found.items], found.warnings, found.failures)


@pytest.mark.parametrize("together", [PAGE - 1, PAGE, PAGE + 1, PAGE_MAX - 1])
async def test_messages_of_one_time_are_all_listed(together: int) -> None:
    dues = [MIDNIGHT - 1, *[MIDNIGHT] * together, MIDNIGHT + 1]
    found = await listed(dues, 5000)
    assert (found.items, found.warnings, found.failures) == (dues, [], [])


async def test_what_a_broker_cannot_list_is_warned_of() -> None:
    dues = [*[MIDNIGHT] * (PAGE_MAX + 1), MIDNIGHT + 1]
    found = await listed(dues, 5000)
    assert found.items == [*[MIDNIGHT] * PAGE_MAX, MIDNIGHT + 1]
    assert found.warnings == [f"broker-a lists {PAGE_MAX} messages of one time at most; {len(dues)} wait there"]
    assert (await listed(dues, PAGE_MAX)).warnings == []
