"""Waiting for a condition: what is said about it when the time is over."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from orbitmq.admin import wait_conditions
from orbitmq.admin.session import Session
from orbitmq.admin.wait_conditions import CONDITIONS, wait
from orbitmq.errors import AdminError
from orbitmq.net.remoting import Remoting
from tests.support.fake_system import fake_system
from tests.support.loops import JumpingLoop, run

WITHIN_S = 20.0


class Forgetful:
    """A session of which only `forget` is called."""

    def forget(self) -> None: ...


def test_a_check_that_does_not_end_in_time_leaves_the_reason_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = 0

    async def slow_after_the_first(_session: Session, name: str, _number: int | None) -> bool:
        nonlocal checks
        checks += 1
        if checks > 1:
            await asyncio.Event().wait()
        raise AdminError(f"{name} is 3 messages behind")

    monkeypatch.setitem(CONDITIONS, ("group", "lag"), (slow_after_the_first, ""))
    session = cast("Session", Forgetful())
    (waited,) = run(wait(session, "group", "Billing", "lag=0", WITHIN_S), JumpingLoop).items
    (unknown,) = run(wait(session, "group", "Billing", "lag=0", WITHIN_S), JumpingLoop).items
    assert (waited.holds, waited.last, checks) == (False, "Billing is 3 messages behind", 3)
    assert waited.waited_ms == pytest.approx(1000 * WITHIN_S, abs=1000 * wait_conditions.EVERY_SECONDS)
    assert unknown.last == "a query did not end in time"
    assert unknown.waited_ms == pytest.approx(1000 * wait_conditions.FIRST_LOOK_SECONDS_MIN, abs=1000)


async def test_a_topic_exists_when_every_name_server_knows_it_and_is_gone_when_none_does() -> None:
    remoting, looks = Remoting(), (CONDITIONS["topic", "exists"][0], CONDITIONS["topic", "gone"][0])
    async with fake_system() as first, fake_system() as second:
        session = Session(remoting, [first.address, second.address])

        async def held() -> list[bool]:
            return [await look(session, "Orders", None) for look in looks]

        assert await held() == [False, True]
        first.topics["Orders"] = 4
        assert await held() == [False, False]
        second.topics["Orders"] = 4
        assert await held() == [True, False]
        session.cluster = "Other"
        assert await held() == [False, True]
        session.name_servers = (first.address, "127.0.0.1:1")
        with pytest.raises(AdminError, match="not every name server responds"):
            await held()
    await remoting.close()
