"""What every client has: settings, a life from start to shutdown, an instance, and questions about queues."""

from __future__ import annotations

import asyncio
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from functools import partial
from types import TracebackType
from typing import ClassVar, Self

from orbitmq.client import message_queries
from orbitmq.client.core.addresses import name_servers
from orbitmq.client.core.arguments import checks_arguments
from orbitmq.client.instance import Instance, join, leave
from orbitmq.client.loops import check_loop, running_loop
from orbitmq.client.settings import ClientSettings
from orbitmq.errors import ConfigurationError, ConnectError, InvalidStateError, OrbitMQError
from orbitmq.message.config import TopicConfig
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.message.namespace import Namespace, namespace_of
from orbitmq.message.topics import AUTO_CREATE_TOPIC, check_consumer_group, check_group, check_topic
from orbitmq.net.remoting import RpcHook, split_address
from orbitmq.operations import offsets, topics
from orbitmq.runtime.clock import Clock, SystemClock
from orbitmq.runtime.logging import watch_loggers

_log = logging.getLogger(__name__)

NAMESRV_VARIABLE = "NAMESRV_ADDR"
LOOP_LOOK_S = 1.0  # how often a shutdown that another loop does looks whether that still runs
CREATE_TRIES = 5  # as RocketMQ's client asks a broker for a topic


_age = 0  # forks between the first process and this one: cheaper to compare than process ids, which the system is asked


def _after_fork() -> None:
    global _age
    _age += 1


os.register_at_fork(after_in_child=_after_fork)


class ClientState(Enum):
    """The life of a client; there is no way back."""

    CREATED = "not started"
    STARTING = "starting, or its start failed"
    RUNNING = "running"
    CLOSED = "shut down"


class Client(ABC):
    """Base of producers and consumers; `async with` starts and shuts down.

    A client belongs to the event loop and the process that started it. One that was started before a fork refuses to
    work in the child, where `shutdown` only forgets it: connections, threads and message ids are the parent's. The
    child makes clients of its own; one that was not started yet may be started there.

    Whatever needs a running client raises InvalidStateError before `start`, after `shutdown`, in another process and in
    another event loop. `shutdown` works in any loop; when the client's own does not run any more, the connections are
    closed, and brokers are told nothing.
    Constructors raise MessageIllegal for a group that is no name, and ConfigurationError, which says what is allowed,
    for a setting that is not known or a value that is not, addresses of name servers included.
    """

    _consumes: ClassVar[bool]
    _stream: ClassVar[bool] = False

    def __init__(self, group: str, namesrv_addr: str | Iterable[str] | None, settings: ClientSettings) -> None:
        given = namesrv_addr if isinstance(namesrv_addr, str) else list(namesrv_addr or ())
        given = given or os.environ.get(NAMESRV_VARIABLE, "")
        self._namespace = Namespace(settings["namespace"] or namespace_of(given))
        check = check_consumer_group if self._consumes else check_group
        check(group)
        self.group = self._namespace.wrap(group)
        """As brokers know it: with its namespace."""
        check(self.group)
        self._addresses = _checked(name_servers(given))
        self._base_settings = settings
        self._state = ClientState.CREATED
        self._pid, self._age = os.getpid(), _age
        self._rpc_hooks: list[RpcHook] = []
        self._clock: Clock = SystemClock()
        self._shared: Instance | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """Which the client was started on."""

    # ----------------------------------------------------------------------------------------------------- lifecycle

    async def start(self) -> None:
        """Join the brokers. InvalidStateError when it was started before; after an error the client cannot be used."""
        if self._state is not ClientState.CREATED:
            raise InvalidStateError(f"{self._name()} is {self._state.value}; a client is started once")
        self._state = ClientState.STARTING
        watch_loggers()
        self._loop = asyncio.get_running_loop()
        self._pid, self._age = os.getpid(), _age
        self._shared = join(
            self._addresses,
            self._base_settings,
            self.group,
            consumer=self._consumes,
            hooks=tuple(self._rpc_hooks),
            stream=self._stream or self._base_settings["enable_stream_request_type"],
        )
        try:
            await self._begin(self._shared)
        except BaseException:
            await self._leave(self._shared)
            raise
        self._state = ClientState.RUNNING

    async def shutdown(self) -> None:
        """Leave the brokers. Every wait in it has a limit, and nothing is raised for a broker that cannot be told. Does
        nothing unless the client is running.
        """
        if self._state is not ClientState.RUNNING or self._shared is None or self._loop is None:
            return
        if self._age != _age:
            self._state = ClientState.CLOSED
            return  # whatever is written now would go out over the parent's connections
        if self._loop is not asyncio.get_running_loop():
            await self._shut_down_elsewhere(self._shared, self._loop)
            return
        self._state = ClientState.CLOSED
        try:
            await self._end(self._shared)
        finally:
            await self._leave(self._shared)

    async def _shut_down_elsewhere(self, instance: Instance, loop: asyncio.AbstractEventLoop) -> None:
        """Have the client's own loop do it; when that does not run, or stops meanwhile, only let go."""
        if loop.is_running():
            done = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.shutdown(), loop))
            while loop.is_running():
                if (await asyncio.wait({done}, timeout=LOOP_LOOK_S))[0]:
                    done.result()
                    return
        self._state = ClientState.CLOSED
        await self._abandon(instance)

    async def _abandon(self, instance: Instance) -> None:
        """Give back what the client holds of this machine; its loop does not run any more."""
        _log.warning("event=client_abandoned client=%s loop=%s; its event loop does not run", self._name(), self._loop)
        instance.remove(self.group, consumer=self._consumes)
        if instance.is_unused:
            instance.remoting.hang_up()

    async def _leave(self, instance: Instance) -> None:
        instance.remove(self.group, consumer=self._consumes)
        await leave(instance)

    @abstractmethod
    async def _begin(self, instance: Instance) -> None:
        """Add itself to the instance before anything else, then do what starting means."""

    @abstractmethod
    async def _end(self, instance: Instance) -> None:
        """What shutting down means, before the instance is left."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    @checks_arguments
    def add_rpc_hook(self, hook: RpcHook) -> None:
        """Have `hook` see every request of this client and its answer, those of name servers included; before start,
        InvalidStateError afterwards. What it raises fails the request: HookFailed, with that as its cause. It runs on
        the event loop and must not wait. Requests are signed after the hooks.
        """
        if self._state is not ClientState.CREATED:
            raise InvalidStateError(f"{self._name()} is {self._state.value}; hooks around requests are added before")
        self._rpc_hooks.append(hook)

    @checks_arguments
    def update_namesrv_addr(self, namesrv_addr: str | Iterable[str]) -> None:
        """Ask these name servers from now on, before or after start; all who share the client id do. An empty list
        changes nothing. ConfigurationError for one that is not `host:port`.
        """
        given = _checked(name_servers(namesrv_addr))
        if self._state is ClientState.CREATED:
            self._addresses = given or self._addresses
        else:
            self._check_running().name_servers.update(given)

    @property
    def is_running(self) -> bool:
        """Between a successful start and shutdown."""
        return self._state is ClientState.RUNNING

    @property
    def client_id(self) -> str:
        """The name brokers know this client by. InvalidStateError before start."""
        return self._check_alive().client_id

    def _check_running(self) -> Instance:
        """The instance; InvalidStateError unless the client is running in this process, and in another event loop. A
        thread without a loop, such as a listener's, may use what does not wait.
        """
        if self._state is ClientState.RUNNING and self._age == _age and self._shared and running_loop() is self._loop:
            return self._shared  # every send comes here
        instance = self._check_alive()
        check_loop(self._name(), self._loop, or_none=True)
        return instance

    def _check_alive(self) -> Instance:
        """The instance; InvalidStateError unless the client is running in this process."""
        if self._state is not ClientState.RUNNING or self._shared is None:
            raise InvalidStateError(f"{self._name()} is {self._state.value}")
        if self._age != _age:
            raise InvalidStateError(f"{self._name()} belongs to process {self._pid}; make another one after a fork")
        return self._shared

    @property
    def _instance(self) -> Instance:
        return self._check_running()

    def _name(self) -> str:
        return f"{type(self).__name__} of group {self.group}"

    # ----------------------------------------------------------------------------------------------------- questions

    @checks_arguments
    async def max_offset(self, queue: MessageQueue) -> int:
        """The next offset to be written in `queue`. BrokerError, ClientError, RemotingError."""
        queue = self._namespace.wrap_queue(queue)
        return await offsets.max_offset(self._instance.remoting, await self._instance.routes.master(queue), queue)

    @checks_arguments
    async def min_offset(self, queue: MessageQueue) -> int:
        """The first offset that can be read from `queue`. BrokerError, ClientError, RemotingError."""
        queue = self._namespace.wrap_queue(queue)
        return await offsets.min_offset(self._instance.remoting, await self._instance.routes.master(queue), queue)

    @checks_arguments
    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at or after `timestamp_ms` (milliseconds since the epoch); behind the
        last one when there is none. BrokerError, ClientError, RemotingError.
        """
        queue = self._namespace.wrap_queue(queue)
        address = await self._instance.routes.master(queue)
        return await offsets.search_offset(self._instance.remoting, address, queue, timestamp_ms)

    @checks_arguments
    async def earliest_store_time(self, queue: MessageQueue) -> int:
        """When the first readable message was stored, in milliseconds since the epoch; -1 when there is none.
        BrokerError, ClientError, RemotingError.
        """
        queue = self._namespace.wrap_queue(queue)
        address = await self._instance.routes.master(queue)
        return await offsets.earliest_store_time(self._instance.remoting, address, queue)

    @checks_arguments
    async def view_message(self, msg_id: str, topic: str | None = None) -> MessageExt:
        """The message with this offset message id, asked of the broker whose address is in it; or, when its `topic` is
        given, with this offset id or unique id.

        MessageIllegal when it is no such id, BrokerError when the broker has no such message, ClientError (code 208)
        when no broker of the topic has.
        """
        if topic is None:
            return self._seen(await message_queries.view_message(self._instance, msg_id))
        inside = self._namespace.wrap(topic)
        return self._seen(await message_queries.find_message(self._instance, inside, msg_id, self._clock.now_ms()))

    def _seen(self, message: MessageExt) -> MessageExt:
        message.topic = self._namespace.unwrap(message.topic)
        return message

    @checks_arguments
    async def query_message(
        self, topic: str, key: str, max_count: int = 32, begin_ms: int = 0, end_ms: int = message_queries.EVER_MS
    ) -> list[MessageExt]:
        """Up to `max_count` messages of the topic with this key, the newest of those stored from `begin_ms` to `end_ms`
        (milliseconds since the epoch, both included), oldest first. One broker answers with 64 of them at most.

        ClientError (code 208) when there is none; BrokerError or RemotingError when none was found and a broker failed.
        """
        inside = self._namespace.wrap(topic)
        found = await message_queries.query_messages(self._instance, inside, key, max_count, begin_ms, end_ms)
        return [self._seen(message) for message in found]

    @checks_arguments
    async def create_topic(
        self, topic: str, *, queues: int = 4, template: str = AUTO_CREATE_TOPIC, sys_flag: int = 0
    ) -> None:
        """Create `topic` with `queues` queues on every master that has the template topic; change it if it exists.
        `sys_flag` are the topic's flags of units.

        A broker that fails is asked five times. The topic exists when one broker took it; the error of the last one,
        BrokerError, ClientError or RemotingError, when none did. Brokers that did not are in the log.
        """
        check_topic(topic := self._namespace.wrap(topic))
        routes, remoting = self._instance.routes, self._instance.remoting
        found = await routes.find_publish(template, template, queues)
        brokers = {queue.broker_name: queue for queue in found.queues}
        configuration = TopicConfig(topic, queues, queues, sys_flag=sys_flag)
        failures: list[OrbitMQError] = []
        for queue in brokers.values():
            try:
                create = partial(topics.create_topic, remoting, await routes.master(queue), configuration)
                await _tried(CREATE_TRIES, partial(create, template=template))
            except OrbitMQError as error:
                _log.warning("event=topic_not_created topic=%s broker=%s error=%s", topic, queue.broker_name, error)
                failures.append(error)
        if len(failures) == len(brokers):
            raise failures[-1]


def _checked(addresses: tuple[str, ...]) -> tuple[str, ...]:
    """The addresses. ConfigurationError unless each is `host:port`: a consumer would look for it for ever."""
    for address in addresses:
        try:
            split_address(address)
        except ConnectError as error:
            raise ConfigurationError(f"namesrv_addr: {error}; several are separated by ;") from None
    return addresses


async def _tried(times: int, work: Callable[[], Awaitable[None]]) -> None:
    """Do `work`, again when it fails; the last failure is raised."""
    for _ in range(times - 1):
        try:
            return await work()
        except OrbitMQError:
            continue
    return await work()
