"""Builds, starts and stops the parts of a broker, in order. No part knows this file."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import cast

from orbitmq.broker.access.administration import AccessAdministration
from orbitmq.broker.access.control import AccessControl
from orbitmq.broker.access.files import AclPlaces
from orbitmq.broker.access.stored import StoredTopics
from orbitmq.broker.administration import Administration
from orbitmq.broker.archive_guard import LOOK_SECONDS as GUARD_SECONDS
from orbitmq.broker.archive_guard import ArchiveGuard
from orbitmq.broker.clients import Consumers, Producers
from orbitmq.broker.delay import DelayedDelivery
from orbitmq.broker.figures import Figures
from orbitmq.broker.filters import Filters
from orbitmq.broker.group_administration import GroupAdministration
from orbitmq.broker.group_reports import GroupReports
from orbitmq.broker.groups import Groups
from orbitmq.broker.locks import QueueLocks
from orbitmq.broker.mastership.fence import BEAT_SECONDS, CHANGES, PROGRESS, READS, SENDS, TABLES, Fence
from orbitmq.broker.mastership.record import MastershipRecord
from orbitmq.broker.mastership.watch import MasterWatch
from orbitmq.broker.membership import Membership
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.ports import bind_ports, host_field
from orbitmq.broker.pulling import SCAN_SECONDS, Pulling
from orbitmq.broker.querying import Querying
from orbitmq.broker.registered import RegisteredTopics
from orbitmq.broker.registration import Registrar
from orbitmq.broker.relaying import Relaying
from orbitmq.broker.replies import Replies
from orbitmq.broker.restoring import Restoring
from orbitmq.broker.resumption import WINDOW_S, Resumption
from orbitmq.broker.selecting import Selecting
from orbitmq.broker.sendback import SendingBack
from orbitmq.broker.sending import Sending
from orbitmq.broker.settings import Settings
from orbitmq.broker.slave.figures import replication_figures
from orbitmq.broker.slave.kept_role import is_fresh, settle_role, with_fitting_id, with_kept_role
from orbitmq.broker.slave.metadata import MetadataCopy
from orbitmq.broker.slave.promotion import Promotion
from orbitmq.broker.slave.readiness import Readiness
from orbitmq.broker.slave.refusals import refuse_masters_work, refuse_promotion
from orbitmq.broker.slow_groups import LOOK_SECONDS, SlowGroups
from orbitmq.broker.statistics import Statistics
from orbitmq.broker.topic_reports import TopicReports
from orbitmq.broker.topics import Topics
from orbitmq.broker.transactions.transactions import Transactions
from orbitmq.broker.unread import UnreadMessages
from orbitmq.broker.waits import limit_requests
from orbitmq.broker.writing import Writing
from orbitmq.errors import StoreStuck
from orbitmq.message.config import TopicConfig
from orbitmq.message.delay import parse_delay_levels
from orbitmq.message.hosts import address_text
from orbitmq.net.connection import Connection
from orbitmq.net.connection_options import ConnectionOptions
from orbitmq.net.remoting import Remoting
from orbitmq.net.routing import Router
from orbitmq.net.server import Server
from orbitmq.net.tls import ServerTls, client_context
from orbitmq.net.tls_options import TlsOptions
from orbitmq.replication.master import Replicas, networks_of
from orbitmq.replication.slave import Following
from orbitmq.runtime.clock import Clock, SystemClock
from orbitmq.runtime.options import as_text
from orbitmq.runtime.periodic import Periodic
from orbitmq.runtime.refusals import Refusals
from orbitmq.store.dispatch import no_bitmap
from orbitmq.store.engine import MessageStore
from orbitmq.store.options import StoreOptions
from orbitmq.store.replica import ReplicaStore
from orbitmq.wire.headers_namesrv import RegisterBrokerHeader, RegisterBrokerResponseHeader

_log = logging.getLogger(__name__)

WAIT_SCAN_SECONDS = 0.1  # how late a send may learn that its flush takes too long
CLIENT_SCAN_SECONDS = 10.0
FILTER_SAVE_SECONDS = 10.0  # as in RocketMQ
LOCK_SWEEP_SECONDS = 60.0
LOOK_MS = 3000  # for another master, at the start
SAVE_AGAIN_SECONDS = 5.0  # as often as offsets are saved anyway
CHANGES_SECONDS = 10.0  # for what administrators asked for last: a topic of thousands of queues takes seconds
DRAIN_SECONDS = 5.0  # for slaves to get the last messages: whoever takes over then has all of them
STOP_PATIENCE_SECONDS = 60.0  # a slow disk writes a gigabyte of dirty pages meanwhile; a disk that hangs never ends


class Broker:
    """One broker. `start` returns when it serves; `stop` when everything is on disk.

    `configuration` is the file the options came from: it learns what tools change. Without `tls` connections are plain.
    Whether clients are alive goes by `presence_clock`, `clock` unless a test turns only the other. When `superseded` is
    set, a slave has been promoted: it is to be stopped, and a broker with the options in `successor` to be started.
    """

    def __init__(
        self,
        options: BrokerOptions,
        store_options: StoreOptions,
        clock: Clock | None = None,
        configuration: Path | None = None,
        tls: TlsOptions | None = None,
        *,
        presence_clock: Clock | None = None,
        connections: ConnectionOptions | None = None,
    ) -> None:
        if not options.broker_name:
            options = options.replace(broker_name=socket.gethostname())
        store_options = with_kept_role(store_options)
        options = with_fitting_id(options, store_options)
        self.options = options
        self._record = MastershipRecord(store_options)
        self.port = 0
        self.refusals = Refusals()
        self._clock = clock or SystemClock()
        self._presence_clock = presence_clock or self._clock
        config = store_options.root / "config"
        self._levels = parse_delay_levels(options.message_delay_level)
        light = store_options.enable_lmq
        self.topics = Topics(
            config, options, self._clock, self._topic_changed, with_light_queues=light, refusals=self.refusals
        )
        self.groups = Groups(config, options, self._clock, with_light_queues=light, refusals=self.refusals)
        self.offsets = ConsumerOffsets(
            config, with_light_queues=light, options=options, refusals=self.refusals,
            queues=lambda topic, group: self.topics.queues(topic) if group in self.groups.table else 0,
        )  # fmt: skip
        self.producers = Producers(refusals=self.refusals)
        self._filters = Filters(config, options, self._clock, self.refusals)
        self.consumers = Consumers(self._wants_notice, gone=self._filters.group_gone, refusals=self.refusals)
        self.archive_guard = ArchiveGuard(lambda: self.store, self.topics, self.offsets, options)
        self.unread = UnreadMessages(
            lambda: self.store, self.offsets, self.groups, self.consumers, self.archive_guard,
            delay_offsets=lambda: self.delay_offsets, is_blind=lambda: self._restoring.is_progress_lost,
        )  # fmt: skip
        kind = ReplicaStore if store_options.is_slave else MessageStore
        self.store = kind(
            store_options,
            clock=self._clock,
            keeps_from=self.archive_guard.keeps_from,
            find_unread=self.unread.first,
            on_arrival=self._arrived,
            deliver=self._deliver,
            delay_levels=self._levels,
            filter_bitmap=self._filters.bitmap if options.enable_calc_filter_bit_map else no_bitmap,
        )
        self._delayed = DelayedDelivery(
            self.store, self._levels, config, self._clock, lambda topic, size: self.statistics.delivered(topic, size)
        )
        self._files = (self.topics.file, self.groups.file, self.offsets.file, self._delayed.file, self._filters.file)
        self._locks = QueueLocks(options.lock_max_live_ms, refusals=self.refusals)
        self.router = Router("broker")
        self._access = self._make_access(store_options) if options.acl_enable else None
        # A signature covers every field as it was sent, so nothing is read straight into typed headers then.
        self._server = Server(
            self.router,
            on_close=self._client_gone,
            typed=self._access is None,
            tls=ServerTls(tls) if tls is not None else None,
            limits=connections,
            refusals=self.refusals,
        )
        self.connections, self.budgets = self._server.connections, self._server.budgets
        self._remoting = Remoting(tls=client_context(tls) if tls is not None and tls.asks_with_tls else None)
        self._restoring = Restoring(
            self.store, self.topics, self.groups, self.offsets, self._delayed, self._files, self._remoting
        )
        self._periodic = Periodic()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._registrar: Registrar | None = None
        self.statistics = Statistics(self.store, options.broker_cluster_name, self._clock, with_light_queues=light)
        told = {"useTLS": as_text(tls is not None and tls.asks_with_tls)}
        self._settings = Settings((options, store_options), self._clock, self._settings_changed, told, configuration)
        networks = networks_of(store_options.ha_slave_addresses, only_local=options.acl_enable)
        self.replicas = Replicas(self.store, store_options, self._clock, networks)
        self._copying: MetadataCopy | None = None
        self.successor: tuple[BrokerOptions, StoreOptions] | None = None
        self.superseded = asyncio.Event()
        self._master = RegisterBrokerResponseHeader()  # what name servers say of a slave's
        self._writing = Writing(self.store, len(self._levels), self.statistics, self.replicas, self.refusals)
        self.transactions = Transactions(
            self.store, self._writing, self.topics, self.offsets, self.producers, options, self._clock
        )
        self._sending = Sending(
            self._writing, self.topics, self.groups, options, self._clock, self.transactions.prepare
        )
        self._resumption = Resumption(self.store, self.offsets)
        self._pulling = Pulling(
            self.store, self.topics, self.groups, Selecting(self.consumers, self._filters, options, self.refusals),
            self.offsets, options, self._clock, self.statistics, self._resumption, refusals=self.refusals,
        )  # fmt: skip
        self.held, self.lateness = self._pulling.held, self._server.lateness
        self._slow_groups = SlowGroups(self.store, self.offsets, self.consumers, self.groups, options)
        self._add_handlers()
        self.watch: MasterWatch | None = None
        self.readiness: Readiness | None = None
        self.following = self._make_following(configuration) if isinstance(self.store, ReplicaStore) else None
        if self.following is None:
            self.watch = self._make_watch()
        self._fence = self._make_fence()
        if self._access is not None:
            self.router.guard(self._access.check)
        limit_requests(self.router, options, self.refusals)

    @property
    def address(self) -> str:
        """What clients are told: brokerIP1 and the port."""
        return address_text(self.options.broker_ip1, self.port)

    @property
    def delay_offsets(self) -> Mapping[int, int]:
        """Delay level -> how far its queue has been delivered."""
        return self._delayed.offsets

    async def start(self) -> None:
        """Take the port, open the store, serve, register. What fails leaves nothing behind."""
        self._loop = asyncio.get_running_loop()
        if self._access is not None:
            await asyncio.to_thread(self._access.load)
        self.port = await bind_ports(self._server, self.replicas, self.options)
        try:
            if self.watch is not None:
                await self.watch.begin(self._clock.now_ms())
            host = await host_field(self.options.broker_ip1, self.port)
            self._sending.store_host = self._pulling.store_host = host
            self.transactions.use_host(host)
            await asyncio.to_thread(self._filters.load)  # first: the store makes bitmaps again that a crash took
            await asyncio.to_thread(self.store.open)
            await asyncio.to_thread(self._load)
            await self._restoring.restore(self.options.broker_name, () if self.following else self.options.name_servers)
            if self.following is None:
                await self.transactions.checking.restore()
            await self._resumption.clients_come(self._loop.time())
            self._start_jobs()
            await self._server.serve()
            await self.replicas.serve()
            self._registrar = self._make_registrar()
            await self._registrar.start()
            if self.watch is not None:
                self.watch.start()
            if self.following is not None:
                self.following.start()
                self._copying = self._make_copying(self.following)
                self._copying.start()
        except BaseException:
            await self._abandon()
            raise
        _log.info("event=broker_started name=%s address=%s", self.options.broker_name, self.address)

    async def _stop_access(self) -> None:
        if self._access is not None:
            await self._access.stop()

    async def _abandon(self) -> None:
        """End what has begun. No table is written: one that cannot be read must stay as it is."""
        await self._periodic.stop()
        await self._stop_watch()
        await self.replicas.stop()
        await self._stop_copying()
        await self._stop_access()
        await self._delayed.stop()
        await self.transactions.checking.stop()
        await self._server.stop(0)
        await self.router.finishing.abandon()
        await self._remoting.close()
        await self._in_time(asyncio.to_thread(self.store.close))

    async def stop(self) -> None:
        """Leave the routes, answer what waits, save everything, close the store. StoreStuck when the disk does not
        answer.
        """
        if self._registrar is not None:
            await self._registrar.stop()
        await self._periodic.stop()
        await self._stop_watch()
        await self._stop_copying()
        await self._stop_access()
        await self._delayed.stop()
        await self.transactions.checking.stop()
        self._pulling.held.release_all()
        await self._server.stop()
        await self._end_changes()
        await self.replicas.stop(DRAIN_SECONDS)
        await self._remoting.close()
        await self._in_time(self._finish())
        _log.info("event=broker_stopped name=%s", self.options.broker_name)

    async def _stop_watch(self) -> None:
        if self.watch is not None:
            await self.watch.stop()

    async def _end_changes(self) -> None:
        """What was asked for on connections that are gone comes to its end before slaves are left behind."""
        try:
            async with asyncio.timeout(CHANGES_SECONDS):
                await self.router.finishing.settled()
        except TimeoutError:
            _log.warning("event=changes_abandoned after_s=%g", CHANGES_SECONDS)
            await self.router.finishing.abandon()

    async def _stop_copying(self) -> None:
        if self._copying is not None:
            await self._copying.stop()
        if self.following is not None:
            await self.following.stop()

    async def announced(self) -> None:
        """Return when topics made so far are known to every name server that answers."""
        if self._registrar is not None:
            await self._registrar.settled()

    async def kill(self) -> None:
        """End at once, as far as one can in a living process: nobody is told, no table is written."""
        if self._registrar is not None:
            self._registrar.abandon()
        await self._abandon()

    async def _finish(self) -> None:
        """Everything to the disk."""
        self.transactions.checking.note_progress()
        await self._writing.flushed()
        self.transactions.checking.note_progress()
        await self._save()
        await asyncio.to_thread(self.store.close)

    async def _in_time(self, work: Awaitable[None]) -> None:
        """StoreStuck when the disk takes longer than anybody would wait."""
        try:
            async with asyncio.timeout(STOP_PATIENCE_SECONDS):
                await work
        except TimeoutError as error:
            missing = self.store.commit_log_max_offset - self.store.flushed_offset
            raise StoreStuck(
                f"the disk below {self.store.options.root} has not answered for {STOP_PATIENCE_SECONDS:g} s, {missing} "
                "bytes of the log are not known to be on it; the next start looks the store over as after a crash"
            ) from error

    # ------------------------------------------------------------------------------------------------------- wiring

    def _load(self) -> None:
        self.topics.load()
        self.groups.load()
        self.offsets.load()
        if self.following is not None:
            self.offsets.remember_commits()
            self._resumption.settle()  # left from when it was the master
        else:
            self._resumption.begin(at_other_master=is_fresh(self.store.options), was_killed=self.store.was_killed)
        self._delayed.load()

    async def _save(self) -> None:
        """Write every table once more. What cannot be written is logged there and keeps nothing else from closing."""
        for file in self._files:
            file.mark()
        await asyncio.gather(*(file.flush() for file in self._files), return_exceptions=True)

    def _save_again(self) -> None:
        """What could not be written, because the disk was full, must not wait for the next change."""
        for file in self._files:
            file.retry()

    def _add_handlers(self) -> None:
        querying = Querying(self.store, self.offsets, self._resumption, self._clock)
        self.searches = querying.searches
        handlers = (
            self._sending,
            self._pulling,
            Replies(self._sending, self._writing, self.producers, self.options, self._clock),
            self.transactions,
            querying,
            Membership(
                self.producers,
                self.consumers,
                self.groups,
                self.topics,
                self._locks,
                self._filters,
                self._presence_clock,
            ),
            SendingBack(self.store, self._writing, self.topics, self.groups, self.options, self.statistics),
            Administration(self.topics, self.groups, self.offsets, self.store, self.statistics),
            AccessAdministration(self._access, self._name_address_cluster),
            GroupAdministration(
                self.store,
                self.topics,
                self.offsets,
                self.producers,
                self.consumers,
                self.options.broker_name,
                self._resumption,
                self.statistics.consume_tps,
            ),
            Relaying(self.store, self.consumers, self.options.broker_name),
            self._settings,
            TopicReports(
                self.topics,
                self.consumers,
                self.offsets,
                self.store,
                self.options.broker_name,
                self._clock,
                self._filters,
                self._resumption,
            ),
            GroupReports(
                self.topics,
                self.groups,
                self.producers,
                self.consumers,
                self.offsets,
                self.store,
                self.statistics,
                self.options.broker_name,
                delay_offsets=lambda: self.delay_offsets,
                address=lambda: self.address,
            ),
            Figures(
                self.statistics,
                self.store,
                self.offsets,
                self.consumers,
                self.options,
                querying.searches,
                self._clock,
                delay_offsets=lambda: self.delay_offsets,
                lateness=self.lateness,
                damage=self._restoring.damage,
                guard=self.archive_guard,
                replication=lambda: replication_figures(
                    self.store, self.replicas, self.following, self.watch, self.not_serving
                ),
            ),
        )
        for handler in handlers:
            handler.add_to(self.router)

    def _start_jobs(self) -> None:
        periodic = self._periodic
        self._fence.begin()
        periodic.every(BEAT_SECONDS, self._fence.beat)
        periodic.every(SCAN_SECONDS, self._pulling.scan)
        periodic.every(WAIT_SCAN_SECONDS, self._writing.expire)
        periodic.every(CLIENT_SCAN_SECONDS, self._close_expired_clients)
        periodic.every(1, self.statistics.tick)
        periodic.every(LOOK_SECONDS, self._slow_groups.look)
        periodic.every(GUARD_SECONDS, self.archive_guard.look)
        periodic.every(LOCK_SWEEP_SECONDS, lambda: self._locks.sweep(self._presence_clock.now_ms()))
        periodic.every(SAVE_AGAIN_SECONDS, self._save_again)
        periodic.every(FILTER_SAVE_SECONDS, self._filters.save_soon)
        if self.following is None:
            # Once would do; later looks at the file are cheaper than a job of another kind.
            periodic.every(WINDOW_S, lambda: asyncio.to_thread(self._settle))
        periodic.every(self.options.flush_consumer_offset_interval_ms / 1000, self.offsets.save_soon)
        periodic.every(self.options.flush_delay_offset_interval_ms / 1000, self._delayed.save_soon)
        periodic.start()
        if self._access is not None:
            self._access.start()
        if self.following is None:
            self._delayed.start()
            self.transactions.checking.start()

    def _settle(self) -> None:
        """Forget the former master: clients have moved to this one. For any thread."""
        settle_role(self.store.options)
        self._resumption.settle()

    def _make_registrar(self) -> Registrar:
        return Registrar(
            self._remoting,
            self.options.name_servers,
            self._identity,
            RegisteredTopics(self.topics, self.options).body,
            version=None if self.options.force_register or self.following is not None else lambda: self.topics.version,
            take_order=self.topics.take_order,
            take_master=self._take_master if self.watch is None else self.watch.told,
            is_withheld=lambda: bool(self.not_serving),
            must_tell_all=None if self.watch is None else self.watch.must_register_anew,
            period_ms=self.options.register_period_ms,
            timeout_ms=self.options.register_timeout_ms,
        )

    def _identity(self) -> RegisterBrokerHeader:
        options = self.options
        ha_address = address_text(options.broker_ip2 or options.broker_ip1, self.port + 1)
        return RegisterBrokerHeader(
            options.broker_name,
            self.address,
            options.broker_cluster_name,
            ha_address,
            options.broker_id,
            options.compressed_register,
            master_epoch=None if self.watch is None else self.watch.epoch,
        )

    def _take_master(self, found: RegisterBrokerResponseHeader) -> None:
        if found.ha_server_addr and found.master_addr:
            self._master = found

    def _make_following(self, configuration: Path | None) -> Following:
        assert isinstance(self.store, ReplicaStore)
        refuse_masters_work(self.router, self.options.broker_name, self._sending.refusal)
        self.readiness = Readiness(
            self.options.broker_name, self._record, self._remoting, lambda: self.address, self._readiness_changed
        )
        self.readiness.add_to(self.router)
        following = Following(
            self.store, self.store.options, self._remoting, lambda: self._master.ha_server_addr, self._find_master,
            self.readiness,
        )  # fmt: skip
        Promotion(
            self.store, following, self.topics, self.options, lambda: self.address, self._remoting, configuration,
            self._become, self._record, self._clock,
        ).add_to(self.router)  # fmt: skip
        return following

    def _make_watch(self) -> MasterWatch:
        name = self.options.broker_name
        refuse_promotion(self.router, name)
        watch = MasterWatch(
            name, self.options.name_servers, self._record, self._remoting, lambda: self.address, self._step_down
        )
        watch.add_to(self.router)
        return watch

    def _make_fence(self) -> Fence:
        confirm = None if self.watch is None else self.watch.confirm
        fence = Fence(lambda: self.not_serving, self._sending.refusal, confirm)
        fence.put_around(self.router, (*READS, *PROGRESS))
        if self.following is None:
            fence.put_around(self.router, (*SENDS, *CHANGES, *TABLES))
        return fence

    @property
    def not_serving(self) -> str:
        """Why this broker serves no messages: another master was promoted, or this slave does not follow; "" else."""
        if self.watch is not None:
            return self.watch.superseded
        return self.readiness.reason if self.readiness is not None else ""

    def _step_down(self) -> Coroutine[None, None, None]:
        """A later master is known: nothing goes in or out any more, and name servers are told nothing."""
        self.store.take_no_more(self.not_serving)
        if self._registrar is not None:
            self._registrar.abandon()  # a goodbye would take the later master's entry out of RocketMQ's name servers
        self._pulling.held.release_all()
        return self._end_masters_work()

    async def _end_masters_work(self) -> None:
        for server in self.options.name_servers:
            self._remoting.disconnect(server)
        await self._delayed.stop()
        await self.transactions.checking.stop()
        await self.replicas.stop()

    async def _readiness_changed(self) -> None:
        if self._registrar is None:
            return
        if self.not_serving:
            self._pulling.held.release_all()
            await self._registrar.leave()
        else:
            await self._registrar.again()

    async def _find_master(self) -> None:
        assert self.readiness is not None
        if not self.not_serving:
            await self._register_again()
        elif (found := await self.readiness.find_master(self.options.name_servers)) is not None:
            self._master = found

    def _become(self, role: str) -> None:
        """Whoever runs this broker is to stop it and to start its `successor`."""
        options = self.options.replace(broker_id=0, listen_port=self.port)
        self.successor = options, self.store.options.replace(broker_role=role)
        self.superseded.set()

    def _make_copying(self, following: Following) -> MetadataCopy:
        replica = cast("ReplicaStore", self.store)
        return MetadataCopy(
            self._remoting,
            lambda: following.master_address if following.is_following else None,
            self.topics,
            self.groups,
            self.offsets,
            self._delayed,
            following.state,
            following.look,
            lambda: replica.copied_to,
            self.store.max_offset,
        )

    async def _register_again(self) -> None:
        if self._registrar is not None:
            await self._registrar.again()

    def _name_address_cluster(self) -> tuple[str, str, str]:
        return self.options.broker_name, self.address, self.options.broker_cluster_name

    def _make_access(self, store_options: StoreOptions) -> AccessControl:
        named = self.options.rocketmq_home
        home = Path(named).expanduser() if named else store_options.root.parent
        places = AclPlaces(home / self.options.acl_file, home / "conf" / "acl")
        return AccessControl(places, self.router.handlers, StoredTopics(self.store).topic_at, self._clock)

    # ------------------------------------------------------------------------------------------------------- events

    def _topic_changed(self, config: TopicConfig | None) -> None:
        if self._registrar is not None:
            self._registrar.topic_changed(config)

    def _settings_changed(self, keys: set[str]) -> None:
        self._sending.take_settings()
        if "brokerPermission" in keys:
            self.topics.touch()  # every topic is registered anew, with the new permission

    def _arrived(self, topic: str, queue_id: int, next_offset: int, codes: Sequence[int], _stored_ms: int) -> None:
        self._pulling.held.arrived(topic, queue_id, next_offset, codes)
        if self.replicas.links:
            self.replicas.wake()
        if self._copying is not None:
            self._copying.arrived(topic)

    def _deliver(self, callback: Callable[[], object]) -> None:
        """Flush workers call from their own threads; a loop that has ended wants to hear nothing."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)

    def _wants_notice(self, group: str) -> bool:
        config = self.groups.table.get(group)
        return self.options.notify_consumer_ids_changed and (config is None or config.notify_consumer_ids_changed)

    def _client_gone(self, connection: Connection) -> None:
        more = self.producers.forget(connection)
        if self.consumers.forget(connection) or more:
            asyncio.get_running_loop().call_soon(self._client_gone, connection)

    def _close_expired_clients(self) -> None:
        now_ms = self._presence_clock.now_ms()
        for connection in self.producers.expired(now_ms) | self.consumers.expired(now_ms):
            _log.info("event=client_expired peer=%s", connection.address)
            self._client_gone(connection)
            connection.close()
