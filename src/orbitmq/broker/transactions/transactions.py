"""Puts the parts of transactions together, for the broker to start and stop as one."""

from __future__ import annotations

from orbitmq.broker.clients import Producers
from orbitmq.broker.message_writer import MessageWriter
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.topics import Topics
from orbitmq.broker.transactions.checking import Checking
from orbitmq.broker.transactions.deciding import Deciding
from orbitmq.broker.transactions.ledger import Ledger
from orbitmq.broker.transactions.pending import Pending
from orbitmq.net.routing import Router
from orbitmq.runtime.clock import Clock
from orbitmq.store.engine import MessageStore


class Transactions:
    """`prepare` puts a half message; requests are registered with the router; `checking` runs in rounds of its own."""

    def __init__(
        self,
        store: MessageStore,
        writing: MessageWriter,
        topics: Topics,
        offsets: ConsumerOffsets,
        producers: Producers,
        options: BrokerOptions,
        clock: Clock,
    ) -> None:
        self.ledger = ledger = Ledger()
        self.checking = Checking(store, ledger, topics, offsets, producers, options, clock)
        self.deciding = Deciding(store, writing, ledger, options, clock)
        self._pending = Pending(store, writing, ledger, self.checking, clock)
        self.prepare = self.deciding.prepare

    def use_host(self, store_host: bytes) -> None:
        """Where the op messages of this broker come from."""
        self.checking.store_host = self.deciding.store_host = store_host

    def add_to(self, router: Router) -> None:
        self.deciding.add_to(router)
        self._pending.add_to(router)
