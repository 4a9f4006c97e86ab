"""QUERY_ASSIGNMENT and SET_MESSAGE_REQUEST_MODE: which queues a member reads, and whether by pull or by pop.

A 5.x push consumer with `clientRebalance=false` asks for them. The modes are saved as config/messageRequestMode.json.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from orbitmq.broker.clients import Consumers
from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.topics import Topics
from orbitmq.errors import OrbitMQError, RequestRejected
from orbitmq.message.flags import PERM_READ
from orbitmq.message.javajson import dumps_pretty
from orbitmq.message.model import MessageQueue
from orbitmq.message.shares import average_share, circle_share
from orbitmq.message.topics import RETRY_PREFIX
from orbitmq.net.connection import Connection
from orbitmq.net.remoting import Remoting
from orbitmq.net.routing import Router
from orbitmq.operations.routes import route
from orbitmq.runtime.saved import SavedFile
from orbitmq.wire.bodies import MessageModel
from orbitmq.wire.bodies_pop import (
    Assignment,
    AssignmentQuery,
    Assignments,
    RequestMode,
    RequestModeTable,
    RequestModeUpdate,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.objects import decode, decode_request, encode, plain
from orbitmq.wire.requests import RequestCode

_log = logging.getLogger(__name__)

ROUTE_SECONDS: Final = 5.0  # how long a route is used: a member asks every 20 seconds
ROUTES_MAX: Final = 10_000
ROUTE_TIMEOUT_MS: Final = 2000
ALL_QUEUES: Final = -1
MODES_MAX: Final = 100_000
_SHARES: Mapping[str, Callable[[Sequence[MessageQueue], int, int], list[MessageQueue]]] = {
    "AVG": average_share,
    "AVG_BY_CIRCLE": circle_share,
}


class RequestModes:
    """Topic -> group -> the kind of request by which it is read."""

    def __init__(self, directory: Path) -> None:
        self.file = SavedFile(directory / "messageRequestMode.json", self._text)
        self._table: dict[str, dict[str, RequestModeUpdate]] = {}

    def load(self) -> None:
        found = self.file.load(lambda text: decode(RequestModeTable, text))
        self._table = {topic: dict(groups) for topic, groups in (found.table if found else {}).items()}

    def of(self, topic: str, group: str) -> RequestModeUpdate:
        """PULL unless it was set."""
        known = self._table.get(topic, {}).get(group)
        return known or RequestModeUpdate(topic, group, RequestMode.PULL, -1)

    async def put(self, mode: RequestModeUpdate) -> None:
        """Return when it is on disk. RequestRejected when there are too many."""
        groups = self._table.setdefault(mode.topic, {})
        if mode.consumer_group not in groups and sum(map(len, self._table.values())) >= MODES_MAX:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"there are {MODES_MAX} modes, there can be no more")
        groups[mode.consumer_group] = mode
        self.file.mark()
        await self.file.flush()

    @property
    def table(self) -> RequestModeTable:
        return RequestModeTable(self._table)

    def take(self, found: RequestModeTable) -> None:
        """Of a slave: the modes of its master."""
        if found != self.table:
            self._table = {topic: dict(groups) for topic, groups in found.table.items()}
            self.file.mark()

    def _text(self) -> str:
        return dumps_pretty(plain(self.table))


class AssignmentHandler:
    """The handlers. If no name server knows a topic, its queues of this broker are assigned."""

    def __init__(
        self, modes: RequestModes, topics: Topics, consumers: Consumers, options: BrokerOptions, remoting: Remoting
    ) -> None:
        self._modes = modes
        self._topics = topics
        self._consumers = consumers
        self._options = options
        self._remoting = remoting
        self._routes: dict[str, tuple[float, list[MessageQueue]]] = {}

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.QUERY_ASSIGNMENT, self.query)
        router.add(RequestCode.SET_MESSAGE_REQUEST_MODE, self.set_mode)
        router.add(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, self.all_modes)

    async def set_mode(self, _connection: Connection, command: Command) -> Command:
        """By which kind of request a group reads a topic."""
        asked = decode_request(RequestModeUpdate, command.body)
        if asked.topic.startswith(RETRY_PREFIX):
            raise RequestRejected(ResponseCode.NO_PERMISSION, "the mode of a retry topic cannot be set")
        if self._topics.get(asked.topic) is None:
            raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, f"topic {asked.topic} does not exist")
        await self._modes.put(asked)
        return command.response(ResponseCode.SUCCESS)

    def all_modes(self, _connection: Connection, command: Command) -> Command:
        """The modes that were set, for slaves."""
        return command.response(ResponseCode.SUCCESS, body=encode(self._modes.table))

    async def query(self, _connection: Connection, command: Command) -> Command:
        """The queues of one member. None at all, instead of an empty list, if they are not known: it keeps its own."""
        asked = decode_request(AssignmentQuery, command.body)
        mode = self._modes.of(asked.topic, asked.consumer_group)
        queues = self._assigned(asked, mode, sorted(await self._queues(asked.topic)))
        body = Assignments(None if queues is None else [Assignment(queue, mode.mode) for queue in sorted(set(queues))])
        return command.response(ResponseCode.SUCCESS, body=encode(body))

    def _assigned(
        self, asked: AssignmentQuery, mode: RequestModeUpdate, queues: list[MessageQueue]
    ) -> list[MessageQueue] | None:
        if not queues:
            return None
        if asked.message_model is MessageModel.BROADCASTING:
            return queues
        group = self._consumers.groups.get(asked.consumer_group)
        members = sorted(set(group.client_ids())) if group is not None else []
        share = _SHARES.get(asked.strategy_name or "")
        if asked.client_id not in members or share is None:
            return None
        own, count = members.index(asked.client_id), len(members)
        if mode.mode is RequestMode.PULL:
            return share(queues, own, count)
        shared = mode.pop_share_queue_num
        if shared <= 0 or shared >= count - 1:
            return [MessageQueue(asked.topic, name, ALL_QUEUES) for name in {queue.broker_name for queue in queues}]
        if count > len(queues):
            return [queues[own % len(queues)]]
        return [queue for number in range(shared + 1) for queue in share(queues, (own + number) % count, count)]

    async def _queues(self, topic: str) -> list[MessageQueue]:
        """Those of the topic on all brokers that may be read."""
        now = asyncio.get_running_loop().time()
        known = self._routes.get(topic)
        if known is not None and known[0] > now:
            return known[1]
        found: list[MessageQueue] | None = None
        is_silent = False
        for server in self._options.name_servers:
            try:
                asked = await route(self._remoting, server, topic, timeout_ms=ROUTE_TIMEOUT_MS)
            except OrbitMQError as error:
                _log.warning("event=route_unknown topic=%.300s server=%s error=%s", topic, server, error)
                is_silent = True
                continue
            if asked is not None:
                found = [
                    MessageQueue(topic, data.broker_name, queue_id)
                    for data in asked.queue_datas
                    if data.perm & PERM_READ
                    for queue_id in range(data.read_queues)
                ]
                break
        if found is None and is_silent:  # what other brokers have is unknown: members keep their queues
            return known[1] if known is not None else []
        if found is None:
            own, name = self._topics.get(topic), self._options.broker_name
            found = [MessageQueue(topic, name, one) for one in range(own.read_queues)] if own else []
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
        self._routes[topic] = now + ROUTE_SECONDS, found
        return found
