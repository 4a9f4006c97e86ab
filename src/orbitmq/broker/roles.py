"""The two roles of a broker: what a master and a slave do differently, each as one part of the broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

from orbitmq.broker.advertised import AdvertisedBroker
from orbitmq.broker.delay import DelayedDelivery
from orbitmq.broker.election.roles import Elected
from orbitmq.broker.groups import Groups
from orbitmq.broker.mastership.record import MastershipRecord
from orbitmq.broker.mastership.watch import MasterWatch
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.pop.assignment_handler import RequestModes
from orbitmq.broker.pop.ordering import Orders
from orbitmq.broker.slave.metadata import MetadataCopy
from orbitmq.broker.slave.promotion import Promotion
from orbitmq.broker.slave.readiness import Readiness
from orbitmq.broker.slave.refusals import refuse_masters_work, refuse_promotion, refuse_switch
from orbitmq.broker.timers.delivery import TimerDelivery
from orbitmq.broker.topics import Topics
from orbitmq.net.remoting import Remoting
from orbitmq.net.routing import Router
from orbitmq.replication.master import Replicas
from orbitmq.replication.slave import Following
from orbitmq.runtime.clock import Clock
from orbitmq.store.engine import MessageStore
from orbitmq.store.replica import ReplicaStore
from orbitmq.wire.command import Command
from orbitmq.wire.headers_namesrv import RegisterBrokerResponseHeader


class MasterRole:
    """`step_down` is called when a later master is known."""

    is_master = True
    readiness = following = copying = None
    refusal = ""

    def __init__(
        self,
        options: BrokerOptions,
        identity: AdvertisedBroker,
        record: MastershipRecord,
        remoting: Remoting,
        step_down: Callable[[], Coroutine[None, None, None]],
    ) -> None:
        self._name = identity.name
        self.watch = MasterWatch(identity.name, options.name_servers, record, remoting, identity.address, step_down)
        self.take_master = self.watch.note_registration
        self.must_register_anew = self.watch.must_register_anew
        self.confirm = self.watch.confirm
        self.begin = self.watch.begin
        self.start = self.watch.start
        self.stop = self.watch.stop

    @property
    def not_serving(self) -> str:
        """Why this broker serves no messages; "" while it does."""
        return self.watch.superseded

    @property
    def epoch(self) -> int:
        """The number of the last promotion it knows."""
        return self.watch.epoch

    def add_to(self, router: Router) -> None:
        self.watch.add_to(router)
        refuse_promotion(router, self._name)
        refuse_switch(router, self._name)


class SlaveRole:
    """`register` finds out the master's address, `serving_changed` is awaited when `not_serving` changes, and `become`
    is called with the new role once the slave is promoted.
    """

    is_master = False
    watch = None
    refusal = ""
    must_register_anew = None
    confirm = None
    epoch = None

    def __init__(
        self,
        store: ReplicaStore,
        options: BrokerOptions,
        identity: AdvertisedBroker,
        record: MastershipRecord,
        remoting: Remoting,
        clock: Clock,
        configuration: Path | None,
        tables: tuple[Topics, Groups, ConsumerOffsets, DelayedDelivery, TimerDelivery, RequestModes, Orders],
        *,
        refusal: Callable[[Command, int, str], Command],
        register: Callable[[], Awaitable[None]],
        serving_changed: Callable[[], Awaitable[None]],
        become: Callable[[str], object],
    ) -> None:
        self._name = identity.name
        self._name_servers = options.name_servers
        self._refusal = refusal
        self._register = register
        self._master = RegisterBrokerResponseHeader()  # the addresses that name servers list
        self.readiness = Readiness(identity.name, record, remoting, identity.address, serving_changed)
        self.following = Following(
            store, store.options, remoting, lambda: self._master.ha_server_addr, self._find_master, self.readiness
        )
        self._promotion = Promotion(
            store, self.following, tables[0], options, identity.address, remoting, configuration, become, record, clock
        )
        self.copying = MetadataCopy(
            remoting, self._copied_from, *tables, self.following.state, self.following.look, lambda: store.copied_to,
            store.max_offset,
        )  # fmt: skip

    @property
    def not_serving(self) -> str:
        """Why this broker serves no messages; "" while it does."""
        return self.readiness.reason

    def add_to(self, router: Router) -> None:
        refuse_masters_work(router, self._name, self._refusal)
        self.readiness.add_to(router)
        refuse_switch(router, self._name)
        self._promotion.add_to(router)

    async def begin(self, _now_ms: int) -> None:
        """A slave may always begin: it compares its log when it has found its master."""

    def start(self) -> None:
        """Follow the master until `stop`."""
        self.following.start()
        self.copying.start()

    async def stop(self) -> None:
        await self.copying.stop()
        await self.following.stop()

    def take_master(self, found: RegisterBrokerResponseHeader) -> None:
        """A name server's response about the master."""
        if found.ha_server_addr and found.master_addr:
            self._master = found

    async def _find_master(self) -> None:
        if not self.not_serving:
            await self._register()
        elif (found := await self.readiness.find_master(self._name_servers)) is not None:
            self._master = found

    def _copied_from(self) -> str | None:
        return self.following.master_address if self.following.is_following else None


Role = MasterRole | SlaveRole


def replication_metrics(store: MessageStore, replicas: Replicas, role: Role | Elected) -> dict[str, str]:
    """orbitmq's own keys of the runtime table. A master reports its slaves, the bytes that the one with the longest log
    lacks, and other masters of its broker name; a slave reports its master and the state of replication.
    """
    slaves = sorted(link.address for link in replicas.links)
    metrics: dict[str, str] = {}
    if slaves:
        behind = store.commit_log_max_offset - max(link.acknowledged for link in replicas.links)
        metrics |= {"replicationSlaves": ",".join(slaves), "replicationSlaveBytesBehind": str(behind)}
    if (watch := role.watch) is not None:
        refused = watch.refused_slaves
        metrics |= {
            "replicationEpoch": str(watch.epoch),
            "replicationSupersededBy": watch.superseded,
            "replicationOtherMasters": "; ".join(f"{at}: {one.words}" for at, one in sorted(watch.others.items())),
            "replicationOtherMastersServing": str(sum(one.serves for one in watch.others.values())),
            "replicationRefusedSlaves": "; ".join(f"{at}: {reason}" for at, reason in sorted(refused.items())),
        }
    elif role.following is not None:
        state = role.following.state
        metrics |= {
            "replicationMaster": state.master,
            "replicationConnected": str(state.is_connected).lower(),
            "replicationMasterEnd": str(state.master_end),
            "replicationTablesCopied": str(state.tables_at is not None).lower(),
            "replicationRefusal": state.refusal,
            "replicationNotServing": role.not_serving,
        }
    return metrics
