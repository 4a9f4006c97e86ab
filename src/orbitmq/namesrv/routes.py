"""The route table: brokers, their topics, and which are alive. Pure: the time and the connections are passed in as
values.

A broker name is one master (id 0) and its slaves. Only masters register topics; a topic stays until the last member of
its broker name is removed or a tool deletes it. Of two masters the one that was promoted later stays; if neither was
promoted, or both are RocketMQ's, the last to register, as in RocketMQ. Must not know sockets, requests or files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from orbitmq.errors import RequestRejected
from orbitmq.message.config import DataVersion
from orbitmq.message.flags import PERM_READ, PERM_WRITE, TOPIC_UNIT, TOPIC_UNIT_SUBSCRIPTION
from orbitmq.message.model import MASTER_ID
from orbitmq.wire.bodies import BrokerData, BrokerRegistration, ClusterInfo, QueueData, TopicRouteData, TopicTable
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.mastership import EPOCH_MAX

EXPIRED_AFTER_MS = 120_000  # four missed registrations
# Any client may register. A hundred brokers with ten thousand topics, and those for the retries and dead letters of ten
# thousand groups, are 3,000,000. Each costs 200 bytes, 600 with a name of 300 characters that no other broker has.
ENTRIES_MAX = 4_000_000
ENTRIES_OF_ONE_MAX = 500_000  # topics of one broker name: as many as one registration can carry
BROKERS_MAX = 10_000  # names; no cluster comes near
MEMBERS_MAX = 100  # processes of one name
TEXT_LENGTH_MAX = 512  # of a name or an address: four times the longest allowed topic
FILTER_SERVERS_MAX = 100  # addresses of one broker
UNTOLD = DataVersion(0, 0)  # no broker has this version: a broker with topics left out registers all its topics again


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """How a broker names itself in every request about itself; `address` is `host:port`."""

    cluster: str
    name: str
    id: int
    address: str


@dataclass(frozen=True, slots=True)
class RegisteredMember:
    """One living broker process. `owner` is the connection it registered over."""

    address: str
    ha_address: str
    version: DataVersion
    filter_servers: tuple[str, ...]
    owner: Hashable
    seen_ms: int
    epoch: int = 0


@dataclass(slots=True)
class RegisteredBroker:
    """One broker name. Invariant: it has at least one member, otherwise the table does not hold it."""

    cluster: str
    members: dict[int, RegisteredMember] = field(default_factory=dict)
    entries: int = 0  # topics
    rivals: dict[str, RegisteredMember] = field(default_factory=dict)
    """Address -> another master of this name than the one in the routes."""

    @property
    def addresses(self) -> dict[int, str]:
        return {broker_id: member.address for broker_id, member in self.members.items()}


class RouteTable:
    """Everything a name server knows of brokers and topics. `left_out` is called with a broker name, how much of its
    registration was not kept, and the limit.
    """

    def __init__(self, left_out: Callable[[str, int, int], None] = lambda _name, _count, _limit: None) -> None:
        self._left_out = left_out
        self._brokers: dict[str, RegisteredBroker] = {}
        # Topic -> broker name -> queues. Invariant: every topic has an entry, every entry a registered broker name.
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._entries = 0  # of all topics

    # ------------------------------------------------------------------------------------------------- registration

    def register(
        self,
        identity: BrokerIdentity,
        registration: BrokerRegistration,
        *,
        ha_address: str,
        owner: Hashable,
        now_ms: int,
        epoch: int = 0,
    ) -> RegisteredMember | None:
        """Register a broker or renew it. Returns the master of a slave, if that is registered; for a master a later
        one, and then it is refused. RequestRejected if it is new and exceeds the limit. For a known broker only new
        topics beyond the limit are left out: it stays registered with its other topics.
        """
        if epoch > EPOCH_MAX:
            raise _too_much(f"epoch {epoch} is greater than {EPOCH_MAX}")
        self._refuse_too_much(identity, ha_address)
        broker = self._brokers.setdefault(identity.name, RegisteredBroker(identity.cluster))
        self._drop_other_ids(broker, identity)
        broker.rivals.pop(identity.address, None)
        if identity.id == MASTER_ID:
            this = RegisteredMember(identity.address, ha_address, UNTOLD, (), owner, now_ms, epoch)
            if (later := self._meet(broker, this)) is not None:
                return later
        broker.cluster = identity.cluster
        table = registration.topic_table
        version, known = table.data_version, broker.members.get(MASTER_ID)
        if identity.id == MASTER_ID and self._is_news(known, identity, version):
            is_whole = self._merge(identity.name, broker, table)
            if known is not None and known.version == UNTOLD:  # one changed topic does not register the others
                is_whole = is_whole and len(table.topics) >= broker.entries
            version = version if is_whole else UNTOLD
        filters = tuple(one for one in registration.filter_servers if len(one) <= TEXT_LENGTH_MAX)[:FILTER_SERVERS_MAX]
        broker.members[identity.id] = RegisteredMember(
            identity.address, ha_address, version, filters, owner, now_ms, epoch
        )
        return None if identity.id == MASTER_ID else broker.members.get(MASTER_ID)

    @staticmethod
    def _meet(broker: RegisteredBroker, this: RegisteredMember) -> RegisteredMember | None:
        """A master registers: record the other master, and return it if it was promoted later."""
        other = broker.members.get(MASTER_ID)
        if other is None or other.address == this.address:
            return None
        is_later = other.epoch > this.epoch
        rival = this if is_later else other
        if rival.address in broker.rivals or len(broker.rivals) < MEMBERS_MAX:
            broker.rivals[rival.address] = rival
        return other if is_later else None

    def _refuse_too_much(self, identity: BrokerIdentity, ha_address: str) -> None:
        if max(map(len, (identity.cluster, identity.name, identity.address, ha_address))) > TEXT_LENGTH_MAX:
            raise _too_much(f"a name has more than {TEXT_LENGTH_MAX} characters")
        broker = self._brokers.get(identity.name)
        if broker is None:
            if len(self._brokers) >= BROKERS_MAX:
                raise _too_much(f"the limit of {BROKERS_MAX} broker names is reached")
        elif identity.id not in broker.members and len(broker.members) >= MEMBERS_MAX:
            raise _too_much(f"the limit of {MEMBERS_MAX} brokers with this name is reached")

    @staticmethod
    def _drop_other_ids(broker: RegisteredBroker, identity: BrokerIdentity) -> None:
        """A process that changed its role, slave to master or back, must not be listed twice."""
        for broker_id in [i for i, m in broker.members.items() if m.address == identity.address and i != identity.id]:
            del broker.members[broker_id]

    @staticmethod
    def _is_news(known: RegisteredMember | None, identity: BrokerIdentity, version: DataVersion) -> bool:
        return known is None or known.address != identity.address or known.version != version

    def _merge(self, broker_name: str, broker: RegisteredBroker, table: TopicTable) -> bool:
        """Add and change topics; a registration may contain changes only. False if some were left out."""
        surplus = 0
        for topic, config in table.topics.items():
            if broker_name not in self._topics.get(topic, ()):
                if self._is_full(broker) or len(topic) > TEXT_LENGTH_MAX:
                    surplus += 1
                    continue
                self._entries += 1
                broker.entries += 1
            self._topics.setdefault(topic, {})[broker_name] = QueueData(
                broker_name=broker_name,
                perm=config.perm,
                read_queues=config.read_queues,
                write_queues=config.write_queues,
                topic_sys_flag=config.sys_flag,
            )
        if surplus:
            self._left_out(broker_name, surplus, ENTRIES_MAX)
        return not surplus

    def _is_full(self, broker: RegisteredBroker) -> bool:
        return self._entries >= ENTRIES_MAX or broker.entries >= ENTRIES_OF_ONE_MAX

    def unregister(self, identity: BrokerIdentity) -> None:
        """Unregister a broker. One that has taken over its id at another address stays, unlike in RocketMQ."""
        leaving = (identity.id, identity.address)
        self._drop(identity.name, lambda broker_id, member: (broker_id, member.address) == leaving)

    def connection_closed(self, owner: Hashable) -> list[str]:
        """Remove what registered over this connection; a broker that has reconnected over another one stays.

        Returns the removed addresses.
        """
        return self._drop_everywhere(lambda member: member.owner == owner)

    def expire(self, now_ms: int) -> list[RegisteredMember]:
        """Remove the members without registrations for too long and return them: their connections must be closed."""
        oldest_ms = now_ms - EXPIRED_AFTER_MS
        expired = [member for member in self._members() if member.seen_ms < oldest_ms]
        self._drop_everywhere(lambda member: member.seen_ms < oldest_ms)
        return expired

    def _members(self) -> Iterator[RegisteredMember]:
        return (member for broker in self._brokers.values() for member in broker.members.values())

    def _drop_everywhere(self, condition: Callable[[RegisteredMember], bool]) -> list[str]:
        return [
            address for name in list(self._brokers) for address in self._drop(name, lambda _, member: condition(member))
        ]

    def _drop(self, broker_name: str, condition: Callable[[int, RegisteredMember], bool]) -> list[str]:
        """Remove the members of one broker name that meet the condition, and with the last one the name's topics."""
        broker = self._brokers.get(broker_name)
        if broker is None:
            return []
        for rival in [one for one in broker.rivals.values() if condition(MASTER_ID, one)]:
            del broker.rivals[rival.address]
        dropped = [broker_id for broker_id, member in broker.members.items() if condition(broker_id, member)]
        addresses = [broker.members.pop(broker_id).address for broker_id in dropped]
        if not broker.members:
            for topic in list(self._topics):
                self._drop_queues(topic, [broker_name])
            del self._brokers[broker_name]
        return addresses

    def _drop_queues(self, topic: str, broker_names: Iterable[str]) -> None:
        queues = self._topics.get(topic, {})
        for name in broker_names:
            if queues.pop(name, None) is not None:
                self._entries -= 1
                self._brokers[name].entries -= 1
        if not queues:
            self._topics.pop(topic, None)

    # ------------------------------------------------------------------------------------------------- data versions

    def data_version(self, identity: BrokerIdentity) -> DataVersion | None:
        """The version of the topics a broker registered last, None for an unknown broker."""
        member = self._member_at(identity)
        return None if member is None else member[1].version

    def known_version(self, identity: BrokerIdentity) -> DataVersion | None:
        """The same for a broker of this id: a former slave has registered topics that were ignored."""
        broker = self._brokers.get(identity.name)
        member = broker.members.get(identity.id) if broker is not None else None
        return member.version if member is not None and member.address == identity.address else None

    def renew(self, identity: BrokerIdentity, now_ms: int) -> None:
        """A broker whose topics did not change is alive all the same."""
        found = self._member_at(identity)
        if found is not None:
            broker_id, member = found
            self._brokers[identity.name].members[broker_id] = dataclasses.replace(member, seen_ms=now_ms)

    def _member_at(self, identity: BrokerIdentity) -> tuple[int, RegisteredMember] | None:
        broker = self._brokers.get(identity.name)
        members = broker.members.items() if broker else ()
        return next(((i, member) for i, member in members if member.address == identity.address), None)

    # ------------------------------------------------------------------------------------------------------- queries

    def route(self, topic: str) -> TopicRouteData | None:
        """The route of a topic; None if no broker has it."""
        queues = self._topics.get(topic)
        if not queues:
            return None
        members = [member for name in queues for member in self._brokers[name].members.values()]
        return TopicRouteData(
            broker_datas=[self._broker_data(name) for name in queues],
            filter_server_table={m.address: list(m.filter_servers) for m in members if m.filter_servers},
            queue_datas=list(queues.values()),
        )

    def _broker_data(self, name: str) -> BrokerData:
        broker = self._brokers[name]
        return BrokerData(broker_name=name, cluster=broker.cluster, addresses=broker.addresses)

    def cluster_info(self) -> ClusterInfo:
        """All brokers by name and by cluster."""
        return ClusterInfo(
            brokers={name: self._broker_data(name) for name in self._brokers},
            clusters={cluster: self._names_in(cluster) for cluster in self._clusters()},
        )

    def _clusters(self) -> list[str]:
        return list(dict.fromkeys(broker.cluster for broker in self._brokers.values()))

    def _names_in(self, cluster: str) -> list[str]:
        return [name for name, broker in self._brokers.items() if broker.cluster == cluster]

    def master_address(self, broker_name: str) -> str:
        """The address of the master in the routes; "" if there is none."""
        broker = self._brokers.get(broker_name)
        master = broker.members.get(MASTER_ID) if broker is not None else None
        return master.address if master is not None else ""

    def rivals(self, broker_name: str) -> frozenset[str]:
        """Addresses of other masters of the name than the one in the routes."""
        broker = self._brokers.get(broker_name)
        return frozenset(broker.rivals) if broker is not None else frozenset()

    def brokers(self) -> list[tuple[str, RegisteredBroker]]:
        """Every broker name with its members."""
        return list(self._brokers.items())

    @property
    def topic_count(self) -> int:
        return len(self._topics)

    def topics(self) -> list[str]:
        """All topics."""
        return list(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """The topics at least one broker of the cluster has."""
        names = self._names_in(cluster)
        return [topic for topic, queues in self._topics.items() if any(name in queues for name in names)]

    def system_topics(self) -> list[str]:
        """Each cluster and each broker has a topic with its name."""
        return list(dict.fromkeys([*self._clusters(), *self._brokers]))

    def any_address(self) -> str | None:
        """The address of any broker, to request its own system topics."""
        return next((member.address for member in self._members()), None)

    def topics_where(self, condition: Callable[[int], bool]) -> list[str]:
        """The topics whose system flag, as their first broker registered it, meets the condition."""
        flags = ((topic, next(iter(queues.values())).topic_sys_flag) for topic, queues in self._topics.items())
        return [topic for topic, flag in flags if condition(flag)]

    # ------------------------------------------------------------------------------------------------------- changes

    def wipe_write_permission(self, broker_name: str) -> int:
        """Take new messages away from a broker; returns the number of topics touched.

        It lasts until the broker registers changed topics.
        """
        return self._change_permission(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_permission(self, broker_name: str) -> int:
        """Restore permissions: every topic becomes readable and writable, whatever it was before."""
        return self._change_permission(broker_name, lambda _: PERM_READ | PERM_WRITE)

    def _change_permission(self, broker_name: str, change: Callable[[int], int]) -> int:
        touched = [queues for queues in self._topics.values() if broker_name in queues]
        for queues in touched:
            data = queues[broker_name]
            queues[broker_name] = replace(data, perm=change(data.perm))
        return len(touched)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic, everywhere or on the brokers of one cluster."""
        self._drop_queues(topic, self._names_in(cluster) if cluster else list(self._topics.get(topic, ())))


def _too_much(reason: str) -> RequestRejected:
    return RequestRejected(ResponseCode.SYSTEM_ERROR, f"the registration is refused: {reason}")


def is_unit(sys_flag: int) -> bool:
    """The topic belongs to one unit."""
    return sys_flag & TOPIC_UNIT != 0


def has_unit_subscription(sys_flag: int) -> bool:
    """The topic is subscribed by units."""
    return sys_flag & TOPIC_UNIT_SUBSCRIPTION != 0
