"""Brokers that were registered lately are missed: until they come back, are forgotten, or it is too long ago."""

from __future__ import annotations

import asyncio
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from orbitmq.admin import memory
from orbitmq.admin.memory import BROKERS_MAX, KEEP_MS, Memory, Remembered, StoredMemory, compared

A, B = (Remembered("C", f"broker-{letter}", 0, f"h:{port}") for letter, port in (("a", 1), ("b", 2)))
SLAVE = Remembered("C", "broker-a", 1, "h:3")
SERVERS = ("n:1", "n:2")


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.at_ms = 1_000_000_000

    def now_ms(self) -> int:
        return self.at_ms


def look(mine: Memory, *registered: Remembered) -> list[str]:
    return [one.title for one in asyncio.run(mine.look(registered))]


def test_a_broker_that_is_gone_is_missed_until_it_is_back_or_it_is_too_long_ago() -> None:
    clock = Clock()
    mine = Memory(clock=clock)
    assert look(mine, A, B, SLAVE) == []
    clock.at_ms += KEEP_MS - 1
    (away,) = asyncio.run(mine.look([A, SLAVE]))
    assert (away.title, away.address, away.seen_at_ms) == ("broker-b", "h:2", 1_000_000_000)
    assert look(mine, A) == ["broker-a:1", "broker-b"]
    assert look(mine, A, replace(B, address="h:9"), SLAVE) == [], "it is back, elsewhere"
    clock.at_ms += KEEP_MS
    assert look(mine, A) == []
    assert look(Memory(keep_ms=0), A, B) == look(Memory(keep_ms=0), A) == []


def test_a_slave_that_became_the_master_has_not_gone_but_that_one_has() -> None:
    known, away = compared([A, SLAVE], [replace(A, address=SLAVE.address)], 5)
    assert [(one.title, one.address) for one in away] == [("broker-a", A.address)]
    known, away = compared(known, [replace(A, address=SLAVE.address)], 6)
    assert [(one.title, one.address) for one in away] == [("broker-a", A.address)]
    assert compared(known, [replace(A, address=SLAVE.address), replace(SLAVE, address=A.address)], 7)[1] == []
    assert compared(known, [replace(A, address=SLAVE.address), replace(SLAVE, address="h:9")], 7)[1] == []
    assert compared(known, [replace(A, address="h:9")], 7)[1] == [], "moved to another machine"


def test_another_broker_at_the_address_of_a_slave_is_no_new_master() -> None:
    _, away = compared([A, SLAVE], [replace(B, address=SLAVE.address)], 5)
    assert [one.title for one in away] == ["broker-a", "broker-a:1"], "another one has its address"


def test_no_more_brokers_are_remembered_than_a_name_server_may_have_known() -> None:
    many = [replace(A, name=f"broker-{number}", seen_at_ms=number) for number in range(BROKERS_MAX + 5)]
    known, away = compared(many, [B], BROKERS_MAX, KEEP_MS)
    assert (len(known), len(away)) == (BROKERS_MAX, BROKERS_MAX - 1)
    assert min(one.seen_at_ms for one in away) == 6, "those seen last stay"


def test_what_one_command_saw_the_next_one_knows(tmp_path: Path) -> None:
    clock = Clock()
    folder = tmp_path / "orbitmq" / "brokers"
    assert look(StoredMemory(folder, SERVERS, clock=clock), A, B) == []
    other = StoredMemory(folder, [*reversed(SERVERS), "n:1"], clock=clock)
    assert look(other, A) == ["broker-b"]
    assert look(StoredMemory(folder, ["n:1"], clock=clock), A) == [], "other name servers, another cluster"
    assert stat.S_IMODE(other.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [one.title for one in asyncio.run(other.forget("broker-b"))] == ["broker-b"]
    assert asyncio.run(other.forget("broker-b")) == []
    assert look(StoredMemory(folder, SERVERS, clock=clock), A) == []


def test_the_file_is_written_when_something_changes_and_else_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    real = memory.replace_text
    monkeypatch.setattr(memory, "replace_text", lambda path, text: (written.append(text), real(path, text)))
    clock = Clock()
    for registered, later_ms, writes in (
        ([A, B], 0, 1), ([A, B], 1000, 1), ([A], 1000, 1), ([A], memory.REFRESH_MS, 2), ([A, B, SLAVE], 0, 3)
    ):  # fmt: skip
        clock.at_ms += later_ms
        look(StoredMemory(tmp_path, SERVERS, clock=clock), *registered)
        assert len(written) == writes
    assert "broker-a" in written[-1]


def test_commands_that_look_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    ours = [replace(A, name=f"broker-{number:02}", address=f"h:{number}") for number in range(20)]
    with ThreadPoolExecutor(8) as beside:
        list(beside.map(lambda one: look(StoredMemory(tmp_path, SERVERS), one), ours))
    assert look(StoredMemory(tmp_path, SERVERS)) == [one.name for one in ours]
    assert sorted(path.suffix for path in tmp_path.iterdir()) == ["", ".json"], "nothing is left beside"


@pytest.mark.parametrize("text", ["", "{", '{"nameServers": 1}', "\x00" * 100, '{"nameServers":["x"],"brokers":[]}'])
def test_a_damaged_file_is_written_anew(tmp_path: Path, text: str) -> None:
    mine = StoredMemory(tmp_path, SERVERS)
    mine.path.write_text(text)
    assert look(mine, A, B) == []
    assert look(StoredMemory(tmp_path, SERVERS), A) == ["broker-b"]
    kept = [path.read_text() for path in tmp_path.glob("*.damaged-*")]
    assert kept == ([] if text.endswith("[]}") else [text]), "one of other name servers is whole"


def test_where_nothing_can_be_written_the_process_remembers(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    mine = StoredMemory(tmp_path / "file" / "brokers", SERVERS)
    assert look(mine, A, B) == []
    assert look(mine, A) == ["broker-b"]


def test_name_servers_that_nobody_asks_any_more_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "FILES_MAX", 3)
    for number in range(5):
        look(StoredMemory(tmp_path, [f"n:{number}"]), A, B)
    assert len(list(tmp_path.glob("*.json"))) == 3
    assert look(StoredMemory(tmp_path, ["n:4"]), A) == ["broker-b"]
