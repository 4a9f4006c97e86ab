"""A topic a page at a time: every message once, in order, whatever comes meanwhile; budgets end a page, no search."""

from __future__ import annotations

import base64
import os
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from orbitmq.admin import message_pages
from orbitmq.admin.message_pages import PageCursor, Paged, PageRequest, page, read, written
from orbitmq.admin.scan import MessageFilter
from orbitmq.admin.session import Session
from orbitmq.errors import AdminError, NotFound
from orbitmq.message.properties import encode_properties
from orbitmq.net.remoting import Remoting
from orbitmq.wire.headers import Boundary, SearchOffsetResponseHeader
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import FakeSystem, fake_system, refuse, silence

TOPIC = "Orders"


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[FakeSystem, Session]]:
    async with fake_system() as system:
        system.topics[TOPIC] = 3
        remoting = Remoting()
        yield system, Session(remoting, [system.address])
        await remoting.close()


def fill(system: FakeSystem, count: int, first: int = 0) -> list[str]:
    names = [f"m{number}" for number in range(first, first + count)]
    for number, name in enumerate(names):
        system.put(TOPIC, number % 3, name.encode(), encode_properties({"TAGS": "even" if number % 2 == 0 else "odd"}))
        queue = system.messages[TOPIC, number % 3]
        queue[-1] = replace(queue[-1], store_timestamp=1000 + first + number, physical_offset=first + number)
    return names


def bodies(made: Paged) -> list[str]:
    return [one.body.decode() for one in made.found.items]


async def all_pages(session: Session, asked: PageRequest, **options: object) -> list[Paged]:
    pages, mark = [], None
    while True:
        made = await page(session, asked, mark=mark, **options)  # type: ignore[arg-type]
        pages.append(made)
        if made.following is None:
            return pages
        mark = read(made.following)


@pytest.mark.parametrize("newest_first", [True, False])
async def test_pages_give_every_message_once_in_order(*, newest_first: bool) -> None:
    async with opened() as (system, session):
        names = fill(system, 50)
        pages = await all_pages(session, PageRequest(TOPIC), newest_first=newest_first, limit=7)
        found = [one for made in pages for one in bodies(made)]
        assert found == (names[::-1] if newest_first else names)
        assert [len(made.found.items) for made in pages] == [7] * 7 + [1]
        assert sum(made.scanned for made in pages) == 50
        assert (pages[0].left, pages[-1].left) == (43, 0)


async def test_what_comes_meanwhile_moves_no_page() -> None:
    async with opened() as (system, session):
        names = fill(system, 20)
        first = await page(session, PageRequest(TOPIC), limit=10)
        fill(system, 20, first=100)
        assert first.following is not None
        second = await page(session, PageRequest(TOPIC), mark=read(first.following), limit=50)
        assert bodies(first) + bodies(second) == names[::-1]


async def test_a_budget_ends_a_page_and_the_next_one_goes_on() -> None:
    async with opened() as (system, session):
        names = fill(system, 60)
        wanted = MessageFilter(text="m1")  # m1, m10 to m19
        pages = await all_pages(session, PageRequest(TOPIC, wanted), newest_first=False, limit=100, budget=15)
        assert [one for made in pages for one in bodies(made)] == [name for name in names if name.startswith("m1")]
        assert pages[0].is_cut
        assert pages[0].scanned == 15
        assert not pages[-1].is_cut


async def test_time_ends_a_page_too() -> None:
    async with opened() as (system, session):
        fill(system, 9)
        system.answers[RequestCode.PULL_MESSAGE] = silence()
        made = await page(session, PageRequest(TOPIC), limit=5, seconds=0.2)
        assert (made.found.items, made.is_cut, made.left) == ([], True, 9)
        assert made.following is not None


async def test_large_bodies_end_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_pages, "PAGE_BYTES_MAX", 6)
    async with opened() as (system, session):
        names = fill(system, 9)
        pages = await all_pages(session, PageRequest(TOPIC), limit=5)
        assert [len(made.found.items) for made in pages] == [3, 3, 3], "each has two bytes"
        assert [made.is_cut for made in pages] == [True, True, True]
        assert [one for made in pages for one in bodies(made)] == names[::-1]


async def test_one_queue_from_an_offset() -> None:
    async with opened() as (system, session):
        fill(system, 30)  # of queue 1: m1, m4, m7...
        forwards = await page(
            session, PageRequest(TOPIC, broker="broker-a", queue_id=1, offset=2), newest_first=False, limit=3
        )
        assert bodies(forwards) == ["m7", "m10", "m13"]
        backwards = await page(session, PageRequest(TOPIC, broker="broker-a", queue_id=1, offset=2), limit=9)
        assert bodies(backwards) == ["m7", "m4", "m1"]
        with pytest.raises(NotFound):
            await page(session, PageRequest(TOPIC, queue_id=7))


async def test_watching_begins_at_the_end_and_passes_over_what_is_too_much() -> None:
    async with opened() as (system, session):
        fill(system, 9)
        begun = await page(session, PageRequest(TOPIC), limit=3)
        assert begun.newest is not None
        quiet = await page(session, PageRequest(TOPIC), mark=read(begun.newest), limit=5, watched=True)
        assert (bodies(quiet), quiet.passed_over) == ([], 0)
        fill(system, 12, first=100)
        assert quiet.following is not None
        some = await page(session, PageRequest(TOPIC), mark=read(quiet.following), limit=5, watched=True)
        assert bodies(some) == [f"m{number}" for number in range(100, 105)]
        assert some.passed_over == 7
        fill(system, 2, first=200)
        assert some.following is not None
        later = await page(session, PageRequest(TOPIC), mark=read(some.following), limit=5, watched=True)
        assert (sorted(bodies(later)), later.passed_over) == (["m200", "m201"], 0)


async def test_a_broker_that_failed_is_read_by_the_next_page() -> None:
    async with opened() as (system, session):
        names = fill(system, 6)
        system.answers[RequestCode.PULL_MESSAGE] = refuse(14)
        broken = await page(session, PageRequest(TOPIC), limit=50)
        assert broken.found.failures
        assert (broken.found.items, broken.left) == ([], 6)
        del system.answers[RequestCode.PULL_MESSAGE]
        assert broken.following is not None
        assert bodies(await page(session, PageRequest(TOPIC), mark=read(broken.following), limit=50)) == names[::-1]


async def test_a_queue_that_nobody_told_of_begins_at_the_time_of_the_others() -> None:
    async with opened() as (system, session):
        names = fill(system, 6)
        at_ms = max(unit.store_timestamp for units in system.messages.values() for unit in units)
        end = SearchOffsetResponseHeader(2, Boundary.LOWER)  # nothing was stored later
        system.answers[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = lambda _, command: command.response(0, header=end)
        mark = PageCursor(newest_first=True, at_ms=at_ms, places={"broker-a": {0: 2, 1: 2}})  # queue 2 is missing
        assert sorted(bodies(await page(session, PageRequest(TOPIC), mark=mark, limit=50))) == sorted(names)


def test_marks_are_short_and_only_ours_are_read() -> None:
    many = PageCursor(
        newest_first=True, at_ms=1, places={"broker-a": {queue: 10_000_000 + queue for queue in range(256)}}
    )
    text = written(many)
    assert text is not None
    assert len(text) < 2000
    assert read(text) == many
    for bad in ("", "x", "é", "AAAA", text[:-9], base64.urlsafe_b64encode(zlib.compress(b"\xc1")).decode()):
        with pytest.raises(AdminError, match="cannot be read"):
            read(bad)
    bomb = base64.urlsafe_b64encode(zlib.compress(bytes(message_pages.MARK_BYTES_MAX * 4))).decode()
    with pytest.raises(AdminError, match="cannot be read"):
        read(bomb)


def test_a_mark_of_too_many_queues_is_none() -> None:
    places = {f"broker-{name}": {queue: int.from_bytes(os.urandom(6)) for queue in range(500)} for name in range(6)}
    assert written(PageCursor(newest_first=True, at_ms=1, places=places)) is None
