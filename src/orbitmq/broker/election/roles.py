"""The two roles of a broker that elects its master. They are the sites of `election`, and parts of the broker as those
in `broker.roles` are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Final

from orbitmq.broker.advertised import AdvertisedBroker
from orbitmq.broker.delay import DelayedDelivery
from orbitmq.broker.election.election import Address, Election
from orbitmq.broker.groups import Groups
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.pop.assignment_handler import RequestModes
from orbitmq.broker.pop.ordering import Orders
from orbitmq.broker.slave.metadata import MetadataCopy
from orbitmq.broker.slave.refusals import refuse_masters_work
from orbitmq.broker.timers.delivery import TimerDelivery
from orbitmq.broker.topics import Topics
from orbitmq.errors import RequestRejected
from orbitmq.net.connection import Connection
from orbitmq.net.remoting import Remoting
from orbitmq.net.routing import Router
from orbitmq.operations.mastership import exchange_mastership
from orbitmq.replication.master import Replicas
from orbitmq.replication.protocol import Introduction
from orbitmq.replication.slave import Following
from orbitmq.store.engine import MessageStore
from orbitmq.store.positions import PhysicalOffset
from orbitmq.store.replica import ReplicaStore
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers_namesrv import RegisterBrokerResponseHeader
from orbitmq.wire.mastership import BrokerMastershipHeader, SetMaintenanceHeader, SwitchMasterHeader
from orbitmq.wire.requests import RequestCode

_log = logging.getLogger(__name__)

ASK_MS: Final = 1000.0
FOLLOW_AGAIN_SECONDS: Final = 0.1  # a new master serves some moments after its election, and waits for those in sync
HALF_SECONDS: Final = 0.02  # until a queue has room for the last message that was copied
UNCONFIRMED: Final = "it is not confirmed yet that the replicas in sync have all this one begins with"


class _Elected:
    """What both roles have. `serving_changed` is awaited when `not_serving` changes."""

    is_master: bool
    watch = readiness = must_register_anew = confirm = None  # the lease says after a pause who the master is

    def __init__(
        self, election: Election, store: MessageStore, identity: AdvertisedBroker,
        become: Callable[[str], object], serving_changed: Callable[[], Coroutine[None, None, None]],
    ) -> None:  # fmt: skip
        self.election = election
        self.become = become
        self.not_serving = UNCONFIRMED
        """Why this broker serves nothing at all; "" while it does."""
        self._store = store
        self._identity = identity
        self._serving_changed = serving_changed
        self.confirmed = -1
        """The last place that was confirmed in this role."""
        self._begins_with = 0
        self._changing: set[asyncio.Task[None]] = set()

    @property
    def refusal(self) -> str:
        """Why this broker accepts no message; "" while it does."""
        return self.election.refusal

    @property
    def address(self) -> Address:
        return Address(self._identity.address(), self._identity.ha_address())

    @property
    def log_end(self) -> int:
        return self._store.readable_offset

    async def begin(self, _now_ms: int) -> None:
        """Before the store is opened."""
        await self.election.prepare()

    async def start(self) -> None:
        self._begins_with = self.log_end
        await self.election.attach(self, was_killed=self._store.was_killed)

    async def stop(self) -> None:
        self.election.detach()

    def take_master(self, found: RegisterBrokerResponseHeader) -> None:
        """What name servers say about the master is of no interest: the agreement store knows better."""

    def fence(self, reason: str) -> None:
        """A slave accepts nothing anyway."""

    def follow(self, epoch: int, master: Address) -> None:
        """A master becomes a slave first."""

    async def halt(self) -> int:
        """Where the log ends, once the role appends nothing more to it."""
        return self._store.commit_log_max_offset

    def refuse(self, reason: str) -> None:
        _log.error("event=replica_differs reason=%s", reason)
        self._serve(reason)

    def confirm_up_to(self, end: int) -> None:
        self.confirmed = end
        self._store.confirm(PhysicalOffset(end))
        if self.not_serving == UNCONFIRMED and end >= self._begins_with:
            self._serve("")

    def _serve(self, reason: str) -> None:
        if self.not_serving != reason:
            self.not_serving = reason
            task = asyncio.get_running_loop().create_task(self._serving_changed())
            self._changing.add(task)
            task.add_done_callback(self._changing.discard)

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.EXCHANGE_MASTERSHIP, self.exchange)
        router.add(RequestCode.PROMOTE_SLAVE, self.promote)
        router.add(RequestCode.SWITCH_MASTER, self.switch)
        router.add(RequestCode.SET_MAINTENANCE, self.maintain)

    def exchange(self, _connection: Connection, command: Command) -> Command:
        """Another broker asks who is the master."""
        if (name := command.header(BrokerMastershipHeader).broker_name) != self._identity.name:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"this is {self._identity.name}, not {name}")
        return command.response(ResponseCode.SUCCESS, header=self.own)

    def promote(self, _connection: Connection, command: Command) -> Command:
        """Refused: a master that was not elected would not be followed."""
        remark = f"the replicas of {self._identity.name} elect their master (option agreement): use broker switch"
        return command.response(ResponseCode.SYSTEM_ERROR, remark)

    async def switch(self, connection: Connection, command: Command) -> Command:
        """An operator wants another replica to be the master."""
        header = command.header(SwitchMasterHeader)
        _log.warning("event=switch to=%s unclean=%s peer=%s", header.member, header.unclean, connection.address)
        if header.unclean:
            reason = await self.election.take_over(header.member)
        else:
            reason = await self.election.hand_over(header.member)
        if reason:
            return command.response(ResponseCode.SYSTEM_ERROR, f"the master of {self._identity.name} stays: {reason}")
        return command.response(ResponseCode.SUCCESS)

    async def maintain(self, connection: Connection, command: Command) -> Command:
        """An operator begins or ends work on the machines."""
        is_on = command.header(SetMaintenanceHeader).maintenance
        _log.warning("event=maintenance is_on=%s peer=%s", is_on, connection.address)
        if reason := await self.election.maintain(is_on):
            return command.response(ResponseCode.SYSTEM_ERROR, f"maintenance of {self._identity.name}: {reason}")
        return command.response(ResponseCode.SUCCESS)

    @property
    def epoch(self) -> int:
        return self.election.replica.epoch

    @property
    def own(self) -> BrokerMastershipHeader:
        refusal = self.refusal if self.is_master else self.not_serving
        return BrokerMastershipHeader(
            self._identity.name, self._identity.address(), self.is_master, self.epoch, refusal, elects=True
        )


class ElectedMaster(_Elected):
    """`step_down` ends what a master does; its result is awaited."""

    is_master = True
    following = copying = None

    def __init__(
        self, election: Election, store: MessageStore, identity: AdvertisedBroker, replicas: Replicas,
        become: Callable[[str], object], serving_changed: Callable[[], Coroutine[None, None, None]],
        step_down: Callable[[str], Coroutine[None, None, None]],
    ) -> None:  # fmt: skip
        super().__init__(election, store, identity, become, serving_changed)
        self._replicas = replicas
        self._step_down = step_down
        self._ending: asyncio.Task[None] | None = None

    def confirm_up_to(self, end: int) -> None:
        super().confirm_up_to(end)
        self._replicas.confirm(PhysicalOffset(end))

    def fence(self, reason: str) -> None:
        if self._ending is None or (self._ending.done() and self._ending.exception() is not None):
            self._replicas.give_up()
            self._ending = asyncio.get_running_loop().create_task(self._step_down(reason))

    async def halt(self) -> int:
        self.fence(self.refusal)
        assert self._ending is not None
        await asyncio.shield(self._ending)
        return await super().halt()


class ElectedSlave(_Elected):
    """Copies the log and the tables of the elected master."""

    is_master = False
    _store: ReplicaStore

    def __init__(
        self, election: Election, store: ReplicaStore, identity: AdvertisedBroker, remoting: Remoting,
        tables: tuple[Topics, Groups, ConsumerOffsets, DelayedDelivery, TimerDelivery, RequestModes, Orders], *,
        become: Callable[[str], object], serving_changed: Callable[[], Coroutine[None, None, None]],
        refuse_send: Callable[[Command, int, str], Command],
    ) -> None:  # fmt: skip
        super().__init__(election, store, identity, become, serving_changed)
        self._remoting = remoting
        self._refuse_send = refuse_send
        self._master: Address | None = None
        self._followed_epoch = 0
        self.following = Following(
            store, store.options, remoting, lambda: self._master and self._master.slaves, self._master_is_known, self,
            lambda: Introduction(election.replica.me, self._followed_epoch).encode(), self.confirm_up_to,
            FOLLOW_AGAIN_SECONDS,
        )  # fmt: skip
        self.copying = MetadataCopy(
            remoting, self._copied_from, *tables, self.following.state, self.following.look, lambda: store.copied_to,
            store.max_offset,
        )  # fmt: skip

    def add_to(self, router: Router) -> None:
        refuse_masters_work(router, self._identity.name, self._refuse_send)
        super().add_to(router)

    async def start(self) -> None:
        self.copying.start()
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        await self.copying.stop()
        await self.following.stop()

    def follow(self, epoch: int, master: Address) -> None:
        self._master, self._followed_epoch = master, epoch
        self.following.start()

    async def halt(self) -> int:
        await self.following.stop()
        is_logged = False
        while not self._store.forget_half(True):
            if not is_logged:
                _log.warning("event=waits_for_room reason=messages_that_were_copied_have_no_room_in_their_queues")
                is_logged = True
            await asyncio.sleep(HALF_SECONDS)
        return await super().halt()

    # ------------------------------------------------------------------------------- how the log compares with another

    async def greet(self, master: str) -> None:
        """ConnectionError unless the broker there is the master of the epoch to be followed."""
        other = await exchange_mastership(self._remoting, master, self.own, timeout_ms=ASK_MS)
        if other is None or not (other.elects and other.is_master and other.epoch == self._followed_epoch):
            raise ConnectionError(f"the broker at {master} is not the master in epoch {self._followed_epoch}")

    async def agreed(self) -> None:
        agreed = self.election.agreed
        if agreed is None or agreed.epoch != self._followed_epoch:
            raise ConnectionError(f"epoch {self._followed_epoch} is over")
        await self.election.note_epoch(agreed, self._store.copied_to)
        if self.not_serving:
            self._serve(UNCONFIRMED)  # whatever kept it from following is over

    async def refused(self, master: str, reason: str) -> None:
        """It is not the beginning of the master's, as if this were another store."""
        self.refuse(f"this replica of {self._identity.name} does not follow its master at {master}: {reason}")

    async def _master_is_known(self) -> None:
        """The address of the master comes with its election."""

    def _copied_from(self) -> str | None:
        return self.following.master_address if self.following.is_following else None


Elected = ElectedMaster | ElectedSlave


def election_metrics(role: Elected) -> dict[str, str]:
    """Keys of the runtime table about the election."""
    election = role.election
    agreed, replica = election.agreed, election.replica
    return {
        "electionMember": replica.me,
        "electionRole": replica.role.value,
        "electionEpoch": str(agreed.epoch if agreed is not None else 0),
        "electionMaster": agreed.master if agreed is not None else "",
        "electionInSync": ",".join(agreed.in_sync) if agreed is not None else "",
        "electionMaintenance": str(agreed is not None and agreed.maintenance).lower(),
        "electionLeaseLeftMs": str(round(election.lease_left_ms)) if role.is_master else "",
        "electionConfirmedOffset": str(role.confirmed),
        "electionFailure": election.failure,
        "electionRefusal": role.refusal if role.is_master else "",
        "replicationNotServing": role.not_serving,
    }
