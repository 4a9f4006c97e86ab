"""Remembers the brokers that were registered recently: a name server forgets a broker that dies, but sums must not
shrink because of that.

`compared` decides without I/O. Knows no requests and no data of brokers.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from orbitmq.runtime.clock import Clock, SystemClock
from orbitmq.runtime.files import keep_aside, replace_text

KEEP_MS = 72 * 3_600_000
"""How long a broker that disappeared counts as missed: RocketMQ's default retention. By then its messages would have
expired on a running broker, too."""
REFRESH_MS = 30_000
"""The file is written when brokers appear or disappear, and else at this interval: the precision of `last seen`."""
BROKERS_MAX = 2000
"""Of one set of name servers; those that were seen last stay. 200 bytes each."""
FILES_MAX = 100
"""Sets of name servers; those that were used last stay."""
FILE_BYTES_MAX = 4 << 20
"""A larger file was not written here."""
LOCK_SECONDS = 1.0
"""Another command holds the lock for milliseconds; without it the file is read and not written."""
_LOCK_AGAIN_SECONDS = 0.01


class Remembered(Struct, frozen=True, rename="camel"):
    """A broker as the name servers report it."""

    cluster: str
    name: str
    id: int
    """0 is the master."""
    address: str
    seen_at_ms: int = 0
    """When it was last seen registered."""

    @property
    def place(self) -> tuple[str, str, int]:
        return self.cluster, self.name, self.id

    @property
    def title(self) -> str:
        """`broker-a` for a master, `broker-a:1` for a slave."""
        return self.name if self.id == 0 else f"{self.name}:{self.id}"


class _File(Struct, rename="camel"):
    """The content of a file."""

    name_servers: list[str]
    brokers: list[Remembered]


def compared(
    known: Collection[Remembered], registered: Collection[Remembered], now_ms: int, keep_ms: int = KEEP_MS
) -> tuple[list[Remembered], list[Remembered]]:
    """The entries to remember, and the brokers missed for less than `keep_ms`, by name. Others are kept for the default
    time, for callers with a longer `keep_ms`.

    A broker whose address is registered under the same name with another id is not missed: its role has changed. The
    master whose place it took is, if that is not registered, until a new replica makes up for it.
    """
    here = {one.place: replace(one, seen_at_ms=now_ms) for one in registered}
    addresses = {(one.name, one.address) for one in registered}
    before, places = {(one.name, one.address) for one in known}, {one.place for one in known}
    new = Counter(one.name for one in registered if one.place not in places and (one.name, one.address) not in before)
    missed = []
    for one in known:
        holder = here.get(one.place)
        if (one.name, one.address) in addresses or now_ms - one.seen_at_ms >= max(keep_ms, KEEP_MS):
            continue
        if holder is None:
            missed.append(one)
        elif (one.name, holder.address) in before:
            if new[one.name] == 0:
                missed.append(one)
            else:
                new[one.name] -= 1
    missed = sorted(missed, key=lambda one: -one.seen_at_ms)[: max(0, BROKERS_MAX - len(here))]
    missed.sort(key=lambda one: one.place)
    return [*here.values(), *missed], [one for one in missed if now_ms - one.seen_at_ms < keep_ms]


def forgotten(known: Collection[Remembered], name: str) -> tuple[list[Remembered], list[Remembered]]:
    """What is left without the broker of this name, all its ids, or `name:id`, and what is forgotten."""
    removed = [one for one in known if name in (one.name, f"{one.name}:{one.id}")]
    return [one for one in known if one not in removed], removed


class Memory:
    """Memory of one process, for its lifetime. With `keep_ms` 0 no broker is missed."""

    def __init__(self, *, keep_ms: int = KEEP_MS, clock: Clock | None = None) -> None:
        self.keep_ms = keep_ms
        self._clock = clock or SystemClock()
        self._known: list[Remembered] = []

    async def look(self, registered: Collection[Remembered]) -> list[Remembered]:
        """Remember these brokers and return the remembered ones that are away."""
        self._known, away = compared(self._known, registered, self._clock.now_ms(), self.keep_ms)
        return away

    async def forget(self, name: str) -> list[Remembered]:
        """Remove the broker `name` or `name:id`; returns what was recorded about it."""
        self._known, removed = forgotten(self._known, name)
        return removed

    async def known(self) -> list[Remembered]:
        """Everything that is remembered."""
        return list(self._known)


class StoredMemory(Memory):
    """The same in a file of `folder`, one for each set of name servers, for all commands and processes of a user.

    Where the file cannot be read or written, it is what this process remembers.
    """

    def __init__(
        self, folder: Path, name_servers: Sequence[str], *, keep_ms: int = KEEP_MS, clock: Clock | None = None
    ) -> None:
        super().__init__(keep_ms=keep_ms, clock=clock)
        self._name_servers = sorted(set(name_servers))
        digest = hashlib.sha256("\n".join(self._name_servers).encode()).hexdigest()
        self.path = folder / f"{digest[:16]}.json"
        self._is_alone = False
        """The file could not be written last time."""

    async def look(self, registered: Collection[Remembered]) -> list[Remembered]:
        return await asyncio.to_thread(self._look, registered)

    async def forget(self, name: str) -> list[Remembered]:
        return await asyncio.to_thread(self._forget, name)

    async def known(self) -> list[Remembered]:
        return await asyncio.to_thread(self._read)

    def _look(self, registered: Collection[Remembered]) -> list[Remembered]:
        now_ms = self._clock.now_ms()
        with self._locked() as mine:
            before = self._read()
            self._known, away = compared(before, registered, now_ms, self.keep_ms)
            self._is_alone = not mine or (_worth_writing(before, self._known, now_ms) and not self._write())
        return away

    def _forget(self, name: str) -> list[Remembered]:
        with self._locked() as mine:
            self._known, gone = forgotten(self._read(), name)
            self._is_alone = not mine or (bool(gone) and not self._write())
        return gone

    def _read(self) -> list[Remembered]:
        """A file that is damaged holds nothing: it is written anew."""
        if self._is_alone:
            return self._known
        try:
            with self.path.open("rb") as file:
                found = msgspec.json.decode(file.read(FILE_BYTES_MAX), type=_File)
        except FileNotFoundError:
            return self._known
        except (msgspec.MsgspecError, UnicodeDecodeError):
            with contextlib.suppress(OSError):  # another command has removed it, or the directory is not writable
                keep_aside(self.path, "cannot be read")
            return self._known
        except OSError:
            return self._known
        return found.brokers[:BROKERS_MAX] if found.name_servers == self._name_servers else []

    def _write(self) -> bool:
        """Not on a full or read-only disk."""
        text = msgspec.json.format(msgspec.json.encode(_File(self._name_servers, self._known)), indent=1).decode()
        is_new = not self.path.exists()
        try:
            replace_text(self.path, text + "\n")
            if is_new:
                self._clear()
        except OSError:
            return False
        return True

    def _clear(self) -> None:
        """Remove files of name servers that were not used for long."""
        files = sorted(self.path.parent.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in files[:-FILES_MAX]:
            path.unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[bool]:
        """Whether no other process writes at the same time."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self.path.parent / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            yield False
            return
        try:
            yield _has_lock(descriptor)
        finally:
            os.close(descriptor)


def _has_lock(descriptor: int) -> bool:
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(_LOCK_AGAIN_SECONDS)
        except OSError:  # a file system without locks
            return False
        else:
            return True


def _worth_writing(before: Collection[Remembered], after: Collection[Remembered], now_ms: int) -> bool:
    if {(one.place, one.address) for one in before} != {(one.place, one.address) for one in after}:
        return True
    written = {one.place: one.seen_at_ms for one in before}
    return any(one.seen_at_ms - written[one.place] >= REFRESH_MS for one in after if one.seen_at_ms == now_ms)
