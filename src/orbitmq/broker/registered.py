"""The body of a registration: the broker's topics. The whole table is encoded once per change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.topics import Topics
from orbitmq.message.config import TopicConfig
from orbitmq.message.flags import PERM_READ, PERM_WRITE
from orbitmq.wire.bodies import BrokerRegistration, TopicTable
from orbitmq.wire.registration import encode_registration, plain_registration

_READ_WRITE = PERM_READ | PERM_WRITE


class RegisteredTopics:
    """The body for name servers. A broker that may not be read or written declares that for every topic."""

    def __init__(self, topics: Topics, options: BrokerOptions) -> None:
        self._topics = topics
        self._options = options
        self._written: tuple[Any, bytes] = (None, b"")

    async def body(self, only: Iterable[TopicConfig] | None) -> bytes:
        """All topics, or some that have changed, with the version of the whole table; encoded off the event loop."""
        if only is not None:
            return self._encoded(self._topics.snapshot(only))
        state = (self._topics.version, self._options.broker_permission)
        if self._written[0] != state:
            self._written = (state, await asyncio.to_thread(self._whole()))
        return self._written[1]

    def _whole(self) -> Callable[[], bytes]:
        """What writes the table as it is now."""
        options = self._options
        if options.broker_permission & _READ_WRITE == _READ_WRITE and not options.compressed_register:
            text = self._topics.text()
            return lambda: plain_registration(text.compact())
        return partial(self._encoded, self._topics.snapshot())

    def _encoded(self, table: TopicTable) -> bytes:
        registration = BrokerRegistration(topic_table=self._narrowed(table))
        return encode_registration(registration, compressed=self._options.compressed_register)

    def _narrowed(self, table: TopicTable) -> TopicTable:
        perm = self._options.broker_permission
        if perm & _READ_WRITE == _READ_WRITE:
            return table
        narrowed = {
            name: TopicConfig(
                c.name, c.read_queues, c.write_queues, perm, c.filter_type, c.sys_flag, c.order, c.attributes
            )
            for name, c in table.topics.items()
        }
        return TopicTable(data_version=table.data_version, topics=narrowed)
