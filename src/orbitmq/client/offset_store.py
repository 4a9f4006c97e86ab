"""Where a consumer stores its offsets: at the brokers if the group shares its queues, else in a file.

Both keep a table in memory and store it regularly. Knows no listener.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Iterable
from pathlib import Path
from typing import Protocol

from orbitmq.client.core.offsets import OffsetTable, decode_file, encode_file
from orbitmq.client.core.retry import BROKER_MISSING
from orbitmq.client.instance import Instance
from orbitmq.errors import ClientError, OrbitMQError
from orbitmq.message.model import MessageQueue
from orbitmq.operations import offsets as operations
from orbitmq.runtime.files import load_with_backup, save_with_backup

_log = logging.getLogger(__name__)


class OffsetStore(Protocol):
    """Offsets of one group. `table` holds the current ones; the store lags by at most one interval."""

    table: OffsetTable

    async def open(self) -> None:
        """Load the stored offsets. StoreDamaged or ClientError when they cannot be used."""

    async def stored(self, queue: MessageQueue) -> int:
        """The stored offset, -1 when there is none. BrokerError, ClientError or RemotingError when it is unknown."""

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Store the offsets of these queues. Does not raise: a failure is logged, and the next call repairs it."""

    async def commit(self, queues: Collection[MessageQueue]) -> None:
        """Store the offsets of these queues and wait for the confirmation; an error is raised."""

    async def release(self, queue: MessageQueue) -> None:
        """Store the offset of a queue that another member gets, and forget it. A failure is logged, not raised."""

    def close(self) -> None:
        """Release the file."""


class BrokerOffsets:
    """Offsets of a clustering group, kept by each queue's broker."""

    def __init__(self, instance: Instance, group: str) -> None:
        self.table = OffsetTable()
        self._instance = instance
        self._group = group
        self._begun: set[tuple[str, str]] = set()
        """Broker name and topic of which the broker has confirmed an offset of this group."""

    async def open(self) -> None:
        """Nothing to load before a queue is requested."""

    async def stored(self, queue: MessageQueue) -> int:
        offset = await operations.query_consumer_offset(
            self._instance.remoting, await self._address(queue), self._group, queue
        )
        if offset is None:
            return -1
        self.table.learn(queue, offset)  # reading the lag of a running consumer must not undo its progress
        return offset

    async def _address(self, queue: MessageQueue) -> str:
        """The master, else any broker of that name. Slaves have offsets as of a few seconds ago, and keep those
        committed while their master is down; those of orbitmq report them when it returns.
        """
        try:
            return await self._instance.routes.master(queue)
        except ClientError:
            addresses = self._instance.routes.addresses(queue.broker_name)
            if not addresses:
                raise
            return next(iter(addresses.values()))

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        ahead, rest = self._in_turn(self.table.own(queues))
        await asyncio.gather(*(self._store(queue, self._commit) for queue in ahead))
        await asyncio.gather(*(self._store(queue, self._commit_oneway) for queue in rest))

    def _in_turn(self, queues: Iterable[MessageQueue]) -> tuple[list[MessageQueue], list[MessageQueue]]:
        """The queues whose offsets are sent first, and the rest. A RocketMQ broker loses one of two first offsets of a
        group and topic that arrive at the same time: the first one is acknowledged before the others are sent.
        """
        first: dict[tuple[str, str], MessageQueue] = {}
        rest: list[MessageQueue] = []
        for queue in queues:
            place = (queue.broker_name, queue.topic)
            if place in self._begun or place in first:
                rest.append(queue)
            else:
                first[place] = queue
        return list(first.values()), rest

    async def _store(self, queue: MessageQueue, commit: Callable[[MessageQueue], Awaitable[None]]) -> None:
        try:
            await commit(queue)
        except OrbitMQError as error:
            text = "event=offset_not_stored group=%s queue=%s offset=%d error=%s"
            _log.warning(text, self._group, queue, self.table.read(queue), error)

    async def commit(self, queues: Collection[MessageQueue]) -> None:
        outcomes: list[BaseException | None] = []
        for batch in self._in_turn(self.table.own(queues)):
            outcomes += await asyncio.gather(*map(self._commit, batch), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _commit(self, queue: MessageQueue) -> None:
        address = await self._address(queue)
        for offset in self._own(queue):
            await operations.update_consumer_offset(self._instance.remoting, address, self._group, queue, offset)
            self._begun.add((queue.broker_name, queue.topic))

    async def _commit_oneway(self, queue: MessageQueue) -> None:
        address = await self._address(queue)
        for offset in self._own(queue):
            await operations.update_consumer_offset_oneway(self._instance.remoting, address, self._group, queue, offset)

    def _own(self, queue: MessageQueue) -> Collection[int]:
        """The offset to send now. While others were sent it may have risen, or its queue may have been given up: an
        older one would undo the progress of whoever has committed since.
        """
        return self.table.own([queue]).values()

    async def release(self, queue: MessageQueue) -> None:
        await self.persist([queue])
        self.table.forget(queue)

    def close(self) -> None:
        """Nothing is held."""


class FileOffsets:
    """Offsets of a broadcasting consumer, in the file Java's client would use.

    `<root>/<ip>@<instance name>/<group>/offsets.json`. The name of the instance in it is the configured one, so that
    the file is found again after a restart. Two consumers may not share a file; the second one is refused.
    """

    def __init__(self, root: str, owner: str, group: str) -> None:
        self.table = OffsetTable()
        self._path = Path(root).expanduser() / owner / group / "offsets.json"
        self._lock: int | None = None
        self._written: dict[MessageQueue, int] = {}
        """What the file holds."""
        self._writing = asyncio.Lock()

    async def open(self) -> None:
        await asyncio.to_thread(self._open)

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise ClientError(
                BROKER_MISSING,
                f"another broadcasting consumer keeps its offsets in {self._path}; set an instance_name for this one",
            ) from error
        self._written = load_with_backup(self._path, decode_file) or {}
        self.table = OffsetTable(self._written)

    async def stored(self, queue: MessageQueue) -> int:
        return self.table.read(queue)

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Replaces the file; it holds these queues only, as Java's does."""
        try:
            async with self._writing:
                await self._write(self.table.of(queues))
        except OSError as error:
            _log.warning("event=offsets_not_stored path=%s error=%s", self._path, error)

    async def commit(self, queues: Collection[MessageQueue]) -> None:
        """Changes these queues in the file and keeps the others."""
        async with self._writing:
            await self._write({**self._written, **self.table.of(queues)})

    async def _write(self, found: dict[MessageQueue, int]) -> None:
        if found and found != self._written:
            await asyncio.to_thread(save_with_backup, self._path, encode_file(found))
            self._written = found

    async def release(self, queue: MessageQueue) -> None:
        """A queue without readers keeps its offset: it may come back."""

    def close(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)
