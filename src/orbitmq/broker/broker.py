"""Builds, starts and stops the parts of a broker, in order. No part knows this file."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orbitmq.broker.access.administration import AccessAdministration
from orbitmq.broker.access.control import AccessControl
from orbitmq.broker.access.files import AclPlaces
from orbitmq.broker.access.needs import topic_at
from orbitmq.broker.administration import Administration
from orbitmq.broker.advertised import AdvertisedBroker
from orbitmq.broker.archive_guard import LOOK_SECONDS as GUARD_SECONDS
from orbitmq.broker.archive_guard import ArchiveGuard
from orbitmq.broker.client_relay import ClientRelay
from orbitmq.broker.cold_reads import ColdReads
from orbitmq.broker.delay import DelayedDelivery
from orbitmq.broker.election.election import Election
from orbitmq.broker.election.roles import Elected, ElectedMaster, ElectedSlave, election_metrics
from orbitmq.broker.filters import Filters
from orbitmq.broker.group_administration import GroupAdministration
from orbitmq.broker.group_reports import GroupReports
from orbitmq.broker.groups import Groups
from orbitmq.broker.grpc_backend import LocalBackend
from orbitmq.broker.mastership.fence import BEAT_SECONDS, Fence
from orbitmq.broker.mastership.record import MastershipRecord
from orbitmq.broker.membership import Membership
from orbitmq.broker.message_writer import MessageWriter
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.pop.ack_handler import AckHandler
from orbitmq.broker.pop.assignment_handler import AssignmentHandler, RequestModes
from orbitmq.broker.pop.journal import MARK_SECONDS, Journal
from orbitmq.broker.pop.listing import InFlightListing
from orbitmq.broker.pop.ordering import Orders
from orbitmq.broker.pop.pop_handler import PopHandler
from orbitmq.broker.pop.revival import Revival
from orbitmq.broker.ports import bind_ports, host_field
from orbitmq.broker.presence import Presence
from orbitmq.broker.pull_handler import SCAN_SECONDS, PullHandler
from orbitmq.broker.pull_selection import PullSelection
from orbitmq.broker.query_handler import QueryHandler
from orbitmq.broker.registered import RegisteredTopics
from orbitmq.broker.registration import Registrar
from orbitmq.broker.replies import Replies
from orbitmq.broker.resumption import WINDOW_S, Resumption
from orbitmq.broker.roles import MasterRole, Role, SlaveRole, replication_metrics
from orbitmq.broker.runtime_info import RuntimeInfo
from orbitmq.broker.schedule import entry_codes
from orbitmq.broker.send_back_handler import SendBackHandler
from orbitmq.broker.send_handler import SendHandler
from orbitmq.broker.settings import Settings
from orbitmq.broker.slave.kept_role import is_fresh, settle_role, with_fitting_id, with_kept_role
from orbitmq.broker.slow_groups import LOOK_SECONDS, SlowGroups
from orbitmq.broker.statistics import Statistics
from orbitmq.broker.table_recovery import TableRecovery
from orbitmq.broker.timers.accepting import TimerAcceptance
from orbitmq.broker.timers.delivery import SAVE_SECONDS, TimerDelivery
from orbitmq.broker.timers.listing import TimerListing
from orbitmq.broker.timers.recalling import Recalling
from orbitmq.broker.topic_reports import TopicReports
from orbitmq.broker.topics import Topics
from orbitmq.broker.transactions.transactions import Transactions
from orbitmq.broker.unread import UnreadMessages
from orbitmq.errors import ConfigurationError, StoreStuck, cause_of
from orbitmq.message.config import TopicConfig
from orbitmq.message.delay import parse_delay_levels
from orbitmq.message.topics import TIMER_TOPIC
from orbitmq.net.connection import Connection
from orbitmq.net.connection_options import ConnectionOptions
from orbitmq.net.remoting import Remoting
from orbitmq.net.routing import Handler, HasHandlers, Router
from orbitmq.net.server import Server
from orbitmq.net.tls import ServerTls, client_context
from orbitmq.net.tls_options import TlsOptions
from orbitmq.replication.master import Replicas, networks_of
from orbitmq.runtime.clock import Clock, SystemClock
from orbitmq.runtime.form import form
from orbitmq.runtime.lifecycle import Lifecycle, Stage, nothing
from orbitmq.runtime.options import as_text
from orbitmq.runtime.periodic import Periodic
from orbitmq.runtime.refusals import Refusals
from orbitmq.store.dispatch import no_bitmap
from orbitmq.store.engine import MessageStore
from orbitmq.store.options import StoreOptions
from orbitmq.store.replica import ReplicaStore
from orbitmq.wire.headers_namesrv import RegisterBrokerHeader
from orbitmq.wire.request import Queue, Request
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.send_loops import IS_COMPILED

if TYPE_CHECKING:
    from orbitmq.proxy.front import Front

_log = logging.getLogger(__name__)

Job = tuple[float, Callable[[], object]]

WAIT_SCAN_SECONDS = 0.1  # the longest delay of a FLUSH_DISK_TIMEOUT response
CLIENT_SCAN_SECONDS = 10.0
FILTER_SAVE_SECONDS = 10.0  # as in RocketMQ
LOCK_SWEEP_SECONDS = 60.0
SAVE_AGAIN_SECONDS = 5.0  # as often as offsets are saved anyway
CHANGES_SECONDS = 10.0  # for administrative requests in progress: deleting a topic of thousands of queues takes seconds
DRAIN_SECONDS = 5.0  # for slaves to copy the last messages: a promoted one then has all of them
STOP_PATIENCE_SECONDS = 60.0  # a slow disk writes a gigabyte of dirty pages meanwhile; a disk that hangs never ends


class Broker:
    """One broker. `start` returns when it serves; `stop` when everything is on disk.

    `configuration` is the file of the options; changes by administrators are written to it. Without `tls` connections
    are plain. Timeouts of clients use `presence_clock`, by default `clock`; tests advance it alone. When `superseded`
    is set, a slave has been promoted: stop this broker and start one with the options in `successor`, which
    `is_successor`: it starts also if others have taken the port for gRPC meanwhile. With an `election` it begins
    as a slave, and that decides about its successors.
    """

    # fmt: off
    def __init__(
        self, options: BrokerOptions, store_options: StoreOptions, clock: Clock | None = None,
        configuration: Path | None = None, tls: TlsOptions | None = None, *, presence_clock: Clock | None = None,
        connections: ConnectionOptions | None = None, is_successor: bool = False, election: Election | None = None,
    ) -> None:
        self._is_successor = is_successor
        self.election = election
        if not options.broker_name:
            options = options.replace(broker_name=socket.gethostname())
        if election is None:
            store_options = with_kept_role(store_options)
            options = with_fitting_id(options, store_options)
        else:
            options = options.replace(broker_id=election.slave_id if store_options.is_slave else 0)
        self.options = options
        self._clock = clock = clock or SystemClock()
        self.refusals = Refusals()
        self.identity = AdvertisedBroker(options)
        self.successor: tuple[BrokerOptions, StoreOptions] | None = None
        self.superseded = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._levels = parse_delay_levels(options.message_delay_level)
        self._build_tables(store_options)
        self._build_network(store_options, presence_clock or clock, tls, connections)
        self._build_work()
        self._record = MastershipRecord(store_options)
        self.role = role = self._make_role(configuration)
        self.watch, self.readiness, self.following, self._copying = (
            role.watch, role.readiness, role.following, role.copying)
        self._registrar = self._make_registrar()
        self._settings = Settings(
            (options, store_options), clock, self._settings_changed,
            {"useTLS": as_text(tls is not None and tls.uses_tls)}, configuration)
        for handlers in self._handlers():
            handlers.add_to(self.router)
        self._fence = Fence(lambda: role.not_serving, self._sending.refusal, role.confirm, lambda: role.refusal)
        self._fence.put_around(self.router, is_master=role.is_master)
        if self._access is not None:
            self.router.guard(self._access.check)
        self._limit_requests()
        if IS_COMPILED and role.is_master and self._access is None:
            self.router.take_sends((RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE), self._sending.take)
        self._periodic = Periodic()
        for seconds, job in self._jobs():
            self._periodic.every(seconds, job)
        self._lifecycle = Lifecycle(self._parts())

    def _build_tables(self, store_options: StoreOptions) -> None:
        """Build the store and the tables next to it."""
        options, clock, refusals = self.options, self._clock, self.refusals
        config, light = store_options.root / "config", store_options.enable_lmq
        self.topics = Topics(
            config, options, clock, self._topic_changed, with_light_queues=light, refusals=refusals)
        self.groups = Groups(config, options, clock, with_light_queues=light, refusals=refusals)
        self.offsets = ConsumerOffsets(
            config, with_light_queues=light, options=options, refusals=refusals, queues=self._queues_of)
        self._filters = Filters(config, options, clock, refusals)
        self.store = self._make_store(store_options)
        self._cold = ColdReads()
        self.statistics = Statistics(self.store, options.broker_cluster_name, clock, with_light_queues=light)
        self._delayed = DelayedDelivery(
            self.store, self._levels, config, clock, self.statistics.delivered, self._cold.fetch)
        self.timers = TimerDelivery(
            self.store, config, clock, lambda topic, size: self.statistics.put(topic, 1, size, 0), self._cold.fetch)
        self._orders, self._modes = Orders(config, clock), RequestModes(config)
        self._files = (self.topics.file, self.groups.file, self.offsets.file, self._delayed.file, self.timers.file,
            self._filters.file, self._orders.file, self._modes.file)

    def _build_network(
        self, store_options: StoreOptions, presence_clock: Clock, tls: TlsOptions | None,
        limits: ConnectionOptions | None,
    ) -> None:
        """Build the tables of connected clients, the router with access control, the server and replication."""
        options, refusals = self.options, self.refusals
        self.presence = Presence(
            self.groups, options, presence_clock, refusals, forget_group=self._filters.forget_group)
        self.producers, self.consumers = self.presence.producers, self.presence.consumers
        self.router = Router("broker")
        self._access = self._make_access(store_options) if options.acl_enable else None
        backend = self._backend = LocalBackend(
            self.topics, self.groups, self.identity, options, self._access, self.store, self._clock)
        serves_five = options.grpc_server_port >= 0 and not store_options.is_slave
        self.front = self._make_front(backend, tls, limits) if serves_five else None
        # A signature covers every field as it was sent, so nothing is read straight into typed headers then.
        self._server = backend.server = Server(
            self.router, on_close=self._closed, typed=self._access is None,
            tls=ServerTls(tls) if tls is not None else None, limits=limits, refusals=refusals,
            grpc=self.front.server if self.front is not None else None)
        self.connections, self.budgets, self.lateness = (
            self._server.connections, self._server.budgets, self._server.lateness)
        self._remoting = Remoting(tls=client_context(tls) if tls is not None and tls.uses_tls else None)
        self.replicas = Replicas(
            self.store, store_options, self._clock,
            networks_of(store_options.ha_slave_addresses, only_local=options.acl_enable), self._cold.fetch,
            self.election)

    def _build_work(self) -> None:
        """Build the parts that process messages."""
        options, clock, refusals = self.options, self._clock, self.refusals
        self._restoring = TableRecovery(
            self.store, self.topics, self.groups, self.offsets, self._delayed, self._files, self._remoting)
        self.archive_guard = ArchiveGuard(self.store, self.topics, self.offsets, options)
        self.unread = UnreadMessages(
            self.store, self.offsets, self.groups, self.consumers, self.archive_guard, self._delayed, self._restoring,
            lambda: self.journal.in_flight.first_offsets())
        self._writing = MessageWriter(
            self.store, len(self._levels),
            TimerAcceptance(self.store, self.topics, options, clock, self.timers.waiting_with), self.statistics,
            self.replicas, refusals, elects=self.election is not None)
        self.transactions = Transactions(
            self.store, self._writing, self.topics, self.offsets, self.producers, options, clock)
        self._sending = SendHandler(
            self._writing, self.topics, self.groups, options, clock, self.transactions.prepare,
            lambda: self._fence.is_open)
        self._resumption = Resumption(self.store, self.offsets)
        self._pulling = PullHandler(
            self.store, self.topics, self.groups, PullSelection(self.consumers, self._filters, options, refusals),
            self.offsets, options, clock, self.statistics, self._resumption, self._cold,
            refusals=refusals)
        self.held = self._pulling.held
        self.journal = Journal(
            self.store, self._writing, self.topics, self.offsets, clock, self.identity.name,
            options.broker_cluster_name)
        self.offsets.file.needs, self.offsets.file.saved = self.journal.flushed, self.journal.offsets_saved
        self._popping = PopHandler(
            self.journal, self._orders, self.store, self._writing, self.topics, self.groups, self.offsets,
            self._filters, options, clock, self.statistics, self._cold, refusals)
        self._backend.waiting = self._popping.waiting
        self.revival = Revival(
            self.journal, self.store, self._writing, self.topics, self.groups, clock, self._cold.fetch)
        self._slow_groups = SlowGroups(self.store, self.offsets, self.consumers, self.groups, options)
        self._querying = QueryHandler(self.store, self.offsets, self._resumption, clock, self._cold)
        self.searches = self._querying.searches

    def _handlers(self) -> tuple[HasHandlers, ...]:
        """Build the request handlers."""
        name, presence = self.identity.name, self.presence
        topics, groups, offsets, store = self.topics, self.groups, self.offsets, self.store
        return (
            self._sending,
            self._pulling,
            Replies(self._sending, self._writing, self.producers, self.options, self._clock),
            self.transactions,
            Recalling(self._writing, self._sending, self.topics, self.options, self._clock),
            TimerListing(self.timers),
            InFlightListing(self.journal, self._orders),
            self._popping,
            AssignmentHandler(self._modes, topics, self.consumers, self.options, self._remoting),
            AckHandler(
                self.journal, self._orders, self._popping, store, self._writing, topics, offsets, self._clock),
            self._querying,
            Membership(presence, groups, topics, self._filters),
            SendBackHandler(store, self._writing, topics, groups, self.options, self.statistics),
            Administration(topics, groups, offsets, store, self.statistics, self._forget_topic, self.options),
            AccessAdministration(self._access, self.identity),
            GroupAdministration(
                store, topics, offsets, self.producers, self.consumers, name, self._resumption,
                self.statistics.consume_tps),
            ClientRelay(store, self.consumers, name),
            self._settings,
            TopicReports(
                topics, self.consumers, offsets, store, name, self._clock, self._filters, self._resumption),
            GroupReports(
                topics, groups, self.producers, self.consumers, offsets, store, self.statistics, self._delayed,
                self.timers, self.identity),
            RuntimeInfo(
                self.statistics, store, offsets, self.consumers, self.options, self.searches, self._clock,
                delayed=self._delayed, timers=self.timers, lateness=self.lateness, damage=self._restoring.damage,
                guard=self.archive_guard, replication=self._replication_metrics),
            self.role,
        )

    def _limit_requests(self) -> None:
        """Refuse requests whose body is too large or that waited too long, as their rows in `wire.requests` declare.

        RocketMQ limits the wait in its thread pool queues. Here requests wait as bytes: in the kernel's buffers while
        the event loop is busy, or behind a peer that does not read its responses. `orbitmq.net.lateness` measures both.
        """
        options, router = self.options, self.router
        router.limit_bodies(self.refusals)
        if not options.broker_fast_failure_enable:
            return
        longest_ms = {
            Queue.SEND: options.wait_ms_in_send_queue,
            Queue.PULL: options.wait_ms_in_pull_queue,
            Queue.HEARTBEAT: options.wait_ms_in_heartbeat_queue,
            Queue.TRANSACTION: options.wait_ms_in_transaction_queue,
        }

        def limit(request: Request, handler: Handler) -> Handler:
            if (limit_ms := longest_ms.get(request.queue)) is not None:
                router.limit_wait(request, limit_ms)
            return handler

        router.wrap(limit)

    def _jobs(self) -> tuple[Job, ...]:
        """The periodic jobs: interval in seconds, and the function."""
        options = self.options
        jobs: tuple[Job, ...] = (
            (BEAT_SECONDS, self._fence.beat),
            (SCAN_SECONDS, self._pulling.scan),
            (WAIT_SCAN_SECONDS, self._writing.expire),
            (CLIENT_SCAN_SECONDS, self.presence.close_expired),
            (1, self.statistics.tick),
            (LOOK_SECONDS, self._slow_groups.look),
            (GUARD_SECONDS, self.archive_guard.look),
            (SAVE_SECONDS, self.timers.save_soon),
            (SAVE_AGAIN_SECONDS, self._orders.save_soon),
            (LOCK_SWEEP_SECONDS, self._orders.forget_idle),
            (LOCK_SWEEP_SECONDS, self.presence.sweep_locks),
            (SAVE_AGAIN_SECONDS, self._retry_save),
            (FILTER_SAVE_SECONDS, self._filters.save_soon),
            (options.flush_consumer_offset_interval_ms / 1000, self.offsets.save_soon),
            (options.flush_delay_offset_interval_ms / 1000, self._delayed.save_soon),
        )
        # Needed only once, but checking the file periodically is cheaper than another kind of job.
        masters = ((WINDOW_S, self._settle), (MARK_SECONDS, self.journal.mark), (1, self.journal.tidy))
        return (*jobs, *masters) if self.role.is_master else jobs

    def _parts(self) -> tuple[Stage, ...]:
        """The parts in the order of their start, once the ports are bound; they stop in the reverse order."""
        delayed, checking, front = self._delayed, self.transactions.checking, self.front
        masters_work = (Stage(checking.start, checking.stop), Stage(delayed.start, delayed.stop),
            Stage(self.timers.start, self.timers.stop), Stage(self.revival.start, self.revival.stop))
        return (
            *((Stage(self._access.start, self._access.stop),) if self._access is not None else ()),
            Stage(self._begin_role),
            Stage(self._open_store, self._close_store, lambda: self._in_time(asyncio.to_thread(self.store.close))),
            Stage(self._restore),
            Stage(stop=self._remoting.close),
            Stage(stop=self._cold.stop),
            Stage(self.replicas.serve, lambda: self.replicas.stop(DRAIN_SECONDS), self.replicas.stop),
            Stage(stop=self._end_changes, abandon=self.router.shielded.abandon),
            Stage(self._fence.begin),
            Stage(self._server.serve, self._server.stop, lambda: self._server.stop(0)),
            *((Stage(partial(self._serve_front, front), front.stop, front.abandon),) if front is not None else ()),
            Stage(stop=self.held.release_all, abandon=nothing),
            Stage(stop=self._popping.waiting.release_all, abandon=nothing),
            *(masters_work if self.role.is_master else ()),
            Stage(stop=self.role.stop),  # a slave replicates until it has left the routes
            Stage(self._periodic.start, self._periodic.stop),
            Stage(self._registrar.start, self._registrar.stop, self._registrar.abandon),
            Stage(self.role.start),
        )
    # fmt: on

    @property
    def port(self) -> int:
        """Where clients are served; 0 before the start."""
        return self.identity.port

    @property
    def address(self) -> str:
        """The address for clients: brokerIP1 and the port."""
        return self.identity.address()

    @property
    def not_serving(self) -> str:
        """Why this broker serves no messages: another master was promoted, or this slave does not follow; "" else."""
        return self.role.not_serving

    @property
    def delay_offsets(self) -> Mapping[int, int]:
        """Delay level -> how far its queue has been delivered."""
        return self._delayed.offsets

    async def start(self) -> None:
        """Take the port, open the store, serve, register. What fails leaves nothing behind."""
        self._loop = asyncio.get_running_loop()
        if self._access is not None:
            await asyncio.to_thread(self._access.load)
        self.identity.port = await bind_ports(self._server, self.replicas, self.options)
        if self.front is not None:
            await self._bind_front(self.front)
        await self._lifecycle.start()
        _log.info("event=broker_started name=%s address=%s form=%s", self.options.broker_name, self.address, form())

    async def stop(self) -> None:
        """Unregister, respond to waiting requests, save everything, close the store. StoreStuck if the disk hangs."""
        await self._lifecycle.stop()
        _log.info("event=broker_stopped name=%s", self.options.broker_name)

    async def kill(self) -> None:
        """End at once, as far as a living process can: without unregistering and without saving tables."""
        await self._lifecycle.abandon()

    async def announced(self) -> None:
        """Return when every name server that responds knows all topics created so far."""
        await self._registrar.settled()

    async def _bind_front(self, front: Front) -> None:
        try:
            await front.bind(self.options.listen_address, self.options.grpc_server_port)
        except ConfigurationError as error:
            if not self._is_successor:
                self._server.release()
                self.replicas.release()
            self._do_without_grpc_port(front, error)

    async def _serve_front(self, front: Front) -> None:
        try:
            await front.serve()
        except ConfigurationError as error:  # another process has bound the port, too, and listened first
            self._do_without_grpc_port(front, error)
            await front.serve()

    def _do_without_grpc_port(self, front: Front, error: ConfigurationError) -> None:
        """For a promoted slave, which had no such port and is the only master: remoting's takes gRPC, too."""
        if not self._is_successor:
            raise ConfigurationError(f"option grpcServerPort: {error}") from cause_of(error)
        front.server.release()
        front.port = self.port
        _log.error("event=grpc_port_taken port=%d error=%s", self.options.grpc_server_port, error)

    # -------------------------------------------------------------------------------------------- starting and stopping

    async def _begin_role(self) -> None:
        await self.role.begin(self._clock.now_ms())
        host = await host_field(self.options.broker_ip1, self.port)
        self._sending.store_host = self._pulling.store_host = self.journal.host = host
        self.transactions.use_host(host)

    async def _open_store(self) -> None:
        await asyncio.to_thread(self._filters.load)  # first: the store makes bitmaps again that a crash took
        await asyncio.to_thread(self.store.open)
        await asyncio.to_thread(self._load)

    def _load(self) -> None:
        self.topics.load()
        self.groups.load()
        self.offsets.load()
        if self.role.is_master:
            if self.election is None:
                self._resumption.begin(at_other_master=is_fresh(self.store.options), was_killed=self.store.was_killed)
            else:  # clients have seen nothing that an elected master lacks
                self._resumption.begin(at_other_master=self.election.took_over, was_killed=False)
        else:
            self.offsets.remember_commits()
            self._resumption.settle()  # its own record of the time as a master
        self._delayed.load()
        self.timers.load()
        self._orders.load()
        self._modes.load()

    async def _restore(self) -> None:
        is_master = self.role.is_master
        await self._restoring.restore(self.options.broker_name, self.options.name_servers if is_master else ())
        if is_master:
            await self.journal.correct_offsets()
            await self.transactions.checking.restore()
        await self._resumption.clients_come(asyncio.get_running_loop().time())

    async def _end_changes(self) -> None:
        """Finish requests of closed connections before slaves are disconnected."""
        try:
            async with asyncio.timeout(CHANGES_SECONDS):
                await self.router.shielded.settled()
        except TimeoutError:
            _log.warning("event=changes_abandoned after_s=%g", CHANGES_SECONDS)
            await self.router.shielded.abandon()

    async def _close_store(self) -> None:
        await self._in_time(self._finish())

    async def _finish(self) -> None:
        """Everything to the disk."""
        self.transactions.checking.note_progress()
        await self._writing.flushed()
        self.transactions.checking.note_progress()
        await self._save()
        self.journal.mark(is_last=self.offsets.file.is_saved)
        await asyncio.to_thread(self.store.close)

    async def _in_time(self, work: Awaitable[None]) -> None:
        """StoreStuck if the disk takes longer than any operator would wait."""
        try:
            async with asyncio.timeout(STOP_PATIENCE_SECONDS):
                await work
        except TimeoutError as error:
            missing = self.store.commit_log_max_offset - self.store.flushed_offset
            raise StoreStuck(
                f"the disk below {self.store.options.root} has not responded for {STOP_PATIENCE_SECONDS:g} s, "
                f"{missing} bytes of the log may not be on it; the next start recovers the store as after a crash"
            ) from error

    async def _save(self) -> None:
        """Save every table once more. A failure is logged and does not keep the others from closing."""
        for file in self._files:
            file.mark()
        await asyncio.gather(*(file.flush() for file in self._files), return_exceptions=True)

    def _retry_save(self) -> None:
        """What could not be written, because the disk was full, must not wait for the next change."""
        for file in self._files:
            file.retry()

    async def _settle(self) -> None:
        """All clients have switched to this master."""
        await asyncio.to_thread(settle_role, self.store.options)
        await asyncio.to_thread(self._resumption.settle)

    # ------------------------------------------------------------------------------------------------------- building

    def _make_store(self, options: StoreOptions) -> MessageStore:
        kind = ReplicaStore if options.is_slave else MessageStore
        return kind(
            options,
            clock=self._clock,
            keeps_from=lambda: self.archive_guard.keeps_from(),
            find_unread=lambda: self.unread.first(),
            clear_below=lambda end: self.timers.clear_below(end) & self.journal.clear_below(end),
            on_arrival=self._arrived,
            deliver=self._deliver,
            entry_codes=entry_codes(self._levels),
            filter_bitmap=self._filters.bitmap if self.options.enable_calc_filter_bit_map else no_bitmap,
            holds_back=self.election is not None,
        )

    def _make_access(self, store_options: StoreOptions) -> AccessControl:
        named = self.options.rocketmq_home
        home = Path(named).expanduser() if named else store_options.root.parent
        places = AclPlaces(home / self.options.acl_file, home / "conf" / "acl")
        return AccessControl(places, self.router.requests, partial(topic_at, self.store), self._clock)

    def _make_role(self, configuration: Path | None) -> Role | Elected:
        if self.election is not None:
            return self._make_elected(self.election)
        if not isinstance(self.store, ReplicaStore):
            return MasterRole(
                self.options, self.identity, self._record, self._remoting, lambda: self._step_down(self.not_serving)
            )
        return SlaveRole(
            self.store,
            self.options,
            self.identity,
            self._record,
            self._remoting,
            self._clock,
            configuration,
            self._copied_tables,
            refusal=self._sending.refusal,
            register=self._register_now,
            serving_changed=self._serving_changed,
            become=self._become,
        )

    @property
    def _copied_tables(
        self,
    ) -> tuple[Topics, Groups, ConsumerOffsets, DelayedDelivery, TimerDelivery, RequestModes, Orders]:
        return self.topics, self.groups, self.offsets, self._delayed, self.timers, self._modes, self._orders

    def _make_elected(self, election: Election) -> Elected:
        if not isinstance(self.store, ReplicaStore):
            return ElectedMaster(
                election, self.store, self.identity, self.replicas, self._become, self._serving_changed, self._step_down
            )
        return ElectedSlave(
            election, self.store, self.identity, self._remoting, self._copied_tables, become=self._become,
            serving_changed=self._serving_changed, refuse_send=self._sending.refusal,
        )  # fmt: skip

    def _make_front(self, backend: LocalBackend, tls: TlsOptions | None, limits: ConnectionOptions | None) -> Front:
        """The front for clients of RocketMQ 5."""
        from orbitmq.proxy.front import Front  # it needs Protobuf, which takes 50 ms to import

        certificate = ServerTls(tls) if tls is not None else None
        return Front(
            backend, self._clock, host=self.options.broker_ip1, tls=certificate, limits=limits or ConnectionOptions(),
            refusals=self.refusals,
        )  # fmt: skip

    def _make_registrar(self) -> Registrar:
        role, options = self.role, self.options
        return Registrar(
            self._remoting,
            options.name_servers,
            self._identity,
            RegisteredTopics(self.topics, options).body,
            version=(lambda: self.topics.version) if role.is_master and not options.force_register else None,
            take_order=self.topics.take_order,
            take_master=role.take_master,
            is_withheld=lambda: bool(role.not_serving),
            must_tell_all=role.must_register_anew,
            period_ms=options.register_period_ms,
            timeout_ms=options.register_timeout_ms,
        )

    # ------------------------------------------------------------------------------------------------------- events

    def _identity(self) -> RegisterBrokerHeader:
        return RegisterBrokerHeader(
            self.identity.name,
            self.identity.address(),
            self.identity.cluster,
            self.identity.ha_address(),
            self.options.broker_id,
            self.options.compressed_register,
            master_epoch=self.role.epoch,
        )

    def _step_down(self, reason: str) -> Coroutine[None, None, None]:
        """A later master is known: stop serving, replicating and registering."""
        self.store.take_no_more(reason)
        self._registrar.abandon()  # a goodbye would take the later master's entry out of RocketMQ's name servers
        self.held.release_all()
        self._popping.waiting.release_all()
        return self._end_masters_work()

    async def _end_masters_work(self) -> None:
        for server in self.options.name_servers:
            self._remoting.disconnect(server)
        await self._delayed.stop()
        await self.timers.stop()
        await self.revival.stop()
        await self.transactions.checking.stop()
        await self.replicas.stop()
        if self.front is not None:
            await self.front.stop()  # its clients know no route: they look elsewhere only without a connection

    async def _serving_changed(self) -> None:
        if self.not_serving:
            self.held.release_all()
            self._popping.waiting.release_all()
            await self._registrar.leave()
        else:
            await self._registrar.again()

    async def _register_now(self) -> None:
        await self._registrar.again()

    def _become(self, role: str) -> None:
        """The owner of this broker must stop it and start its `successor`."""
        options = self.options.replace(broker_id=0, listen_port=self.port)
        self.successor = options, self.store.options.replace(broker_role=role)
        self.superseded.set()

    def _closed(self, connection: Connection) -> None:
        self.presence.forget_client(connection)
        self._popping.waiting.leave(connection)

    def _forget_topic(self, name: str) -> None:
        """What POP consumption knows of a topic that is deleted."""
        self.journal.forget_topic(name)
        self._orders.forget_topic(name)

    def _topic_changed(self, config: TopicConfig | None) -> None:
        self._registrar.topic_changed(config)

    def _settings_changed(self, keys: set[str]) -> None:
        self._sending.take_settings()
        if "brokerPermission" in keys:
            self.topics.touch()  # every topic is registered anew, with the new permission

    def _arrived(self, topic: str, queue_id: int, next_offset: int, codes: Sequence[int], _stored_ms: int) -> None:
        self.held.arrived(topic, queue_id, next_offset, codes)
        self._popping.waiting.arrived(topic, queue_id, codes)
        if self.replicas.links:
            self.replicas.wake()
        if self._copying is not None:
            self._copying.arrived(topic)
        if topic == TIMER_TOPIC:
            self.timers.arrived()

    def _deliver(self, callback: Callable[[], object]) -> None:
        """Flush workers call from their own threads; ignore calls after the event loop has ended."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)

    def _queues_of(self, topic: str, group: str) -> int:
        return self.topics.queues(topic) if group in self.groups.table else 0

    def _replication_metrics(self) -> dict[str, str]:
        elected = election_metrics(self.role) if isinstance(self.role, ElectedMaster | ElectedSlave) else {}
        return replication_metrics(self.store, self.replicas, self.role) | elected
