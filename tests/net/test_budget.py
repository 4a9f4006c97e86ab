"""Memory that connections take has a limit for all of them together; what is on its way as a rule never meets it."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest

from orbitmq.net.budget import COUNTED_FROM, Budget, Budgets, TurnTime
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Router
from orbitmq.runtime.refusals import Limit, Refusals
from orbitmq.wire.command import Command, request
from orbitmq.wire.frame import encode_frame
from tests.support.loops import LoopFactory, until
from tests.support.peers import bare_peer, serving

ECHO = 10
SIZE = 8 * COUNTED_FROM


def desk() -> Router:
    router = Router("desk")
    router.add(ECHO, lambda _, command: command.response(0))
    return router


class Peer:
    """Holds memory, and gives it back a moment after it was cut off, as a connection does."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_cut_off = False

    def abort(self) -> None:
        self.is_cut_off = True


def test_what_is_given_back_may_be_taken_again() -> None:
    budget, one, other = Budget(100, Limit.OPEN_BYTES, Refusals()), Peer("one"), Peer("other")
    budget.hold(one, 60)
    budget.hold(other, 40)
    budget.hold(one, 0)
    budget.hold(other, 100)
    budget.hold(other, 90)
    assert budget.taken == 90
    assert not one.is_cut_off
    assert not other.is_cut_off


async def test_who_has_much_under_way_is_not_read_from_before_anybody_is_cut_off(both_loops: LoopFactory) -> None:
    """Senders of large messages, while the disk takes none: every message arrives in the end, once."""
    deferred: list[tuple[Connection, Command]] = []

    def defer(connection: Connection, command: Command) -> None:
        connection.defer(command)
        deferred.append((connection, command))

    router = Router("desk")
    router.add(ECHO, defer)
    large = [request(ECHO, body=bytes(600 << 10)) for _ in range(20)]
    async with serving(router) as (server, address), bare_peer(address) as one, bare_peer(address) as other:
        server.budgets.open = budget = Budget(10 << 20, Limit.OPEN_BYTES, Refusals())
        writing = [asyncio.ensure_future(peer.send(*large)) for peer in (one, other)]
        await until(lambda: len(server.connections) == 2)
        await until(lambda: all(c.transport and not c.transport.is_reading() for c in server.connections))
        assert budget.is_tight
        answered = 0
        while answered < 40:
            await until(lambda: deferred)
            connection, command = deferred.pop(0)
            connection.complete(command, command.response(0))
            answered += 1
        await asyncio.gather(*writing)
        for peer in (one, other):
            for _ in range(20):
                assert (await peer.read()).code == 0
        assert budget.taken == 0


def test_who_holds_most_is_cut_off_and_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals()
    budget = Budget(100, Limit.UNREAD_BYTES, refusals)
    small, large, last = Peer("small"), Peer("large"), Peer("last")
    budget.hold(large, 70)
    budget.hold(small, 20)
    budget.hold(last, 30)
    assert (small.is_cut_off, large.is_cut_off, last.is_cut_off) == (False, True, False)
    assert budget.taken == 50
    assert "event=cut_off peer=large holds=unread_bytes bytes=70 all=120 limit=100 refused=1" in caplog.text
    assert refusals.counts[Limit.UNREAD_BYTES] == 1
    budget.hold(large, 0)  # its connection is lost, a turn later
    assert budget.taken == 50
    budget.hold(last, 101)
    assert last.is_cut_off
    assert budget.taken == 20


async def test_the_peer_with_the_largest_incomplete_request_is_cut_off(
    both_loops: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(desk()) as (server, address):
        frame = encode_frame(request(ECHO, body=bytes(SIZE)))
        server.budgets.incomplete = budget = Budget(len(frame), Limit.INCOMPLETE_BYTES, Refusals())
        large, small = len(frame) * 3 // 4, len(frame) // 2
        async with bare_peer(address) as first, bare_peer(address) as second:
            first.writer.write(frame[:large])
            await until(lambda: budget.taken == large)
            second.writer.write(frame[:small])
            assert await first.is_closed()
            assert "event=cut_off" in caplog.text
            await until(lambda: budget.taken == small)
            second.writer.write(frame[small:])
            assert (await second.read()).code == 0
            assert budget.taken == 0
            second.writer.write(frame[:small])
            await until(lambda: budget.taken == small)
        await until(lambda: budget.taken == 0)


async def test_small_rests_of_requests_are_not_counted(both_loops: LoopFactory) -> None:
    async with serving(desk()) as (server, address), bare_peer(address) as peer:
        server.budgets.incomplete = budget = Budget(0, Limit.INCOMPLETE_BYTES, Refusals())
        frame = encode_frame(request(ECHO, body=bytes(COUNTED_FROM // 2)))
        peer.writer.write(frame[:-1])
        await peer.writer.drain()
        peer.writer.write(frame[-1:])
        assert (await peer.read()).code == 0
        assert budget.taken == 0


def test_each_kind_has_a_budget_of_its_own() -> None:
    budgets, peer = Budgets(100), Peer("one")
    for budget in (budgets.incomplete, budgets.open, budgets.unread):
        budget.hold(peer, 90)
    assert not peer.is_cut_off


async def test_connections_share_the_time_of_one_turn() -> None:
    loop, turn = asyncio.get_running_loop(), TurnTime()
    ends = turn.ends(loop, 10.0)
    assert 10.0 < ends < 10.001
    assert turn.ends(loop, 10.0003) == ends, "the second connection has what the first one left"
    await asyncio.sleep(0)
    assert turn.ends(loop, 20.0) > 20.0, "the next turn has time of its own"


async def test_connections_without_time_have_their_turns_in_a_line() -> None:
    """One that is not done goes to the end of it."""
    loop, turn, served = asyncio.get_running_loop(), TurnTime(), list[str]()

    def busy(name: str) -> None:
        served.append(name)
        ends = turn.ends(loop, time.monotonic())
        while time.monotonic() <= ends:
            pass
        if len(served) < 10:
            turn.wait(loop, partial(busy, name))

    for name in "abc":
        turn.wait(loop, partial(busy, name))
    await until(lambda: len(served) >= 10)
    assert "".join(served[:10]) == "abcabcabca"
