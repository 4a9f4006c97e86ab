"""Incomplete frames of all connections together have a limit; frames on their way never meet it."""

from __future__ import annotations

import pytest

from orbitmq.net.budget import COUNTED_FROM, FrameBudget
from orbitmq.net.routing import Router
from orbitmq.wire.command import request
from orbitmq.wire.frame import encode_frame
from tests.support.loops import LoopFactory, until
from tests.support.peers import bare_peer, serving

ECHO = 10
SIZE = 8 * COUNTED_FROM


def desk() -> Router:
    router = Router("desk")
    router.add(ECHO, lambda _, command: command.response(0))
    return router


def test_what_is_given_back_may_be_taken_again() -> None:
    budget = FrameBudget(100)
    assert budget.change(0, 60)
    assert not budget.change(0, 41)
    assert budget.change(41, 0)
    assert budget.change(60, 100)
    assert budget.change(100, 90), "less is never too much"
    assert budget.taken == 90


async def test_the_peer_that_goes_beyond_what_all_may_hold_is_cut_off(
    both_loops: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(desk()) as (server, address):
        server._budget = budget = FrameBudget(SIZE)
        frame = encode_frame(request(ECHO, body=bytes(SIZE)))
        half = len(frame) * 3 // 4
        async with bare_peer(address) as first, bare_peer(address) as second:
            first.writer.write(frame[:half])
            await until(lambda: budget.taken == half)
            second.writer.write(frame[:half])
            assert await second.is_closed()
            assert "event=too_many_bytes_pending" in caplog.text
            await until(lambda: budget.taken == half)
            first.writer.write(frame[half:])
            assert (await first.read()).code == 0
            assert budget.taken == 0
            first.writer.write(frame[:half])
            await until(lambda: budget.taken == half)
        await until(lambda: budget.taken == 0)


async def test_small_rests_of_frames_are_not_counted(both_loops: LoopFactory) -> None:
    async with serving(desk()) as (server, address), bare_peer(address) as peer:
        server._budget = budget = FrameBudget(0)
        frame = encode_frame(request(ECHO, body=bytes(COUNTED_FROM // 2)))
        peer.writer.write(frame[:-1])
        await peer.writer.drain()
        peer.writer.write(frame[-1:])
        assert (await peer.read()).code == 0
        assert budget.taken == 0
