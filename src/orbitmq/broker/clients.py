"""Connected producers and consumers by group, kept alive by heartbeats and removed with their connection.

When a consumer group's members or subscriptions change, all its members are notified at once, so that they rebalance. A
broker filters by one subscription per group, so members with different subscriptions miss messages: this is detected,
logged once per change, and shown by tools. Pure tables except for that oneway request.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from orbitmq.message.config import TAG, SubscriptionData
from orbitmq.message.topics import RETRY_PREFIX
from orbitmq.net.connection import Connection
from orbitmq.runtime.refusals import Limit, Refusals
from orbitmq.wire.bodies import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel
from orbitmq.wire.command import request
from orbitmq.wire.headers import NotifyConsumerIdsChangedHeader
from orbitmq.wire.requests import RequestCode

_log = logging.getLogger(__name__)

EXPIRY_MS = 120_000  # a client without a heartbeat for this long is removed
MEMBERSHIPS_MAX = 1_000_000  # of all clients in all groups, some 500 MB; the names come from the network unchecked
MEMBERSHIPS_OF_ONE_MAX = 10_000  # of one client: no client needs so many
SUBSCRIPTIONS_MAX = 1_000_000  # of all groups, some 1 GB; members that subscribe alike count once
SUBSCRIPTIONS_OF_ONE_MAX = 100_000  # of one client, in all its groups; ten of the largest groups it may have
EXPRESSION_SHARE = 256  # characters of an expression that count as much as one subscription
TURN_GROUPS = 200  # left before other work gets its turn: some 4 ms

# A member's subscription without its version: topic, kind of expression, expression.
View = frozenset[tuple[str, str, str]]


@dataclass(slots=True)
class ConnectedClient:
    """One client as its heartbeats describe it; `seen_ms` is the time of the last one."""

    connection: Connection
    client_id: str
    language: str
    version: int
    seen_ms: int


@dataclass(slots=True)
class ConsumerGroup:
    """The online members of a group and their subscriptions."""

    name: str
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    members: dict[Connection, ConnectedClient] = field(default_factory=dict)
    views: dict[Connection, View] = field(default_factory=dict)

    def client_ids(self) -> list[str]:
        return [client.client_id for client in self.members.values()]

    def find(self, client_id: str) -> ConnectedClient | None:
        """The member of this name."""
        return next((client for client in self.members.values() if client.client_id == client_id), None)

    @property
    def differs(self) -> bool:
        """Whether two members subscribe differently. A member without subscriptions assigns queues itself."""
        return len({view for view in self.views.values() if view}) > 1

    def expressions(self) -> dict[str, dict[str, str]]:
        """Client id -> topic -> its subscription."""
        return {
            client.client_id: {topic: expression for topic, _, expression in sorted(self.views[connection])}
            for connection, client in self.members.items()
            if self.views.get(connection)
        }

    def subscribe(self, wanted: Iterable[SubscriptionData]) -> bool:
        """Take the newest subscription of each topic, drop topics no longer named; True when the topics changed."""
        named = {subscription.topic: subscription for subscription in wanted}
        changed = named.keys() != self.subscriptions.keys()
        for topic in self.subscriptions.keys() - named.keys():
            del self.subscriptions[topic]
        for topic, subscription in named.items():
            known = self.subscriptions.get(topic)
            if known is None or subscription.version > known.version:
                self.subscriptions[topic] = subscription
        return changed


def _view(wanted: Iterable[SubscriptionData]) -> View:
    """A tag expression counts by its tags. Retry topics are left out: only some kinds of consumers name theirs."""
    return frozenset(
        (one.topic, one.expression_type or TAG, " || ".join(sorted(one.tags)) or one.expression)
        for one in wanted
        if not one.topic.startswith(RETRY_PREFIX)
    )


def _weight(view: View | None) -> int:
    """The cost of a view, in subscriptions."""
    return sum(1 + len(expression) // EXPRESSION_SHARE for _, _, expression in view) if view else 0


class _Memberships:
    """Connection -> its groups, so that closing a connection costs its own groups only."""

    def __init__(self, limit: int, refusals: Refusals | None) -> None:
        self._refusals = refusals or Refusals()
        self._groups: dict[Connection, set[str]] = {}
        self._limit = limit
        self._count = 0

    def add(self, connection: Connection, group: str) -> bool:
        """False when there are too many."""
        groups = self._groups.setdefault(connection, set())
        if group not in groups:
            if self._count >= self._limit or len(groups) >= MEMBERSHIPS_OF_ONE_MAX:
                text = "event=membership_refused group=%s peer=%s own=%d limit=%d"
                self._refusals.note(Limit.MEMBERSHIPS, _log, text, group, connection, len(groups), self._limit)
                return False
            groups.add(group)
            self._count += 1
        return True

    def remove(self, connection: Connection, group: str) -> None:
        groups = self._groups.get(connection)
        if groups is not None and group in groups:
            groups.discard(group)
            self._count -= 1
            if not groups:
                del self._groups[connection]

    def of(self, connection: Connection) -> list[str]:
        return list(self._groups.get(connection, ()))


class Producers:
    """Producer group -> its clients."""

    def __init__(self, limit: int = MEMBERSHIPS_MAX, refusals: Refusals | None = None) -> None:
        self.groups: dict[str, dict[Connection, ConnectedClient]] = {}
        self._memberships = _Memberships(limit, refusals)
        self._by_id: dict[str, Connection] = {}

    def find(self, client_id: str) -> Connection | None:
        """The connection of a producer, that of its last heartbeat if it has several."""
        return self._by_id.get(client_id)

    def register(self, group: str, client: ConnectedClient) -> None:
        if self._memberships.add(client.connection, group):
            self.groups.setdefault(group, {})[client.connection] = client
            self._by_id[client.client_id] = client.connection

    def unregister(self, group: str, connection: Connection) -> None:
        self._memberships.remove(connection, group)
        members = self.groups.get(group)
        client = members.pop(connection, None) if members is not None else None
        if not members:
            self.groups.pop(group, None)
        if client is not None and not self._memberships.of(connection) and self.find(client.client_id) is connection:
            del self._by_id[client.client_id]

    def forget(self, connection: Connection) -> bool:
        """Take a client out of its groups; True when it was in so many that some are left for another turn."""
        groups = self._memberships.of(connection)
        for group in groups[:TURN_GROUPS]:
            self.unregister(group, connection)
        return len(groups) > TURN_GROUPS

    def expired(self, now_ms: int) -> set[Connection]:
        return _expired(self.groups.values(), now_ms)


class Consumers:
    """Consumer group -> its members. `notifies` returns whether a group is notified of changes; `gone` is called when
    the last member of a group has left.
    """

    def __init__(
        self,
        notifies: Callable[[str], bool] = lambda _: True,
        limit: int = MEMBERSHIPS_MAX,
        gone: Callable[[str], object] = lambda _: None,
        refusals: Refusals | None = None,
    ) -> None:
        self._notifies = notifies
        self._gone = gone
        self._refusals = refusals or Refusals()
        self._memberships = _Memberships(limit, self._refusals)
        self._weight = 0  # of all different views
        self._weights: Counter[Connection] = Counter()  # of what each client subscribes
        self.groups: dict[str, ConsumerGroup] = {}
        self.differing: set[str] = set()
        """Groups whose members subscribe differently at this moment."""
        self.differences = 0
        """How often a group began to."""

    def register(self, data: ConsumerData, client: ConnectedClient) -> bool:
        """Take one group of a heartbeat; True when members or subscriptions changed."""
        view = _view(data.subscription_data_set)
        if not self._has_room(data.group_name, view, client):
            self._renew(data.group_name, client)
            return False
        group = self.groups.get(data.group_name)
        if group is None:
            group = self.groups[data.group_name] = ConsumerGroup(
                data.group_name,
                data.consume_type or ConsumeType.CONSUME_PASSIVELY,
                data.message_model or MessageModel.CLUSTERING,
                data.consume_from_where or ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            )
        group.consume_type = data.consume_type or group.consume_type
        group.message_model = data.message_model or group.message_model
        group.consume_from_where = data.consume_from_where or group.consume_from_where
        joined = client.connection not in group.members
        group.members[client.connection] = client
        changed = group.subscribe(data.subscription_data_set) or joined
        self._compare(group, client.connection, view)
        if joined:
            _log.info("event=consumer_joined group=%s client=%s", group.name, client.client_id)
        if changed:
            self._rebalance_members(group)
        return changed

    def _has_room(self, name: str, view: View, client: ConnectedClient) -> bool:
        """Whether the limits admit one more member and its subscriptions."""
        group, weight = self.groups.get(name), _weight(view)
        views = group.views if group is not None else {}
        own = self._weights[client.connection] - _weight(views.get(client.connection)) + weight
        if own > SUBSCRIPTIONS_OF_ONE_MAX:
            self._log_limit(name, client, own, SUBSCRIPTIONS_OF_ONE_MAX)
            return False
        if self._weight + weight > SUBSCRIPTIONS_MAX and view not in views.values():
            self._log_limit(name, client, self._weight, SUBSCRIPTIONS_MAX)
            return False
        return self._memberships.add(client.connection, name)

    def _log_limit(self, name: str, client: ConnectedClient, topics: int, limit: int) -> None:
        text = "event=subscriptions_refused group=%.300s client=%.300s peer=%s topics=%d limit=%d"
        self._refusals.note(Limit.MEMBERSHIPS, _log, text, name, client.client_id, client.connection, topics, limit)

    def _renew(self, name: str, client: ConnectedClient) -> None:
        """A member whose new subscriptions cannot be kept is alive all the same, with those it had."""
        group = self.groups.get(name)
        if group is not None and client.connection in group.members:
            group.members[client.connection] = client

    def unregister(self, name: str, connection: Connection) -> None:
        self._memberships.remove(connection, name)
        group = self.groups.get(name)
        if group is None:
            return
        client = group.members.pop(connection, None)
        if client is not None:
            _log.info("event=consumer_left group=%s client=%s", name, client.client_id)
        self._compare(group, connection, None)
        if not group.members:
            del self.groups[name]
            self._gone(name)
        elif client is not None:
            self._rebalance_members(group)

    def forget(self, connection: Connection) -> bool:
        """Take a client out of its groups; True when it was in so many that some are left for another turn."""
        groups = self._memberships.of(connection)
        for name in groups[:TURN_GROUPS]:
            self.unregister(name, connection)
        return len(groups) > TURN_GROUPS

    def expired(self, now_ms: int) -> set[Connection]:
        return _expired((group.members for group in self.groups.values()), now_ms)

    def _compare(self, group: ConsumerGroup, connection: Connection, view: View | None) -> None:
        """Take a member's view, None when it left; one line in the log when the group falls apart or agrees again."""
        before = group.views.get(connection)
        if before == view:
            return
        self._weights[connection] += _weight(view) - _weight(before)
        if not self._weights[connection]:
            del self._weights[connection]
        if view is None:
            del group.views[connection]
        else:
            # Members nearly always agree: they share one object.
            shared = next((known for known in group.views.values() if known == view), None)
            group.views[connection] = view if shared is None else shared
            self._weight += _weight(view) if shared is None else 0
        if not any(known is before for known in group.views.values()):
            self._weight -= _weight(before)
        if group.differs and group.name not in self.differing:
            self.differing.add(group.name)
            self.differences += 1
            _log.warning("event=subscriptions_differ group=%s members=%.2000s", group.name, group.expressions())
        elif not group.differs and group.name in self.differing:
            self.differing.discard(group.name)
            _log.info("event=subscriptions_agree group=%s", group.name)

    def _rebalance_members(self, group: ConsumerGroup) -> None:
        if not self._notifies(group.name):
            return
        header = NotifyConsumerIdsChangedHeader(group.name)
        for connection in group.members:
            connection.send(request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, oneway=True))


def _expired(tables: Iterable[dict[Connection, ConnectedClient]], now_ms: int) -> set[Connection]:
    return {
        client.connection for members in tables for client in members.values() if now_ms - client.seen_ms > EXPIRY_MS
    }
