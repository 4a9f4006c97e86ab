"""Whether a slave may be read from: as long as its log is known to be a prefix of its master's.

A former master's store, or one that differs, has messages that the master never had, at offsets that refer to others
there. Such a slave is in no route, serves nothing, and replicates nothing further. A slave that was ready before a
restart is ready at once, also while its master is down.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable

from orbitmq.broker.mastership.record import MastershipRecord
from orbitmq.errors import BrokerError, OrbitMQError, RequestRejected
from orbitmq.message.hosts import address_text
from orbitmq.message.model import MASTER_ID
from orbitmq.net.connection import Connection
from orbitmq.net.remoting import Remoting, split_address
from orbitmq.net.routing import Router
from orbitmq.operations.mastership import broker_role, exchange_mastership
from orbitmq.operations.routes import cluster_info
from orbitmq.operations.settings import broker_settings
from orbitmq.replication.slave import REPLICATION_DISTANCE
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers_namesrv import RegisterBrokerResponseHeader
from orbitmq.wire.mastership import BrokerMastershipHeader
from orbitmq.wire.requests import RequestCode

_log = logging.getLogger(__name__)

ASK_MS = 3000.0


class Readiness:
    """`replication.slave` reports the result of the comparison. `reason` says why nothing is served, "" while it is;
    `changed` is awaited when that changes.
    """

    def __init__(
        self,
        name: str,
        record: MastershipRecord,
        remoting: Remoting,
        address: Callable[[], str],
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        self._name = name
        self._record = record
        self._remoting = remoting
        self._address = address
        self._changed = changed
        self._refusal = ""
        self._epoch, self._role = record.known.epoch, record.known.master_role  # of the master that was greeted last
        self.reason = "" if record.known.follows else f"this slave of {name} has not been compared with its master yet"

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.EXCHANGE_MASTERSHIP, self.exchange)

    def exchange(self, _connection: Connection, command: Command) -> Command:
        """A master asks whether this broker is a master, too."""
        if (name := command.header(BrokerMastershipHeader).broker_name) != self._name:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"this is {self._name}, not {name}")
        return command.response(ResponseCode.SUCCESS, header=self._own)

    @property
    def _own(self) -> BrokerMastershipHeader:
        known = self._record.known
        return BrokerMastershipHeader(
            self._name, self._address(), is_master=False, epoch=known.epoch, refusal=self._refusal, resigned=known.led
        )

    async def greet(self, master: str) -> None:
        """Fetch the master's epoch and role, and report this broker's. ConnectionError if it is a former master."""
        try:
            other = await exchange_mastership(self._remoting, master, self._own, timeout_ms=ASK_MS)
        except BrokerError as error:
            other = None
            _log.warning("event=master_standing_unknown master=%s error=%s", master, error)
        if other is not None:
            if other.refusal or other.epoch < self._record.known.epoch:
                raise ConnectionError(f"the broker at {master} is not the master of {self._name} any more")
            self._epoch = other.epoch
        with contextlib.suppress(BrokerError):  # it does not report its settings
            self._role = await broker_role(self._remoting, master, timeout_ms=ASK_MS) or self._role

    async def find_master(self, servers: list[str]) -> RegisterBrokerResponseHeader | None:
        """The replication address that name servers list. A registered slave gets it in the response; one that must not
        register looks up the master and assumes its replication port is one above, as in every broker.
        """
        for server in servers:
            with contextlib.suppress(OrbitMQError):
                brokers = (await cluster_info(self._remoting, server, timeout_ms=ASK_MS)).brokers
                found = brokers.get(self._name)
                address = found.addresses.get(MASTER_ID) if found is not None else None
                if address is not None and address != self._address():
                    host, port = split_address(address)
                    host = await self._host_for_slaves(address) or host
                    return RegisterBrokerResponseHeader(address_text(host, port + REPLICATION_DISTANCE), address)
        return None

    async def _host_for_slaves(self, master: str) -> str:
        """The master's brokerIP2; "" if it has none, or does not report it."""
        try:
            return (await broker_settings(self._remoting, master, timeout_ms=ASK_MS)).values.get("brokerIP2", "")
        except OrbitMQError:
            return ""

    async def agreed(self) -> None:
        """This log is the beginning of that of the master that was greeted."""
        self._refusal = ""
        epoch = max(self._epoch, self._record.known.epoch)
        await self._record.note(follows=True, led=False, superseded_by="", epoch=epoch, master_role=self._role)
        await self._become("")

    async def refused(self, master: str, reason: str) -> None:
        """The slave is not ready. Call this repeatedly, so that the master's operator sees it, too."""
        self._refusal = reason
        await self._record.note(follows=False)
        await self._become(f"this slave of {self._name} does not follow its master: {reason}")
        with contextlib.suppress(OrbitMQError):
            await exchange_mastership(self._remoting, master, self._own, timeout_ms=ASK_MS)

    async def _become(self, reason: str) -> None:
        turned = bool(reason) is not bool(self.reason)
        self.reason = reason
        if turned:
            _log.warning("event=slave_readable name=%s readable=%s", self._name, str(not reason).lower())
            await self._changed()
