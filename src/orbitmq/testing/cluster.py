"""A name server and brokers on free ports, on an event loop in a background thread, with faults and a clock to advance.

Call the methods from any thread; in a coroutine use `asyncio.to_thread` for those that block.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import tempfile
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_lowercase
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import uvloop

from orbitmq.broker.broker import Broker
from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.ports import VIP_DISTANCE
from orbitmq.errors import ConfigurationError, InvalidStateError
from orbitmq.message.config import TopicConfig
from orbitmq.message.topic_types import MESSAGE_TYPE, MessageType
from orbitmq.namesrv.options import NamesrvOptions
from orbitmq.namesrv.server import NameServer
from orbitmq.net.tls_options import TlsOptions
from orbitmq.runtime.clock import SystemClock
from orbitmq.store.options import StoreOptions
from orbitmq.testing.faults import Fault, Faults, Kind
from orbitmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from orbitmq.proxy.proxy import Proxy

T = TypeVar("T")

# Small files: a test writes little, and mapping and unmapping a gigabyte for each broker is slow.
SMALL_FILES: Mapping[str, str] = {
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 20_000),
    "maxHashSlotNum": "10000",
    "maxIndexNum": "40000",
}
LOOPBACK = "127.0.0.1"
CALL_SECONDS = 60.0  # for any call to the thread: a stop writes everything, and a disk may be slow


class ShiftedClock(SystemClock):
    """The machine's clock, plus the time that a test has added."""

    def __init__(self) -> None:
        self.shift_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.shift_ms


@dataclass(eq=False)
class _Node:
    """One broker of a cluster, running or killed."""

    directory: str
    options: dict[str, str] = field(default_factory=dict)
    broker: Broker | None = None
    held: list[socket.socket] = field(default_factory=list)
    """Keep its ports while it is killed: an outgoing connection of any process may take a free one."""

    def hold_ports(self, port: int) -> None:
        """Those of clients, of slaves and of the VIP channel. Who connects is refused, as nothing listens."""
        for number in (port, port + 1, port - VIP_DISTANCE):
            one = socket.socket()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.held.append(one)
            with contextlib.suppress(OSError):  # it is held by another one: then the restart says so
                one.bind((LOOPBACK, number))

    def release_ports(self) -> None:
        while self.held:
            self.held.pop().close()


class Cluster:
    """One name server and one broker, or several `brokers`: broker-a, broker-b and so on, each a master.

    `with` starts and stops them. Further keywords are keys of a broker.conf; pass those that are no Python names in
    `options`. With a key that begins with `tls.` the name server and the brokers accept encrypted connections, too.
    With `grpc` clients of RocketMQ 5, which speak gRPC, are served at `grpc_address`.

    Messages are kept in a temporary directory that is removed with the cluster, unless you give a `data_dir`. Methods
    that need a running cluster or broker raise InvalidStateError without one; ConfigurationError for an option or a
    number of brokers that is not allowed.
    """

    def __init__(
        self,
        data_dir: Path | str | None = None,
        *,
        brokers: int = 1,
        grpc: bool = False,
        options: Mapping[str, object] = MappingProxyType({}),
        **more: object,
    ) -> None:
        if not 1 <= brokers <= len(ascii_lowercase):
            raise ConfigurationError(f"a cluster of {brokers} brokers; give 1 to {len(ascii_lowercase)}")
        self._home = Path(data_dir) if data_dir is not None else None
        self._temporary: Path | None = None
        self._options = {
            **SMALL_FILES,
            "listenPort": "0",
            **{
                key: (str(value).lower() if isinstance(value, bool) else str(value))
                for key, value in {**options, **more}.items()
            },
        }
        self._nodes = [_Node("store")] if brokers == 1 else [_named(letter) for letter in ascii_lowercase[:brokers]]
        is_encrypted = any(key.startswith("tls.") for key in self._options)
        self._tls = TlsOptions.parse(self._options) if is_encrypted else None
        self._clock = ShiftedClock()
        self._faults = Faults()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._names: NameServer | None = None
        self._grpc = grpc
        self._proxy: Proxy | None = None

    # ----------------------------------------------------------------------------------------------------- lifecycle

    def start(self) -> Self:
        """Start the cluster; return when messages can be sent. InvalidStateError when it is started already."""
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
        self._names = NameServer(options, tls=self._tls)
        self._faults.install(self._names.router)
        await self._names.start()
        for node in self._nodes:
            await self._start_broker(node)
        if self._grpc:
            self._proxy = await self._started_proxy(self._names.address)

    async def _started_proxy(self, namesrv_address: str) -> Proxy:
        """In front of all brokers; it sees their clock."""
        from orbitmq.proxy.options import ProxyOptions
        from orbitmq.proxy.proxy import Proxy  # it needs Protobuf, which takes 50 ms to import

        options = ProxyOptions(namesrv_addr=namesrv_address, grpc_server_port=0)
        proxy = Proxy(options, clock=self._clock, tls=self._tls)
        await proxy.start()
        return proxy

    async def _start_broker(self, node: _Node) -> None:
        assert self._names is not None, "the name server starts first"
        assert self._home is not None, "a started cluster has a directory"
        pairs = {
            "storePathRootDir": str(self._home / node.directory),
            "brokerFastFailureEnable": "false",  # a busy test machine must not reject requests that waited
            "osPageCacheBusyTimeOutMills": "30000",  # nor its disk messages
            **self._options,
            **node.options,
            "namesrvAddr": self._names.address,
        }
        broker = Broker(
            BrokerOptions.parse(pairs),
            StoreOptions.parse(pairs),
            self._clock,
            presence_clock=SystemClock(),
            tls=self._tls,
        )
        self._faults.install(broker.router, broker.options.broker_name)
        node.release_ports()
        await broker.start()
        node.options["listenPort"] = str(broker.port)  # a restarted broker keeps its address
        node.broker = broker

    def stop(self) -> None:
        """Stop the cluster, and remove its files unless `data_dir` was given."""
        if self._thread is None:
            return
        try:
            self._call(self._stop())
        finally:
            self._end_thread()

    async def _stop(self) -> None:
        if self._proxy is not None:
            proxy, self._proxy = self._proxy, None
            await proxy.stop()
        for node in self._nodes:
            node.release_ports()
            if node.broker is not None:
                broker, node.broker = node.broker, None
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

    # ----------------------------------------------------------------------------------------------------- addresses

    @property
    def namesrv_address(self) -> str:
        """`host:port` for producers and consumers."""
        if self._names is None:
            raise InvalidStateError("the cluster is not started")
        return self._names.address

    @property
    def broker_address(self) -> str:
        """`host:port` of the broker, or of the first one. InvalidStateError while it is killed."""
        return self._running(self._nodes[0]).address

    @property
    def grpc_address(self) -> str:
        """`host:port` for clients of RocketMQ 5, which speak gRPC. InvalidStateError without `grpc`."""
        if self._proxy is None:
            raise InvalidStateError("the cluster is not started" if self._grpc else "the cluster has no `grpc=True`")
        return self._proxy.address

    @property
    def broker_names(self) -> list[str]:
        """The names of the brokers that are running."""
        return [broker.options.broker_name for broker in self._all_running()]

    def _running(self, node: _Node) -> Broker:
        if node.broker is None:
            raise InvalidStateError("the broker is not running")
        return node.broker

    def _all_running(self) -> list[Broker]:
        running = [node.broker for node in self._nodes if node.broker is not None]
        return running or [self._running(self._nodes[0])]

    def _chosen(self, broker: str | None) -> _Node:
        if broker is None:
            return self._nodes[0]
        found = [node for node in self._nodes if node.options.get("brokerName") == broker]
        if not found:
            raise ConfigurationError(f"no broker is called {broker!r}")
        return found[0]

    # ------------------------------------------------------------------------------------------------------- contents

    def create_topic(self, name: str, queues: int = 4, *, message_type: str = "NORMAL") -> None:
        """Create a topic with this number of queues on each broker, so that consumers find it before a send.

        Clients of RocketMQ 5, which speak gRPC, need it before a send, too, and may send only messages of its
        `message_type`: NORMAL, FIFO, DELAY, TRANSACTION or MIXED. ConfigurationError for any other.
        """
        known = [one for one in MessageType if one is not MessageType.UNSPECIFIED]
        if message_type not in known:
            raise ConfigurationError(f"message type {message_type!r} is none of {', '.join(known)}")
        attributes = {MESSAGE_TYPE: message_type}

        async def create() -> None:
            for broker in self._all_running():
                broker.topics.put(TopicConfig(name, queues, queues, attributes=attributes))
                await broker.announced()

        self._call(create())

    def message_count(self, topic: str) -> int:
        """The number of messages of the topic on the running brokers, consumed or not."""

        async def count() -> int:
            return sum(
                broker.store.max_offset(topic, queue_id) - broker.store.min_offset(topic, queue_id)
                for broker in self._all_running()
                for queue_id in broker.store.queue_ids(topic)
            )

        return self._call(count())

    def backlog(self, group: str, topic: str) -> int:
        """The messages of the topic that the group has not acknowledged; retries count for their own topic."""

        async def count() -> int:
            return sum(
                broker.store.max_offset(topic, queue_id) - (broker.offsets.query(group, topic, queue_id) or 0)
                for broker in self._all_running()
                for queue_id in broker.store.queue_ids(topic)
            )

        return self._call(count())

    # ----------------------------------------------------------------------------------------------------------- time

    def advance(self, seconds: float) -> None:
        """Advance the clock for messages: delayed messages and retries become due, transactions and files grow older.
        Heartbeats are not affected: no client expires because a test has advanced the clock.
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
        broker: str | None = None,
    ) -> Fault:
        """Respond to the next `times` requests with an error; with None to all of them until you call the fault's
        `end`.

        `request` is "send", "pull", "heartbeat", "commit", "send_back", "route", "end_transaction" or a request code;
        ConfigurationError for anything else. `topic` and `broker`, the name of a broker, restrict the fault.
        """
        return self._faults.add(Kind.REFUSE, request, times, topic, broker, code=int(code), remark=remark)

    def drop(
        self, request: str | int, *, times: int | None = 1, topic: str | None = None, broker: str | None = None
    ) -> Fault:
        """Lose requests: they have no effect and no response. Otherwise as `refuse`."""
        return self._faults.add(Kind.DROP, request, times, topic, broker)

    def lose_response(
        self, request: str | int, *, times: int | None = 1, topic: str | None = None, broker: str | None = None
    ) -> Fault:
        """Process requests and lose their responses, which causes duplicates. Otherwise as `refuse`."""
        return self._faults.add(Kind.LOSE_RESPONSE, request, times, topic, broker)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Fault]:
            """The former name of a method."""
            if name != "lose_answer":
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            warnings.warn("Cluster.lose_answer is now Cluster.lose_response", DeprecationWarning, stacklevel=2)
            return self.lose_response

    def disconnect(
        self, request: str | int, *, times: int | None = 1, topic: str | None = None, broker: str | None = None
    ) -> Fault:
        """Close the connection instead of processing requests. Otherwise as `refuse`."""
        return self._faults.add(Kind.DISCONNECT, request, times, topic, broker)

    def delay(
        self,
        request: str | int,
        seconds: float,
        *,
        times: int | None = 1,
        topic: str | None = None,
        broker: str | None = None,
    ) -> Fault:
        """Process requests `seconds` later. Otherwise as `refuse`."""
        return self._faults.add(Kind.DELAY, request, times, topic, broker, seconds=seconds)

    def heal(self) -> None:
        """End every fault and start the killed brokers."""
        self._faults.clear()
        self._start_again([node for node in self._nodes if node.broker is None])

    def kill(self, broker: str | None = None) -> None:
        """Kill a broker as a crash would: connections break without notice. By default the first one.

        ConfigurationError if no broker has that name.
        """
        node = self._chosen(broker)

        async def kill() -> None:
            running, node.broker = self._running(node), None
            await running.kill()
            node.hold_ports(running.port)

        self._call(kill())

    def restart(self, broker: str | None = None) -> None:
        """Start a killed broker with its files, at the same address. By default the first one.

        InvalidStateError if it is running, ConfigurationError if no broker has that name.
        """
        node = self._chosen(broker)
        if node.broker is not None:
            raise InvalidStateError("the broker is running")
        self._start_again([node])

    def _start_again(self, nodes: Iterable[_Node]) -> None:
        for node in nodes:
            self._call(self._start_broker(node))


def _named(letter: str) -> _Node:
    name = f"broker-{letter}"
    return _Node(f"store-{letter}", {"brokerName": name})
