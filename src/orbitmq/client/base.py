"""What every client has: settings, a life cycle from start to shutdown, an instance, and queries about queues."""

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
from orbitmq.client.schema_registry import registry_options
from orbitmq.client.settings import ClientSettings
from orbitmq.errors import ConfigurationError, ConnectError, InvalidStateError, OrbitMQError, SchemaIllegal
from orbitmq.message.config import TopicConfig
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.message.namespace import Namespace, namespace_of
from orbitmq.message.topics import AUTO_CREATE_TOPIC, check_consumer_group, check_group, check_topic
from orbitmq.net.remoting import RpcHook, split_address
from orbitmq.operations import offsets, topics
from orbitmq.operations.registry import Registry, subject_of
from orbitmq.operations.schemas import SchemaStore, TopicSchemas
from orbitmq.runtime.clock import Clock, SystemClock
from orbitmq.runtime.error_texts import translator
from orbitmq.runtime.languages import of_environment
from orbitmq.runtime.logging import watch_loggers
from orbitmq.schemas.model import Compatibility, Schema, SchemaVersion

_log = logging.getLogger(__name__)

NAMESRV_VARIABLE = "NAMESRV_ADDR"
LOOP_LOOK_S = 1.0  # how often a shutdown in another loop checks whether the client's loop still runs
CREATE_TRIES = 5  # as RocketMQ's client asks a broker for a topic

OrbitMQError.translate = translator(of_environment(os.environ))  # of the application, for its tracebacks


_age = 0  # forks since the first process: cheaper to compare than process ids, which need a system call


def _after_fork() -> None:
    global _age
    _age += 1


os.register_at_fork(after_in_child=_after_fork)


class ClientState(Enum):
    """The life cycle of a client; a state is never entered twice."""

    CREATED = "not started"
    STARTING = "starting, or its start failed"
    RUNNING = "running"
    CLOSED = "shut down"


class Client(ABC):
    """Base of producers and consumers; `async with` starts and shuts down.

    A client belongs to the event loop and the process that started it. If you fork after `start`, the client does not
    work in the child, where `shutdown` only forgets it: connections, threads and message ids are the parent's. Create
    new clients in the child; a client that was not started before the fork may be started there.

    Methods that need a running client raise InvalidStateError before `start`, after `shutdown`, in another process and
    in another event loop. `shutdown` works in any loop; if the client's own loop no longer runs, it closes the
    connections without notifying the brokers. Constructors raise MessageIllegal for an invalid group name, and
    ConfigurationError, which names the allowed values, for an unknown setting or an invalid value, addresses of name
    servers included.
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
        """The group as brokers know it, with its namespace."""
        check(self.group)
        self._addresses = _checked(name_servers(given))
        self._base_settings = settings
        self._registry_options = registry_options(settings)
        self._registry: Registry | None = None
        self._state = ClientState.CREATED
        self._pid, self._age = os.getpid(), _age
        self._rpc_hooks: list[RpcHook] = []
        self._clock: Clock = SystemClock()
        self._shared: Instance | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop that started the client."""

    # ----------------------------------------------------------------------------------------------------- lifecycle

    async def start(self) -> None:
        """Connect and register with the brokers. InvalidStateError when the client was started before; after an error
        it cannot be used.
        """
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
        """Unregister from the brokers and disconnect. Every wait in it has a limit, and an unreachable broker raises
        nothing. Does nothing unless the client is running.
        """
        if self._state is not ClientState.RUNNING or self._shared is None or self._loop is None:
            return
        if self._age != _age:
            self._state = ClientState.CLOSED
            return  # anything written now would be sent over the parent's connections
        if self._loop is not asyncio.get_running_loop():
            await self._shut_down_elsewhere(self._shared, self._loop)
            return
        self._state = ClientState.CLOSED
        try:
            await self._end(self._shared)
        finally:
            await self._leave(self._shared)

    async def _shut_down_elsewhere(self, instance: Instance, loop: asyncio.AbstractEventLoop) -> None:
        """Shut down in the client's own loop; if that does not run, or stops meanwhile, only release resources."""
        if loop.is_running():
            done = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.shutdown(), loop))
            while loop.is_running():
                if (await asyncio.wait({done}, timeout=LOOP_LOOK_S))[0]:
                    done.result()
                    return
        self._state = ClientState.CLOSED
        await self._abandon(instance)

    async def _abandon(self, instance: Instance) -> None:
        """Release what the client holds on this machine; its loop does not run any more."""
        _log.warning("event=client_abandoned client=%s loop=%s; its event loop does not run", self._name(), self._loop)
        instance.remove(self.group, consumer=self._consumes)
        if instance.is_unused:
            instance.remoting.hang_up()

    async def _leave(self, instance: Instance) -> None:
        instance.remove(self.group, consumer=self._consumes)
        try:
            if self._registry is not None:
                await self._registry.close()
        finally:
            await leave(instance)

    @abstractmethod
    async def _begin(self, instance: Instance) -> None:
        """Add the client to the instance before anything else, then start it."""

    @abstractmethod
    async def _end(self, instance: Instance) -> None:
        """Shut down, before the client leaves the instance."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    @checks_arguments
    def add_rpc_hook(self, hook: RpcHook) -> None:
        """Call `hook` for every request of this client and its response, those of name servers included. Only before
        start; InvalidStateError afterwards. If the hook raises, the request fails with HookFailed, with that exception
        as its cause. It runs on the event loop and must not block. Requests are signed after the hooks.
        """
        if self._state is not ClientState.CREATED:
            raise InvalidStateError(f"{self._name()} is {self._state.value}; add hooks around requests before start")
        self._rpc_hooks.append(hook)

    @checks_arguments
    def update_namesrv_addr(self, namesrv_addr: str | Iterable[str]) -> None:
        """Use these name servers instead, before or after start, for all clients with this client id. An empty list
        changes nothing. ConfigurationError for an address that is not `host:port`.
        """
        given = _checked(name_servers(namesrv_addr))
        if self._state is ClientState.CREATED:
            self._addresses = given or self._addresses
        else:
            self._check_running().name_servers.update(given)

    @property
    def is_running(self) -> bool:
        """Whether the client has started and not shut down."""
        return self._state is ClientState.RUNNING

    @property
    def client_id(self) -> str:
        """The id by which brokers know this client. InvalidStateError before start."""
        return self._check_alive().client_id

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop in which the client was started. InvalidStateError before start."""
        if self._loop is None:
            raise InvalidStateError(f"{self._name()} is {self._state.value}")
        return self._loop

    def _check_running(self) -> Instance:
        """The instance. InvalidStateError unless the client is running in this process, and in another event loop. A
        thread without a loop, such as a listener's, may call what does not wait.
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
    async def fetch_queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of `topic`. ClientError when it does not exist, RemotingError."""
        found = await self._instance.routes.find_subscribed(self._namespace.wrap(topic))
        return list(map(self._namespace.unwrap_queue, found))

    @checks_arguments
    async def max_offset(self, queue: MessageQueue) -> int:
        """The next offset to be written in `queue`. BrokerError, ClientError, RemotingError."""
        queue = self._namespace.wrap_queue(queue)
        return await offsets.max_offset(self._instance.remoting, await self._instance.routes.master(queue), queue)

    @checks_arguments
    async def min_offset(self, queue: MessageQueue) -> int:
        """The first readable offset of `queue`. BrokerError, ClientError, RemotingError."""
        queue = self._namespace.wrap_queue(queue)
        return await offsets.min_offset(self._instance.remoting, await self._instance.routes.master(queue), queue)

    @checks_arguments
    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at or after `timestamp_ms` (milliseconds since the epoch); the next
        offset to be written when there is none. BrokerError, ClientError, RemotingError.
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
        """The message with this offset message id, from the broker whose address is part of the id; or, with `topic`,
        the message with this offset message id or unique id.

        MessageIllegal when it is no message id, BrokerError when the broker has no such message, ClientError (code 208)
        when no broker of the topic has it.
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
        (milliseconds since the epoch, both included), oldest first. Each broker returns 64 of them at most.

        ClientError (code 208) when there are none; BrokerError or RemotingError when none was found and a broker
        failed.
        """
        inside = self._namespace.wrap(topic)
        found = await message_queries.query_messages(self._instance, inside, key, max_count, begin_ms, end_ms)
        return [self._seen(message) for message in found]

    # ------------------------------------------------------------------------------------------------------- schemas

    @checks_arguments
    async def register_schema(
        self, topic: str, schema: Schema, *, compatibility: Compatibility | None = None
    ) -> SchemaVersion:
        """Make `schema` the next version of the schemas of `topic`, which name servers keep, or the registry of the
        setting `schema_registry`. Nothing changes if it is one of them. `compatibility` is what this version and later
        ones must keep (`BACKWARD` at first); a registry has that itself.

        SchemaIncompatible names the fields that consumers could not read, SchemaIllegal what is not valid; ClientError,
        ConnectError unless every name server, or the registry, responds.
        """
        inside = self._namespace.wrap(topic)
        check_topic(inside)
        self._check_running()
        if (registry := self.registry) is not None:
            if compatibility is not None:
                raise ConfigurationError("compatibility is set at the schema registry, and not by its clients")
            return await self._register_there(registry, self._subject(topic, schema), schema)
        store = await self._schema_store()
        return await store.register(inside, schema, self._clock.now_ms(), compatibility=compatibility)

    async def _register_there(self, registry: Registry, subject: str, schema: Schema) -> SchemaVersion:
        if self._base_settings["schema_registry_register"]:
            return await registry.register(subject, schema)
        found = await registry.find(subject, schema)
        if found is None:
            raise SchemaIllegal(
                f"the schema registry does not have the schema under subject {subject}, and schema_registry_register "
                "is false; register it first"
            )
        return found

    @checks_arguments
    async def schemas(self, topic: str) -> TopicSchemas:
        """The schemas of `topic`, none if it has none. ClientError, ConnectError when no name server responds, or the
        registry of the setting `schema_registry` does not.
        """
        self._check_running()
        if (registry := self.registry) is not None:
            return await registry.of_subject(self._subject(topic, None))
        return await (await self._schema_store()).of_topic(self._namespace.wrap(topic))

    @property
    def registry(self) -> Registry | None:
        """The registry of the setting `schema_registry`; None without it. ConfigurationError for files that cannot be
        used.
        """
        if self._registry is None and self._registry_options is not None:
            self._registry = Registry(self._registry_options)
        return self._registry

    def _subject(self, topic: str, schema: Schema | None) -> str:
        return subject_of(self._base_settings["schema_registry_subject"], topic, schema)

    async def _schema_store(self) -> SchemaStore:
        return SchemaStore(self._instance.remoting, await self._instance.name_servers.known())

    @checks_arguments
    async def create_topic(
        self, topic: str, *, queues: int = 4, template: str = AUTO_CREATE_TOPIC, sys_flag: int = 0
    ) -> None:
        """Create `topic` with `queues` queues on every master that has the `template` topic, or change it if it exists.
        `sys_flag` holds the topic's flags of units.

        Each broker is tried up to five times. Returns when at least one broker has created the topic; when none has,
        raises the last error, BrokerError, ClientError or RemotingError. Failed brokers are logged.
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
    """The addresses. ConfigurationError unless each is `host:port`: a consumer would retry a wrong one forever."""
    for address in addresses:
        try:
            split_address(address)
        except ConnectError as error:
            raise ConfigurationError(f"namesrv_addr: {error}; separate several addresses by ;") from None
    return addresses


async def _tried(times: int, work: Callable[[], Awaitable[None]]) -> None:
    """Await `work` until it succeeds, `times` times at most; the last failure is raised."""
    for _ in range(times - 1):
        try:
            return await work()
        except OrbitMQError:
            continue
    return await work()
