"""The messages that were delivered and are not acknowledged: of a group for tools, of orderly groups for slaves."""

from __future__ import annotations

import asyncio
from heapq import nsmallest
from typing import Final

from orbitmq.broker.pop.in_flight import Checkpoint
from orbitmq.broker.pop.journal import Journal
from orbitmq.broker.pop.ordering import Orders
from orbitmq.message.pop import pop_retry_topic
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Router
from orbitmq.wire.bodies_pop import InFlightList, InFlightMessages
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers_pop import InFlightHeader
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode

PAGE_MAX: Final = 1000
LOOKED_AT_ONCE: Final = 10_000  # checkpoints before other work gets its turn: some 2 ms


class InFlightListing:
    """The handlers."""

    def __init__(self, journal: Journal, orders: Orders) -> None:
        self._journal = journal
        self._orders = orders

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.GET_IN_FLIGHT, self.in_flight)
        router.add(RequestCode.GET_ALL_CONSUMER_ORDER, self.all_orders)

    async def all_orders(self, _connection: Connection, command: Command) -> Command:
        """The table of orderly consumption, in the form of its file."""
        text = await asyncio.to_thread(self._orders.text())
        return command.response(ResponseCode.SUCCESS, body=text.encode())

    async def in_flight(self, _connection: Connection, command: Command) -> Command:
        """A page of them, the next to be redelivered first."""
        header = command.header(InFlightHeader)
        topic, group = header.topic, header.consumer_group
        topics = None if topic is None else (topic, pop_retry_topic(topic, group))
        found: list[Checkpoint] = []
        known, limit = list(self._journal.in_flight), min(max(header.limit, 1), PAGE_MAX)
        for at in range(0, len(known), LOOKED_AT_ONCE):
            some = (
                one
                for one in known[at : at + LOOKED_AT_ONCE]
                if one.key.group == group and (topics is None or one.key.topic in topics)
            )
            found = nsmallest(limit, [*found, *some])
            await asyncio.sleep(0)
        messages = sum(
            count
            for (name, owner, _), count in self._journal.in_flight.messages.items()
            if owner == group and (topics is None or name in topics)
        )
        shown = [
            InFlightMessages(one.key.topic, one.key.queue_id, one.left(), one.key.pop_ms, one.due_ms) for one in found
        ]
        body = encode(InFlightList(messages, self._journal.is_restored, shown))
        return command.response(ResponseCode.SUCCESS, body=body)
