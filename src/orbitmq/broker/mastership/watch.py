"""Detects other masters of a master's name: through the name servers before each registration and after a pause, and
by polling the former master. This broker steps down for one with a later epoch, and reports all others.

RocketMQ has no epochs: a broker of RocketMQ that claims to be the master is reported, but does not step down.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import NamedTuple

from orbitmq.broker.mastership.record import MastershipRecord
from orbitmq.errors import ConfigurationError, OrbitMQError, RequestRejected
from orbitmq.message.model import MASTER_ID
from orbitmq.net.connection import Connection
from orbitmq.net.remoting import Remoting
from orbitmq.net.routing import Router
from orbitmq.operations.figures import answer_of
from orbitmq.operations.mastership import SLAVE, exchange_mastership, has_other_name
from orbitmq.operations.routes import cluster_info
from orbitmq.operations.settings import broker_settings
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers_namesrv import RegisterBrokerResponseHeader
from orbitmq.wire.mastership import EPOCH_MAX, BrokerMastershipHeader
from orbitmq.wire.requests import RequestCode

_log = logging.getLogger(__name__)

TIMEOUT_MS = 3000.0
JUST_PROMOTED_MS = 10_000  # a promoted store is opened as a master's within this time
CONFIRM_SECONDS = 3.0  # requests wait meanwhile; a master that was just promoted may respond slowly
TRIES, RETRY_SECONDS = 2, 0.1  # a connection may have ended during the pause
ROUND_SECONDS, ROUND_LATER_SECONDS = 1.0, 10.0
SOON_SECONDS = 600.0  # after a start, when a former master is likely to come back
EXPIRY_SECONDS = 60.0  # a refused slave reports every 10 s, another master responds or reports at least every 30 s
SLAVES_MAX = 16  # as many as may replicate
TEXT_LENGTH_MAX = 4096  # of a reason with two addresses in it


class OtherMaster(NamedTuple):
    """Another master of the same name. `serves`: whether it takes messages. `is_trusted`: its address is from a name
    server or is the former master's, so this broker connects to it; one from a request only expires.
    """

    description: str
    serves: bool
    is_trusted: bool
    at: float


class MasterWatch:
    """`stopped` is called once when a later master is known, and its result is awaited in the background; `superseded`
    then names that master.
    """

    def __init__(
        self,
        name: str,
        name_servers: list[str],
        record: MastershipRecord,
        remoting: Remoting,
        address: Callable[[], str],
        stopped: Callable[[], Coroutine[None, None, None]],
    ) -> None:
        self._name = name
        self._name_servers = name_servers
        self._record = record
        self._remoting = remoting
        self._address = address
        self._stopped = stopped
        self.epoch = record.known.epoch
        self.superseded = ""
        self._others: dict[str, OtherMaster] = {}
        self._refused: dict[str, tuple[str, float]] = {}  # slave -> reason, and when it was reported
        self._slaves: dict[str, set[str]] = {}  # name server -> addresses of slaves
        self._poll_task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.EXCHANGE_MASTERSHIP, self.exchange)

    async def begin(self, now_ms: int) -> None:
        """Check before requests are served. If the configuration alone turned a slave's store into a master's, that is a
        promotion. ConfigurationError when this store was superseded, or another master responds.
        """
        known = self._record.known
        if known.superseded_by:
            raise ConfigurationError(
                f"option brokerRole: {self._name} has a later master, {known.superseded_by}, "
                f"{when(known.epoch)}; start this broker as its slave (brokerRole=SLAVE, brokerId=1); if that one "
                "is down for good and you trust this log, promote this slave (orbitmq broker promote --force)"
            )
        # A promotion has already queried the former master, and waited in vain if that is frozen.
        just_promoted = known.led and 0 <= now_ms - known.epoch < JUST_PROMOTED_MS
        await self._refuse_second_master(except_for=known.former_master if just_promoted else "")
        if known.follows:
            await self._record.note(follows=False, led=True, epoch=self._record.next_epoch(now_ms))
        self.epoch = self._record.known.epoch

    async def _refuse_second_master(self, *, except_for: str) -> None:
        """ConfigurationError while another master of this name responds, for example a slave that was promoted: the two
        would give the same offsets to different messages.
        """
        for server in self._name_servers:
            try:
                other = await self._listed(server)
                if other in (None, self._address(), except_for):
                    continue
                answer = await answer_of(self._remoting, other, ASK_MS)
            except OrbitMQError:
                continue  # a broker that is down does not matter
            if await has_other_name(self._remoting, other, self._name, timeout_ms=ASK_MS):
                continue
            raise ConfigurationError(
                f"option brokerName: {self._name} already has a master at {other}, which {answer}; start this "
                "broker as its slave (brokerRole=SLAVE, brokerId=1), or stop that one first"
            )

    def start(self) -> None:
        """Poll the former master until `stop`."""
        self._poll_task = asyncio.get_running_loop().create_task(self._poll())

    async def stop(self) -> None:
        if self._poll_task is not None:
            self._poll_task.cancel()
            await asyncio.gather(self._poll_task, return_exceptions=True)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def own(self) -> BrokerMastershipHeader:
        """What this broker sends to others of the name."""
        return BrokerMastershipHeader(
            self._name, self._address(), is_master=True, epoch=self.epoch, refusal=self.superseded
        )

    @property
    def others(self) -> dict[str, OtherMaster]:
        """Other masters of the name seen within the last minute, by address."""
        since = time.monotonic() - FORGOTTEN_SECONDS
        return {address: other for address, other in self._others.items() if other.at >= since}

    @property
    def refused_slaves(self) -> dict[str, str]:
        """Slaves that reported within the last minute that their log differs, with the reason."""
        since = time.monotonic() - FORGOTTEN_SECONDS
        return {address: reason for address, (reason, at) in self._refused.items() if at >= since}

    # ------------------------------------------------------------------------------------------------------ exchange

    async def needs_full_registration(self, server: str) -> bool:
        """To be called before each registration. True when the name server lists another master, but not a later one:
        then it has to get all topics, even if it knows their version. Sets `superseded` for a later one.
        """
        try:
            listed = await self._listed(server)
        except OrbitMQError:
            return False  # the registration will report it
        if listed is None or listed == self._address():
            return False
        await self._ask(listed)
        return True

    async def confirm(self) -> None:
        """After a pause: find out within CONFIRM_SECONDS whether this is still the master. Slaves listed before and after
        the pause are queried, too: one may have been promoted while name servers still list this broker.
        """
        tasks = [asyncio.create_task(self._confirm_at(server)) for server in self._name_servers]
        tasks += [asyncio.create_task(self._confirm_with(slave)) for slave in self._listed_slaves]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=CONFIRM_SECONDS)
        for task in late:
            task.cancel()
        if len(late) == len(tasks):
            _log.warning("event=master_unconfirmed name=%s reason=no_response", self._name)

    @property
    def _listed_slaves(self) -> set[str]:
        return set[str]().union(*self._slaves.values()) - {self._address()}

    async def _confirm_at(self, server: str) -> None:
        """Return when the name server lists this master, or the listed one has responded. A name server that has just
        started lists none.
        """
        before = self._listed_slaves
        for _ in range(TRIES):
            with contextlib.suppress(OrbitMQError):
                while (listed := await self._listed(server)) != self._address():
                    if listed is not None and await self._ask(listed):
                        return
                    await asyncio.sleep(AGAIN_SECONDS)
                await asyncio.gather(*map(self._confirm_with, self._listed_slaves - before))
                return

    async def _confirm_with(self, slave: str) -> None:
        """Return when it responds: a slave that is promoted closes its ports before it opens them as the master."""
        while True:
            if await self._ask(slave):
                return
            await asyncio.sleep(AGAIN_SECONDS)

    async def _poll_server(self, server: str) -> None:
        with contextlib.suppress(OrbitMQError):
            listed = await self._listed(server)
            if listed is not None and listed != self._address():
                await self._ask(listed)

    async def _listed(self, server: str) -> str | None:
        brokers = (await cluster_info(self._remoting, server, timeout_ms=ASK_MS)).brokers
        found = brokers.get(self._name)
        if found is not None:
            self._slaves[server] = {address for number, address in found.addresses.items() if number != MASTER_ID}
        return found.addresses.get(MASTER_ID) if found is not None else None

    async def _poll(self) -> None:
        loop = asyncio.get_running_loop()
        soon_ends, next_poll = loop.time() + SOON_SECONDS, loop.time()
        while not self.superseded:
            if loop.time() >= next_poll:  # also updates the listed slaves, for `confirm`
                next_poll = loop.time() + ROUND_LATER_SECONDS
                await asyncio.gather(*map(self._poll_server, self._name_servers))
            trusted = {address for address, other in self.others.items() if other.is_trusted}
            known = trusted | {self._record.known.former_master} - {"", self._address()}
            for address in known:
                await self._ask(address)
            await asyncio.sleep(ROUND_SECONDS if loop.time() < soon_ends else ROUND_LATER_SECONDS)

    async def _ask(self, address: str) -> bool:
        """Exchange mastership with the broker at `address`; returns whether it responds."""
        try:
            other = await exchange_mastership(self._remoting, address, self.own, timeout_ms=ASK_MS)
            if other is None:
                self._note(address, await self._rocketmq_master(address))
                return True
        except OrbitMQError:
            self._others.pop(address, None)  # it is down, or the address belongs to another broker now
            return False
        if other.epoch < EPOCH_MAX:
            self._judge(address, other, may_be_asked=True)
        return True

    async def _rocketmq_master(self, address: str) -> OtherMaster | None:
        """None when the broker there is a slave or has another name, as the address may be reused."""
        values = (await broker_settings(self._remoting, address, timeout_ms=ASK_MS)).values
        role = values.get("brokerRole", "")
        if role in ("", SLAVE) or values.get("brokerName", self._name) != self._name:
            return None
        description = f"it is a broker of RocketMQ with brokerRole={role}; stop it by hand"
        return self._other(description, serves=True, is_trusted=True)

    # ----------------------------------------------------------------------------------------------------- decisions

    def exchange(self, _connection: Connection, command: Command) -> Command:
        """The handler of EXCHANGE_MASTERSHIP."""
        other = command.header(BrokerMastershipHeader)
        if other.broker_name != self._name:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"this is {self._name}, not {other.broker_name}")
        if other.epoch >= EPOCH_MAX or max(len(other.broker_addr), len(other.refusal)) > TEXT_LENGTH_MAX:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, "the epoch, address or reason is out of range")
        if other.is_master or other.epoch > self.epoch:
            self._judge(other.broker_addr, other, may_be_asked=False)
        if other.refusal and not other.is_master:
            self._note_refused(other)
        else:
            self._refused.pop(other.broker_addr, None)
        return command.response(ResponseCode.SUCCESS, header=self.own)

    def told(self, found: RegisterBrokerResponseHeader) -> None:
        """A name server has responded to a registration, with a later master if it knows one."""
        if found.master_addr and found.master_epoch is not None and self.epoch < found.master_epoch < EPOCH_MAX:
            self._step_down(found.master_epoch, found.master_addr)

    def _replace_resigned(self, epoch: int) -> None:
        """A slave was the master, and its operator has made it a slave: this broker's epoch becomes later."""
        if epoch > self.epoch:
            self.epoch = epoch + 1
            self._run(self._record.note(epoch=self.epoch, led=True))

    def _judge(self, address: str, other: BrokerMastershipHeader, *, may_be_asked: bool) -> None:
        if other.resigned and not other.is_master:
            self._replace_resigned(other.epoch)
            self._note(address, None)
        elif other.epoch > self.epoch:
            self._step_down(other.epoch, address if other.is_master else "at an unknown address")
        elif not other.is_master:
            self._note(address, None)
        elif other.refusal:
            description = "it has stepped down; start it as a slave"
            self._note(address, self._other(description, serves=False, is_trusted=is_trusted))
        else:
            description = f"it was {when(other.epoch)}, this one {when(self.epoch)}"
            self._note(address, self._other(description, serves=True, is_trusted=is_trusted))

    @staticmethod
    def _other(description: str, *, serves: bool, is_trusted: bool) -> OtherMaster:
        return OtherMaster(description, serves, is_trusted, time.monotonic())

    def _note(self, address: str, other: OtherMaster | None) -> None:
        before = self.others.get(address)
        if other is None:
            self._others.pop(address, None)
        elif before is not None or len(self.others) < SLAVES_MAX:
            self._others = {**self.others, address: other}
        if other is not None and (before is None or other.description != before.description):
            _log.error(
                "event=two_masters name=%s this=%s other=%s serves=%s what=%s",
                self._name, self._address(), address, other.serves, other.description,
            )  # fmt: skip

    def _note_refused(self, slave: BrokerMastershipHeader) -> None:
        since = time.monotonic() - FORGOTTEN_SECONDS
        self._refused = {address: found for address, found in self._refused.items() if found[1] >= since}
        if slave.broker_addr not in self._refused:
            if len(self._refused) >= SLAVES_MAX:
                return
            _log.error("event=slave_differs name=%s slave=%s reason=%s", self._name, slave.broker_addr, slave.refusal)
        self._refused[slave.broker_addr] = slave.refusal, time.monotonic()

    def _step_down(self, epoch: int, address: str) -> None:
        if self.superseded:
            return
        self.superseded = (
            f"{self._name} has a later master, {address}, {when(epoch)}; this broker no longer serves messages: start "
            "it as a slave"
        )
        _log.error("event=superseded name=%s by=%s epoch=%d own_epoch=%d", self._name, address, epoch, self.epoch)
        self._run(self._stopped())
        self._run(self._record.note(superseded_by=address, epoch=epoch, led=False))

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def when(epoch: int) -> str:
    """The time of a promotion, for people."""
    if epoch <= 0:
        return "never promoted"
    at = datetime.fromtimestamp(min(epoch, EPOCH_MAX) / 1000, UTC).isoformat(" ", "seconds").removesuffix("+00:00")
    return f"promoted at {at} UTC"
