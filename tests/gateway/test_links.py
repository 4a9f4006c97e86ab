"""Connections by account: how many there are, and when they are closed. No broker is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from orbitmq.gateway import links as module
from orbitmq.gateway.links import UNPROVEN_EACH_MAX, Links
from orbitmq.gateway.problems import Refused
from orbitmq.wire.signature import Credentials
from tests.support.loops import until

PEER, OTHER = "10.0.0.1", "10.0.0.2"


@asynccontextmanager
async def links() -> AsyncIterator[Links]:
    made = Links(["127.0.0.1:1"], {"tls": False})
    made.start()
    try:
        yield made
    finally:
        await made.stop()


def account(number: int) -> Credentials:
    return Credentials(f"account {number}", "secret")


async def test_an_account_has_one_link_and_another_secret_another_one() -> None:
    async with links() as made, made.use(account(1), PEER) as first, made.use(account(1), OTHER) as second:
        assert first is second
        async with made.use(Credentials("account 1", "another"), PEER) as third, made.use(None, PEER) as fourth:
            assert len({id(one) for one in (first, third, fourth)}) == 3
        assert len(made) == 3


async def test_accounts_that_no_broker_has_accepted_are_few_at_a_time() -> None:
    async with links() as made, AsyncExitStack() as stack:
        for number in range(UNPROVEN_EACH_MAX):
            await stack.enter_async_context(made.use(account(number), PEER))
        with pytest.raises(Refused) as caught:
            await stack.enter_async_context(made.use(account(99), PEER))
        assert (caught.value.status_code, made.refused) == (429, 1)
        await stack.enter_async_context(made.use(account(99), OTHER))
        await stack.enter_async_context(made.use(account(0), PEER))
        await stack.enter_async_context(made.use(None, PEER))


async def test_a_link_that_is_not_used_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)
    async with links() as made:
        async with made.use(account(1), PEER) as used:
            async with made.use(account(2), PEER) as link:
                assert len(made) == 2
            await until(lambda: len(made) == 1)
            await until(lambda: not link.is_running)
            assert used.is_running
        await until(lambda: len(made) == 0)


async def test_the_link_that_is_idle_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINKS_MAX", 2)
    async with links() as made, made.use(account(1), PEER):
        async with made.use(account(2), PEER):
            pass
        async with made.use(account(3), PEER):
            assert len(made) == 2
            with pytest.raises(Refused) as caught:
                await made.use(account(4), PEER).__aenter__()
            assert caught.value.status_code == 503


async def test_an_account_that_brokers_refuse_has_no_link_afterwards() -> None:
    async with links() as made:
        async with made.use(account(1), PEER) as link:
            await made.refuse(account(1), PEER)
            assert len(made) == 1, "another request uses it"
        await made.refuse(account(1), PEER)
        assert len(made) == 0
        await until(lambda: not link.is_running)
