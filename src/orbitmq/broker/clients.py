"""Who is connected: producers and consumers by group, kept alive by heartbeats, gone with their connection.

A change of a consumer group's members or subscriptions is told to all its members at once, so that they share
the queues anew. Pure tables but for that one oneway request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from orbitmq.message.config import SubscriptionData
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import request
from orbitmq.wire.headers import NotifyConsumerIdsChangedHeader

_log = logging.getLogger(__name__)

EXPIRY_MS = 120_000  # a client without heartbeat for so long is gone


@dataclass(slots=True)
class Client:
    """One client as its heartbeats describe it; `seen_ms` is the time of the last one."""

    connection: Connection
    client_id: str
    language: str
    version: int
    seen_ms: int


@dataclass(slots=True)
class ConsumerGroup:
    """The online members of a group and what they subscribe."""

    name: str
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    members: dict[Connection, Client] = field(default_factory=dict)

    def client_ids(self) -> list[str]:
        return [client.client_id for client in self.members.values()]

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


class Producers:
    """Producer group -> its clients."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[Connection, Client]] = {}

    def register(self, group: str, client: Client) -> None:
        self.groups.setdefault(group, {})[client.connection] = client

    def unregister(self, group: str, connection: Connection) -> None:
        members = self.groups.get(group)
        if members is not None and members.pop(connection, None) is not None and not members:
            del self.groups[group]

    def forget(self, connection: Connection) -> None:
        for group in [name for name, members in self.groups.items() if connection in members]:
            self.unregister(group, connection)

    def expired(self, now_ms: int) -> set[Connection]:
        return _expired(self.groups.values(), now_ms)


class Consumers:
    """Consumer group -> its members. `notifies` says whether a group wants to hear of changes."""

    def __init__(self, notifies: Callable[[str], bool] = lambda _: True) -> None:
        self._notifies = notifies
        self.groups: dict[str, ConsumerGroup] = {}

    def register(self, data: ConsumerData, client: Client) -> bool:
        """Take one group of a heartbeat; True when members or subscriptions changed."""
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
        if joined:
            _log.info("event=consumer_joined group=%s client=%s", group.name, client.client_id)
        if changed:
            self._tell(group)
        return changed

    def unregister(self, name: str, connection: Connection) -> None:
        group = self.groups.get(name)
        if group is None:
            return
        client = group.members.pop(connection, None)
        if client is not None:
            _log.info("event=consumer_left group=%s client=%s", name, client.client_id)
        if not group.members:
            del self.groups[name]
        elif client is not None:
            self._tell(group)

    def forget(self, connection: Connection) -> None:
        for name in [name for name, group in self.groups.items() if connection in group.members]:
            self.unregister(name, connection)

    def expired(self, now_ms: int) -> set[Connection]:
        return _expired((group.members for group in self.groups.values()), now_ms)

    def _tell(self, group: ConsumerGroup) -> None:
        if not self._notifies(group.name):
            return
        header = NotifyConsumerIdsChangedHeader(group.name)
        for connection in group.members:
            connection.send(request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, oneway=True))


def _expired(tables: Iterable[dict[Connection, Client]], now_ms: int) -> set[Connection]:
    return {
        client.connection for members in tables for client in members.values() if now_ms - client.seen_ms > EXPIRY_MS
    }
