"""The clients connected to a broker: producers, consumers, and the queues that consumers have locked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from orbitmq.broker.clients import Consumers, Producers
from orbitmq.broker.groups import Groups
from orbitmq.broker.locks import LockTable
from orbitmq.broker.options import BrokerOptions
from orbitmq.net.connection import Connection
from orbitmq.runtime.clock import Clock
from orbitmq.runtime.refusals import Refusals

_log = logging.getLogger(__name__)


class Presence:
    """`forget_group` is called for a consumer group that has no member any more."""

    def __init__(
        self,
        groups: Groups,
        options: BrokerOptions,
        clock: Clock,
        refusals: Refusals,
        forget_group: Callable[[str], object],
    ) -> None:
        self._groups = groups
        self._options = options
        self.clock = clock
        self.producers = Producers(refusals=refusals)
        self.consumers = Consumers(self._is_notified, gone=forget_group, refusals=refusals)
        self.locks = LockTable(options.lock_max_live_ms, refusals=refusals)

    def _is_notified(self, group: str) -> bool:
        config = self._groups.table.get(group)
        return self._options.notify_consumer_ids_changed and (config is None or config.notify_consumer_ids_changed)

    def forget_client(self, connection: Connection) -> None:
        """Remove the client of a closed connection: some of its groups now, others in later turns."""
        more = self.producers.forget(connection)
        if self.consumers.forget(connection) or more:
            asyncio.get_running_loop().call_soon(self.forget_client, connection)

    def close_expired(self) -> None:
        """Remove clients without heartbeats, and close their connections."""
        now_ms = self.clock.now_ms()
        for connection in self.producers.expired(now_ms) | self.consumers.expired(now_ms):
            _log.info("event=client_expired peer=%s", connection.address)
            self.forget_client(connection)
            connection.close()

    def sweep_locks(self) -> None:
        """Remove expired locks."""
        self.locks.sweep(self.clock.now_ms())
