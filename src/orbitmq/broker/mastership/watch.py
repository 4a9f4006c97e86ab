"""Watches for other masters of the same broker name.

A master asks the name servers before each registration and after a pause, and periodically the master it replaced. A
master that was promoted later ends this one's service; any other is reported to the operator. RocketMQ has no epochs: a
RocketMQ broker that claims to be the master is reported, and does not end the service.
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
from orbitmq.operations.mastership import SLAVE, exchange_mastership, has_other_name
from orbitmq.operations.routes import cluster_info
from orbitmq.operations.settings import broker_settings
from orbitmq.operations.statistics import probe
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers_namesrv import RegisterBrokerResponseHeader
from orbitmq.wire.mastership import EPOCH_MAX, BrokerMastershipHeader
from orbitmq.wire.requests import RequestCode

_log = logging.getLogger(__name__)

ASK_MS = 3000.0
JUST_MS = 10_000  # since a promotion: its store is opened as a master's at once
# Requests wait for this long; a broker promoted a moment ago on a busy machine is slow to respond.
CONFIRM_SECONDS = 3.0
TRIES, AGAIN_SECONDS = 2, 0.1  # a connection may have ended during the pause
ROUND_SECONDS, ROUND_LATER_SECONDS = 1.0, 10.0
GREETED_SECONDS = 30.0  # within which a slave registers
GREETED_MAX = 16  # slaves; whoever reaches this broker can say that it is one
SOON_SECONDS = 600.0  # after a start a former master may come back any moment
# seconds; a refused slave reports every ten, another master is asked every ten or reports every thirty
FORGOTTEN_SECONDS = 60.0
SLAVES_MAX = 16  # as many as may copy
TEXT_LENGTH_MAX = 4096  # of a reason with two addresses in it


class OtherMaster(NamedTuple):
    """Another broker of the same name. `serves`: whether it accepts messages. Connections are made only to the
    addresses of name servers and of the former master; what a request claims expires unless it is repeated.
    """

    words: str
    serves: bool
    may_be_asked: bool
    at: float


class MasterWatch:
    """`stopped` is called once, as soon as a later master is known, and its result is awaited in the background;
    `superseded` is then that master.
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
        self._refused: dict[str, tuple[str, float]] = {}  # slave -> reason, and time of the report
        self._slaves: dict[str, set[str]] = {}  # name server -> addresses it had for slaves
        self._looking: asyncio.Task[None] | None = None
        self._new_slave = asyncio.Event()
        self._greeted: dict[str, float] = {}  # slaves that no name server lists yet -> until when they are looked for
        self._doing: set[asyncio.Task[None]] = set()

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.EXCHANGE_MASTERSHIP, self.exchange)

    async def begin(self, now_ms: int) -> None:
        """To be awaited before anything is served. If the configuration alone made a slave's store a master's, that
        counts as one more promotion. ConfigurationError if this store's log was abandoned for another one, or another
        master responds.
        """
        known = self._record.known
        if known.superseded_by:
            raise ConfigurationError(
                f"option brokerRole: {self._name} was given another master, {known.superseded_by}, "
                f"{when(known.epoch)}; start this broker as its slave (brokerRole=SLAVE, brokerId=1); if that one "
                "is down for good and this log is the one you trust, promote it then (orbitmq broker promote --force)"
            )
        # A promotion asks the former master first, and waits in vain if that one is frozen.
        just_promoted = known.led and 0 <= now_ms - known.epoch < JUST_MS
        await self._refuse_second_master(asked_already=known.former_master if just_promoted else "")
        if known.follows:
            await self._record.note(follows=False, led=True, epoch=self._record.next_epoch(now_ms))
        self.epoch = self._record.known.epoch

    async def _refuse_second_master(self, *, asked_already: str) -> None:
        """ConfigurationError while another master of this name responds: both would assign the same offsets to
        different messages. That one may have been a slave that was promoted while this broker was down.
        """
        for server in self._name_servers:
            try:
                other = await self._listed(server)
                if other in (None, self._address(), asked_already):
                    continue
                answer = await probe(self._remoting, other, ASK_MS)
            except OrbitMQError:
                continue  # one that does not respond does not prevent the start
            if await has_other_name(self._remoting, other, self._name, timeout_ms=ASK_MS):
                continue
            raise ConfigurationError(
                f"option brokerName: the master of {self._name} is at {other} and {answer}; start this "
                "broker as its slave (brokerRole=SLAVE, brokerId=1), or stop that one first"
            )

    def start(self) -> None:
        """Ask the former master periodically until `stop`."""
        self._looking = asyncio.get_running_loop().create_task(self._keep_looking())

    async def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await asyncio.gather(*self._doing, return_exceptions=True)

    @property
    def own(self) -> BrokerMastershipHeader:
        """This broker's status for other brokers of its name."""
        return BrokerMastershipHeader(
            self._name, self._address(), is_master=True, epoch=self.epoch, refusal=self.superseded
        )

    @property
    def others(self) -> dict[str, OtherMaster]:
        """Other masters of the name, by address, as they were within the last minute."""
        since = time.monotonic() - FORGOTTEN_SECONDS
        return {address: other for address, other in self._others.items() if other.at >= since}

    @property
    def refused_slaves(self) -> dict[str, str]:
        """Slaves that reported within the last minute why they do not replicate."""
        since = time.monotonic() - FORGOTTEN_SECONDS
        return {address: reason for address, (reason, at) in self._refused.items() if at >= since}

    # ----------------------------------------------------------------------------------------------------- requests

    async def must_register_anew(self, server: str) -> bool:
        """To be awaited before each registration. Whether the name server lists another master that is not a later one:
        it does not request topics of a version it already has. Sets `superseded` if it lists a later one.
        """
        try:
            listed = await self._listed(server)
        except OrbitMQError:
            return False  # the registration will report it
        if listed is None or listed == self._address():
            return False
        await self._exchange(listed)
        return True

    async def confirm(self) -> None:
        """After a pause: whether this broker is still the master, as far as CONFIRM_SECONDS allow. Asks the slaves as
        well, those listed before the pause and those listed now: another master must be one of them, and may be
        starting while name servers still list this one.
        """
        asked = [asyncio.create_task(self._confirm_at(server)) for server in self._name_servers]
        asked += [asyncio.create_task(self._confirm_with(slave)) for slave in self._listed_slaves]
        if not asked:
            return
        _, late = await asyncio.wait(asked, timeout=CONFIRM_SECONDS)
        for one in late:
            one.cancel()
        if len(late) == len(asked):
            _log.warning("event=master_unconfirmed name=%s reason=nobody_answers", self._name)

    @property
    def _listed_slaves(self) -> set[str]:
        return set[str]().union(*self._slaves.values()) - {self._address()}

    async def _confirm_at(self, server: str) -> None:
        """Wait until the name server lists this master, or the one it lists has responded. A name server that lists
        none may have just started.
        """
        before = self._listed_slaves
        for _ in range(TRIES):
            with contextlib.suppress(OrbitMQError):
                while (listed := await self._listed(server)) != self._address():
                    if listed is not None and await self._exchange(listed):
                        return
                    await asyncio.sleep(AGAIN_SECONDS)
                await asyncio.gather(*map(self._confirm_with, self._listed_slaves - before))
                return

    async def _confirm_with(self, slave: str) -> None:
        """Wait for its response: a slave that is promoted closes its ports before it opens them as the master."""
        while True:
            if await self._exchange(slave):
                return
            await asyncio.sleep(AGAIN_SECONDS)

    async def _look_at(self, server: str) -> None:
        with contextlib.suppress(OrbitMQError):
            listed = await self._listed(server)
            if listed is not None and listed != self._address():
                await self._exchange(listed)

    async def _listed(self, server: str) -> str | None:
        brokers = (await cluster_info(self._remoting, server, timeout_ms=ASK_MS)).brokers
        found = brokers.get(self._name)
        if found is not None:
            self._slaves[server] = {address for number, address in found.addresses.items() if number != MASTER_ID}
        return found.addresses.get(MASTER_ID) if found is not None else None

    async def _keep_looking(self) -> None:
        loop = asyncio.get_running_loop()
        soon_ends, next_look = loop.time() + SOON_SECONDS, loop.time()
        while not self.superseded:
            if loop.time() >= next_look or self._new_slave.is_set():  # they list the slaves to be asked after a pause
                next_look = loop.time() + ROUND_LATER_SECONDS
                await asyncio.gather(*map(self._look_at, self._name_servers))
                listed = self._listed_slaves
                self._greeted = {slave: ends for slave, ends in self._greeted.items() if slave not in listed}
                if all(ends <= loop.time() for ends in self._greeted.values()):
                    self._new_slave.clear()
            asked = {address for address, other in self.others.items() if other.may_be_asked}
            known = asked | {self._record.known.former_master} - {"", self._address()}
            for address in known:
                await self._exchange(address)
            await asyncio.sleep(ROUND_SECONDS)
            if loop.time() >= soon_ends:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ROUND_LATER_SECONDS - ROUND_SECONDS):
                        await self._new_slave.wait()

    async def _exchange(self, address: str) -> bool:
        """Report this master to the broker at `address` and evaluate its response. Returns whether it responds."""
        try:
            other = await exchange_mastership(self._remoting, address, self.own, timeout_ms=ASK_MS)
            if other is None:
                self._note(address, await self._rocketmq_master(address))
                return True
        except OrbitMQError:
            self._others.pop(address, None)  # it does not respond, or is another broker now
            return False
        if other.epoch < EPOCH_MAX:
            self._judge(address, other, may_be_asked=True)
        return True

    async def _rocketmq_master(self, address: str) -> OtherMaster | None:
        """None if the broker there is a slave or has another name: an address may be reused."""
        values = (await broker_settings(self._remoting, address, timeout_ms=ASK_MS)).values
        role = values.get("brokerRole", "")
        if role in ("", SLAVE) or values.get("brokerName", self._name) != self._name:
            return None
        words = f"it is a broker of RocketMQ with brokerRole={role}, and must be stopped by its operator"
        return self._other(words, serves=True, may_be_asked=True)

    # ------------------------------------------------------------------------------------------------------- judging

    def exchange(self, _connection: Connection, command: Command) -> Command:
        """Another broker reports itself."""
        other = command.header(BrokerMastershipHeader)
        if other.broker_name != self._name:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"this is {self._name}, not {other.broker_name}")
        if other.epoch >= EPOCH_MAX or max(len(other.broker_addr), len(other.refusal)) > TEXT_LENGTH_MAX:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, "no broker has such an epoch, address or reason")
        if not other.is_master:
            self._greet(other.broker_addr)
        if other.is_master or other.epoch > self.epoch:
            self._judge(other.broker_addr, other, may_be_asked=False)
        if other.refusal and not other.is_master:
            self._note_refused(other)
        else:
            self._refused.pop(other.broker_addr, None)
        return command.response(ResponseCode.SUCCESS, header=self.own)

    def _greet(self, slave: str) -> None:
        """Look for a new slave at the name servers, each second until it has registered there."""
        if slave not in self._listed_slaves and slave not in self._greeted and len(self._greeted) < GREETED_MAX:
            self._greeted[slave] = asyncio.get_running_loop().time() + GREETED_SECONDS
            self._new_slave.set()

    def note_registration(self, found: RegisterBrokerResponseHeader) -> None:
        """A name server's response to a registration: it names a later master if there is one."""
        if found.master_addr and found.master_epoch is not None and self.epoch < found.master_epoch < EPOCH_MAX:
            self._step_down(found.master_epoch, found.master_addr)

    def _follow_up(self, epoch: int) -> None:
        """A slave that was a master, and was demoted by its operator: this master is later."""
        if epoch > self.epoch:
            self.epoch = epoch + 1
            self._do(self._record.note(epoch=self.epoch, led=True))

    def _judge(self, address: str, other: BrokerMastershipHeader, *, may_be_asked: bool) -> None:
        if other.resigned and not other.is_master:
            self._follow_up(other.epoch)
            self._note(address, None)
        elif other.epoch > self.epoch:
            self._step_down(other.epoch, address if other.is_master else "at an address a slave did not tell")
        elif not other.is_master:
            self._note(address, None)
        elif other.refusal:
            words = "it has stopped its work; start it as a slave"
            self._note(address, self._other(words, serves=False, may_be_asked=may_be_asked))
        else:
            words = f"its last promotion is {when(other.epoch)}, this one's {when(self.epoch)}"
            self._note(address, self._other(words, serves=True, may_be_asked=may_be_asked))

    @staticmethod
    def _other(words: str, *, serves: bool, may_be_asked: bool) -> OtherMaster:
        return OtherMaster(words, serves, may_be_asked, time.monotonic())

    def _note(self, address: str, other: OtherMaster | None) -> None:
        before = self.others.get(address)
        if other is None:
            self._others.pop(address, None)
        elif before is not None or len(self.others) < SLAVES_MAX:
            self._others = {**self.others, address: other}
        if other is not None and (before is None or other.words != before.words):
            _log.error(
                "event=two_masters name=%s this=%s other=%s serves=%s what=%s",
                self._name, self._address(), address, other.serves, other.words,
            )  # fmt: skip

    def _note_refused(self, slave: BrokerMastershipHeader) -> None:
        since = time.monotonic() - FORGOTTEN_SECONDS
        self._refused = {one: told for one, told in self._refused.items() if told[1] >= since}
        if slave.broker_addr not in self._refused:
            if len(self._refused) >= SLAVES_MAX:
                return
            _log.error("event=slave_differs name=%s slave=%s reason=%s", self._name, slave.broker_addr, slave.refusal)
        self._refused[slave.broker_addr] = slave.refusal, time.monotonic()

    def _step_down(self, epoch: int, address: str) -> None:
        if self.superseded:
            return
        self.superseded = (
            f"{self._name} has a later master, {address}, {when(epoch)}; this broker no longer serves: start it "
            "as a slave"
        )
        _log.error("event=superseded name=%s by=%s epoch=%d own_epoch=%d", self._name, address, epoch, self.epoch)
        self._do(self._stopped())
        self._do(self._record.note(superseded_by=address, epoch=epoch, led=False))

    def _do(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._doing.add(task)
        task.add_done_callback(self._doing.discard)


def when(epoch: int) -> str:
    """A promotion in words."""
    if epoch <= 0:
        return "never promoted"
    at = datetime.fromtimestamp(min(epoch, EPOCH_MAX) / 1000, UTC).isoformat(" ", "seconds").removesuffix("+00:00")
    return f"promoted at {at} UTC"
