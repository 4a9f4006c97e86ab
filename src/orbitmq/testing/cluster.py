"""Name server and broker on free ports, on an event loop in a thread of their own, with faults and a clock to turn.

Everything here may be called from any thread, and from a coroutine through `asyncio.to_thread` where it takes time.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import uvloop

from orbitmq.broker.broker import Broker
from orbitmq.broker.options import BrokerOptions
from orbitmq.errors import InvalidStateError
from orbitmq.message.config import TopicConfig
from orbitmq.namesrv.options import NamesrvOptions
from orbitmq.namesrv.server import NameServer
from orbitmq.runtime.clock import SystemClock
from orbitmq.store.options import StoreOptions
from orbitmq.testing.faults import Fault, Faults, Kind
from orbitmq.wire.codes import ResponseCode

T = TypeVar("T")

# Small files: a test writes little, and a gigabyte of address space a broker is slow to make and to remove.
SMALL_FILES: Mapping[str, str] = {
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 20_000),
    "maxHashSlotNum": "10000",
    "maxIndexNum": "40000",
}
CALL_SECONDS = 60.0  # for anything asked of the thread: a stop writes everything, and a slow disk takes its time


class ShiftedClock(SystemClock):
    """The machine's clock, and what a test has added."""

    def __init__(self) -> None:
        self.shift_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.shift_ms


class Cluster:
    """One name server and one broker. `with` starts and stops them; keywords are keys of a broker.conf.

    Messages are kept in a directory of their own that goes with the cluster, unless `data_dir` is given. What needs a
    running cluster, or its broker, raises InvalidStateError without.
    """

    def __init__(self, data_dir: Path | str | None = None, **options: object) -> None:
        self._home = Path(data_dir) if data_dir is not None else None
        self._temporary: Path | None = None
        self._options = {**SMALL_FILES, "listenPort": "0", **{key: _text(value) for key, value in options.items()}}
        self._clock = ShiftedClock()
        self._faults = Faults()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._names: NameServer | None = None
        self._broker: Broker | None = None

    # ----------------------------------------------------------------------------------------------------- lifecycle

    def start(self) -> Self:
        """Return when messages can be sent. InvalidStateError when it is started already."""
        if self._thread is not None:
            raise InvalidStateError("the cluster is started already")
        if self._home is None:
            self._home = self._temporary = Path(tempfile.mkdtemp(prefix="orbitmq-testing-"))
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="orbitmq-testing", daemon=True)
        self._thread.start()
        try:
            self._call(self._start())
        except BaseException:
            self._end_thread()
            raise
        return self

    async def _start(self) -> None:
        assert self._home is not None, "a started cluster has a directory"
        home = self._home / "namesrv"
        options = NamesrvOptions(
            listen_port=0,
            kv_config_path=str(home / "kvConfig.json"),
            config_store_path=str(home / "namesrv.properties"),
        )
        self._names = NameServer(options)
        self._faults.install(self._names.router)
        await self._names.start()
        await self._start_broker()

    async def _start_broker(self) -> None:
        assert self._names is not None, "the name server is first"
        assert self._home is not None, "a started cluster has a directory"
        pairs = {
            "storePathRootDir": str(self._home / "store"),
            "brokerFastFailureEnable": "false",  # a busy test machine must not refuse what waited a little
            **self._options,
            "namesrvAddr": self._names.address,
        }
        broker = Broker(
            BrokerOptions.parse(pairs), StoreOptions.parse(pairs), self._clock, presence_clock=SystemClock()
        )
        self._faults.install(broker.router)
        await broker.start()
        self._options["listenPort"] = str(broker.port)  # a broker that comes back is where clients look for it
        self._broker = broker

    def stop(self) -> None:
        """Stop both, and remove what they wrote unless `data_dir` was given."""
        if self._thread is None:
            return
        try:
            self._call(self._stop())
        finally:
            self._end_thread()

    async def _stop(self) -> None:
        if self._broker is not None:
            broker, self._broker = self._broker, None
            await broker.stop()
        if self._names is not None:
            await self._names.stop()

    def _end_thread(self) -> None:
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CALL_SECONDS)
            self._loop.close()
        self._thread = self._loop = None
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._home = self._temporary = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        assert self._loop is not None, "made before the thread"
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _call(self, work: Coroutine[object, object, T]) -> T:
        if self._loop is None:
            work.close()
            raise InvalidStateError("the cluster is not started")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS)

    # ---------------------------------------------------------------------------------------------------- where it is

    @property
    def namesrv_address(self) -> str:
        """`host:port` for producers and consumers."""
        if self._names is None:
            raise InvalidStateError("the cluster is not started")
        return self._names.address

    @property
    def broker_address(self) -> str:
        """`host:port` of the broker. InvalidStateError while it is killed."""
        return self._running.address

    @property
    def _running(self) -> Broker:
        if self._broker is None:
            raise InvalidStateError("the broker is not running")
        return self._broker

    # ------------------------------------------------------------------------------------------------------- contents

    def create_topic(self, name: str, queues: int = 4) -> None:
        """Make a topic before anything is sent to it, so that consumers find it."""

        async def create() -> None:
            self._running.topics.put(TopicConfig(name, queues, queues))
            await self._running.announced()

        self._call(create())

    def message_count(self, topic: str) -> int:
        """How many messages the topic has, whatever was consumed."""

        async def count() -> int:
            store = self._running.store
            return sum(
                store.max_offset(topic, queue_id) - store.min_offset(topic, queue_id)
                for queue_id in store.queue_ids(topic)
            )

        return self._call(count())

    def backlog(self, group: str, topic: str) -> int:
        """How many messages of the topic the group has not acknowledged; retries count for their own topic."""

        async def count() -> int:
            broker = self._running
            store, offsets = broker.store, broker.offsets
            return sum(
                store.max_offset(topic, queue_id) - (offsets.query(group, topic, queue_id) or 0)
                for queue_id in store.queue_ids(topic)
            )

        return self._call(count())

    # ----------------------------------------------------------------------------------------------------------- time

    def advance(self, seconds: float) -> None:
        """Let time pass for messages: delayed ones and retries become due, transactions and files grow older. Clients
        stay what they are; nobody is taken for dead because a test has turned the clock.
        """
        self._clock.shift_ms += round(seconds * 1000)

    # --------------------------------------------------------------------------------------------------------- faults

    def refuse(
        self,
        request: str | int,
        code: int = ResponseCode.SYSTEM_BUSY,
        remark: str = "refused by the test",
        *,
        times: int | None = 1,
        topic: str | None = None,
    ) -> Fault:
        """Answer the next `times` requests with an error; with None all of them until the fault's `end`.

        `request` is "send", "pull", "heartbeat", "commit", "send_back", "route", "end_transaction" or a request code.
        """
        return self._faults.add(Kind.REFUSE, request, times, topic, code=int(code), remark=remark)

    def drop(self, request: str | int, *, times: int | None = 1, topic: str | None = None) -> Fault:
        """Let requests vanish: nothing is done, nothing answered."""
        return self._faults.add(Kind.DROP, request, times, topic)

    def lose_answer(self, request: str | int, *, times: int | None = 1, topic: str | None = None) -> Fault:
        """Do what is asked and let the answer vanish: what makes duplicates."""
        return self._faults.add(Kind.LOSE_ANSWER, request, times, topic)

    def disconnect(self, request: str | int, *, times: int | None = 1, topic: str | None = None) -> Fault:
        """Close the connection instead of doing what is asked."""
        return self._faults.add(Kind.DISCONNECT, request, times, topic)

    def delay(self, request: str | int, seconds: float, *, times: int | None = 1, topic: str | None = None) -> Fault:
        """Do what is asked so much later."""
        return self._faults.add(Kind.DELAY, request, times, topic, seconds=seconds)

    def heal(self) -> None:
        """End every fault; start the broker if it was killed."""
        self._faults.clear()
        if self._broker is None:
            self.restart()

    def kill(self) -> None:
        """End the broker as a crash does: connections break and nobody is told."""

        async def kill() -> None:
            broker, self._broker = self._running, None
            await broker.kill()

        self._call(kill())

    def restart(self) -> None:
        """Start a killed broker on what it left, at the same address. InvalidStateError when it runs."""
        if self._broker is not None:
            raise InvalidStateError("the broker is running")
        self._call(self._start_broker())


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
