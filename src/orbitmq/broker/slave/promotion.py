"""Promotes a slave to the master of its broker name: checks whether that is safe, then restarts the broker as a master.

Two masters of one name would assign the same offsets to different messages, so no promotion is made while a master
responds. Any other doubt is a message that `force` overrides: a master that may be alive behind a network partition,
messages of the master that this slave lacks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from orbitmq.broker.mastership.record import MastershipRecord
from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.settings import rewrite_configuration
from orbitmq.broker.slave.kept_role import keep_role
from orbitmq.broker.table_recovery import find_topics
from orbitmq.broker.topics import Topics
from orbitmq.errors import ConfigurationError, OrbitMQError, RequestRejected
from orbitmq.message.model import MASTER_ID
from orbitmq.net.connection import Connection
from orbitmq.net.remoting import Remoting
from orbitmq.net.routing import Router
from orbitmq.operations.mastership import has_other_name
from orbitmq.operations.routes import cluster_info
from orbitmq.operations.statistics import probe
from orbitmq.replication.agreement import log_limits
from orbitmq.replication.slave import Following, is_refused
from orbitmq.runtime.clock import Clock
from orbitmq.runtime.shielded import ShieldedTasks
from orbitmq.store.options import ASYNC_MASTER, SYNC_MASTER
from orbitmq.store.replica import ReplicaStore
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.mastership import PromoteSlaveHeader, PromotionReport
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode

_log = logging.getLogger(__name__)

ASK_MS = 3000
TABLES_OLD_S = 60.0  # six rounds of copying that failed


class Promotion:
    """The handler. `become` is called with the new role after the response, once the `file` is written."""

    def __init__(
        self,
        store: ReplicaStore,
        following: Following,
        topics: Topics,
        options: BrokerOptions,
        address: Callable[[], str],
        remoting: Remoting,
        file: Path | None,
        become: Callable[[str], object],
        record: MastershipRecord,
        clock: Clock,
    ) -> None:
        self._store = store
        self._following = following
        self._topics = topics
        self._options = options
        self._address = address
        self._remoting = remoting
        self._file = file
        self._become = become
        self._record = record
        self._clock = clock
        self._working = asyncio.Lock()
        self._shielded = ShieldedTasks()

    def add_to(self, router: Router) -> None:
        self._shielded = router.shielded
        router.add(RequestCode.PROMOTE_SLAVE, self.promote)

    async def promote(self, connection: Connection, command: Command) -> Command:
        header = command.header(PromoteSlaveHeader)
        async with self._working:
            alive, doubts = await self._master_found()
            doubts += self._doubts_of_log()
            may = alive is None and (header.force or not doubts)
            done = may and not header.dry_run
            role, saved = self._role(header.role), False
            if done:
                # Not interrupted from here on, even if the request is cancelled. Not earlier: asking for the master
                # takes time, and a broker that is stopped in between could not receive the response.
                saved = await self._shielded.run(self._take_over(role, connection, forced=header.force))
        report = self._report(role, alive, doubts, done=done, saved=saved)
        return command.response(ResponseCode.SUCCESS, body=encode(report))

    async def _take_over(self, role: str, connection: Connection, *, forced: bool) -> bool:
        """Become the master; whether the configuration could be rewritten, too."""
        saved = await self._write(role)
        await self._find_topics()
        _log.warning(
            "event=promoted name=%s role=%s log_end=%d forced=%s peer=%s",
            self._options.broker_name, role, self._store.copied_to, forced, connection.address,
        )  # fmt: skip
        self._become(role)
        return saved

    def _role(self, wanted: str) -> str:
        """The broker id of the replaced master, unless another one is requested. RequestRejected if it is invalid."""
        if wanted not in ("", ASYNC_MASTER, SYNC_MASTER):
            remark = f"role {wanted[:100]} is none of a master: {ASYNC_MASTER} or {SYNC_MASTER}"
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, remark)
        return wanted or self._record.known.master_role or ASYNC_MASTER

    def _report(self, role: str, alive: str | None, doubts: list[str], *, done: bool, saved: bool) -> PromotionReport:
        state = self._following.state
        age = asyncio.get_running_loop().time() - state.master_end_at if state.master_end >= 0 else -1
        return PromotionReport(
            broker_name=self._options.broker_name,
            address=self._address(),
            log_end=self._store.copied_to,
            master_end=state.master_end,
            master_end_age_s=int(age),
            missing_bytes=self._missing,
            alive=alive,
            doubts=doubts,
            done=done,
            saved=saved,
            role=role,
            master_role=self._record.known.master_role,
        )

    @property
    def _missing(self) -> int:
        """Bytes the master is known to have had, and this slave has not."""
        return max(0, self._following.state.master_end - self._store.copied_to)

    def _doubts_of_log(self) -> list[str]:
        state = self._following.state
        doubts = []
        if state.refusal:
            doubts.append(f"this log was never the master's: {state.refusal}")
        if state.master_end < 0:
            doubts.append("the master has not responded since this slave started, so it is unknown what is missing")
        elif self._missing:
            doubts.append(f"at least {self._missing} bytes of the master's log are missing here")
        doubts += self._doubts_of_tables()
        if state.was_unreachable:
            doubts.append("replication stopped before the master was found down; it may have stored messages meanwhile")
        return doubts

    def _doubts_of_tables(self) -> list[str]:
        """Without their offsets, consumer groups would start over."""
        state = self._following.state
        if state.master_end < 0:
            return []  # the master was never reached: that doubt has its own message
        if state.tables_at is None:
            return ["topics, groups and offsets of the master have not been copied since this slave started"]
        late = state.master_end_at - state.tables_at
        if late <= TABLES_OLD_S:
            return []
        return [f"topics, groups and offsets were last copied {late:.0f} s before the master was last heard"]

    async def _find_topics(self) -> None:
        """Topics created in the master's last seconds are in the log only: without an entry they could not be read."""
        found = await asyncio.to_thread(self._store.consume_queues.counts)
        await find_topics(self._topics, found)

    async def _master_found(self) -> tuple[str | None, list[str]]:
        """The address of a master of this name that responds, if any, and the doubts about it."""
        doubts: list[str] = []
        listed: set[str] = set()
        others: set[str] = set()
        for server in self._options.name_servers:
            try:
                brokers = (await cluster_info(self._remoting, server, timeout_ms=ASK_MS)).brokers
            except OrbitMQError as error:
                doubts.append(f"name server {server} does not respond, it may know a master: {error}")
                continue
            found = brokers.get(self._options.broker_name)
            for broker_id, address in found.addresses.items() if found is not None else ():
                if broker_id == MASTER_ID:
                    listed.add(address)
                elif address != self._address():
                    others.add(address)
        if (known := self._following.master_address) is not None:
            listed.add(known)
        for address in sorted(listed):
            try:
                answer = await probe(self._remoting, address, ASK_MS)
                if not await has_other_name(self._remoting, address, self._options.broker_name, timeout_ms=ASK_MS):
                    return f"the master at {address} {answer}", doubts
            except OrbitMQError as error:
                if address != known or not is_refused(error):
                    doubts.append(f"the master at {address} does not respond, which may be the network: {error}")
        return None, doubts + [doubt for address in sorted(others) if (doubt := await self._other_slave(address))]

    async def _other_slave(self, address: str) -> str | None:
        """Why another slave may be the better choice."""
        try:
            _, end = await log_limits(self._remoting, address)
        except OrbitMQError as error:
            return f"the slave at {address} does not report its offset: {error}"
        more = end - self._store.copied_to
        return f"the slave at {address} has {more} bytes more: promote that one" if more > 0 else None

    async def _write(self, role: str) -> bool:
        """Save the role, next to the store and in the configuration; returns whether the latter succeeded."""
        try:
            await asyncio.to_thread(keep_role, self._store.options, role)
        except OSError as error:
            remark = f"nothing is changed: the role cannot be kept in the store's directory: {error}"
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, remark) from error
        # After the role: a slave that claims a promotion that did not take place would stop its master.
        former, epoch = self._following.master_address or "", self._record.next_epoch(self._clock.now_ms())
        await self._record.note(epoch=epoch, led=True, follows=False, superseded_by="", former_master=former)
        if self._file is None:
            return False
        try:
            await asyncio.to_thread(rewrite_configuration, self._file, {"brokerRole": role, "brokerId": str(MASTER_ID)})
        except (OSError, ConfigurationError) as error:
            _log.warning("event=configuration_not_written file=%s error=%s", self._file, error)
            return False
        return True
