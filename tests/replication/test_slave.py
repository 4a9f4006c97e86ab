"""The slave's end of a connection, with a store that has no room."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from orbitmq.broker.election.roles import FOLLOW_AGAIN_SECONDS
from orbitmq.errors import LogsDiffer
from orbitmq.replication.protocol import HEAD
from orbitmq.replication.slave import BACKLOG_MAX, NO_ROOM_SECONDS, PIECE_BYTES, Following, FollowingState, MasterLink
from orbitmq.store.options import StoreOptions
from orbitmq.store.replica import ReplicaStore
from tests.support.loops import LoopFactory, turned_loop, until

HEARTBEAT, SILENCE = 5.0, 20.0


class FullStore:
    """Takes nothing while it is full."""

    def __init__(self) -> None:
        self.is_full = True
        self.copied_to = self.safe_to = 0

    def copy(self, offset: int, data: memoryview, _at_once: bool) -> bool:
        if offset != self.copied_to:
            raise LogsDiffer(f"{offset} does not follow")
        if not self.is_full:
            self.copied_to = self.safe_to = offset + len(data)
        return not self.is_full


class Wire(asyncio.Transport):
    """Keeps what is written, and whether anybody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.is_read, self.is_over = True, False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def is_closing(self) -> bool:
        return self.is_over

    def abort(self) -> None:
        self.is_over = True


def connected(store: FullStore) -> tuple[MasterLink, Wire]:
    link, wire = MasterLink(cast("ReplicaStore", store), FollowingState()), Wire()
    link.connection_made(wire)
    return link, wire


def pieces(size: int, each: int = 1 << 20) -> bytes:
    return b"".join(HEAD.pack(place, each) + bytes(each) for place in range(0, size, each))


async def test_a_master_that_is_not_read_is_not_silent(turned_clock: LoopFactory) -> None:
    """It may not send anything; and when it is read again it has all the time to do so."""
    loop, store = turned_loop(), FullStore()
    link, wire = connected(store)
    link.data_received(pieces(BACKLOG_MAX + (1 << 20)))
    assert not wire.is_read, "no more is taken than there is room for"
    for _ in range(10):
        await loop.turn(10)
        link.look(loop.time(), HEARTBEAT, SILENCE)
    assert not link.ended.done()
    assert len(wire.written) > 5, "it is told that this end is there"
    store.is_full = False
    await loop.turn(NO_ROOM_SECONDS)
    await until(lambda: wire.is_read and not link._waiting, "all is copied")
    link.look(loop.time(), HEARTBEAT, SILENCE)
    assert not link.ended.done(), "what it has said meanwhile comes only now"
    await loop.turn(SILENCE + 1)
    link.look(loop.time(), HEARTBEAT, SILENCE)
    assert "silent for 21 s" in str(link.ended.result())
    assert wire.is_over


async def test_a_master_that_says_nothing_is_given_up_though_something_waits_for_room(
    turned_clock: LoopFactory,
) -> None:
    loop = turned_loop()
    link, wire = connected(FullStore())
    link.data_received(pieces(1 << 20))
    assert wire.is_read
    await loop.turn(SILENCE + 1)
    link.look(loop.time(), HEARTBEAT, SILENCE)
    assert isinstance(link.ended.result(), TimeoutError)


@pytest.mark.parametrize("content", [b"", b"x"], ids=["signs of life", "single bytes"])
async def test_a_master_that_sends_next_to_nothing_fills_no_memory(turned_clock: LoopFactory, content: bytes) -> None:
    loop, store = turned_loop(), FullStore()
    link, wire = connected(store)
    some = 4096
    place = 0
    for _ in range(BACKLOG_MAX // (PIECE_BYTES + len(content)) // some + 1):
        assert wire.is_read
        data = b"".join(HEAD.pack(place + number * len(content), len(content)) + content for number in range(some))
        place += some * len(content)
        link.data_received(data)
    assert not wire.is_read, "what waits costs memory, however few bytes it has"
    store.is_full = False
    await loop.turn(NO_ROOM_SECONDS)
    await until(lambda: wire.is_read and not link._waiting, "all is copied")
    assert link._waiting_bytes == 0
    assert store.copied_to == place


@pytest.mark.parametrize(
    ("pause_max_s", "attempts_min", "attempts_max"), [(FOLLOW_AGAIN_SECONDS, 80, 120), (5.0, 4, 8)]
)
async def test_a_slave_pauses_before_it_connects_again(
    turned_clock: LoopFactory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, pause_max_s: float,
    attempts_min: int, attempts_max: int,
) -> None:  # fmt: skip
    """A new master that was elected waits for its slaves with every send, and an absent one can wait for them."""
    attempts, unused = 0, cast("Any", None)
    following = Following(
        cast("ReplicaStore", FullStore()), StoreOptions(), unused, lambda: "h:2", unused, unused,
        pause_max_seconds=pause_max_s,
    )  # fmt: skip

    async def follow() -> None:
        nonlocal attempts
        attempts += 1
        raise ConnectionError("it is not there yet")

    monkeypatch.setattr(following, "_follow", follow)
    following.start()
    for _ in range(100):
        await turned_loop().turn(0.1)
    await following.stop()
    assert attempts_min <= attempts <= attempts_max
    assert caplog.text.count("it is not there yet") == 1, "one line for one fact"
