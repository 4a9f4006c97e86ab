"""The parts of transactions, as one part of the broker."""

from __future__ import annotations

from orbitmq.broker.clients import Producers
from orbitmq.broker.message_writer import MessageWriter
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.topics import Topics
from orbitmq.broker.transactions.checks import TransactionChecks
from orbitmq.broker.transactions.decisions import Decisions
from orbitmq.broker.transactions.ledger import Ledger
from orbitmq.broker.transactions.pending_handler import PendingHandler
from orbitmq.net.routing import Router
from orbitmq.runtime.clock import Clock
from orbitmq.store.engine import MessageStore


class Transactions:
    """`prepare` stores a half message; `checks` runs in the background."""

    def __init__(
        self,
        store: MessageStore,
        writer: MessageWriter,
        topics: Topics,
        offsets: ConsumerOffsets,
        producers: Producers,
        options: BrokerOptions,
        clock: Clock,
    ) -> None:
        self.ledger = ledger = Ledger()
        self.checks = TransactionChecks(store, ledger, topics, offsets, producers, options, clock)
        self.decisions = Decisions(store, writer, ledger, options, clock)
        self._pending = PendingHandler(store, writer, ledger, self.checks, clock)
        self.prepare = self.decisions.prepare

    def use_host(self, store_host: bytes) -> None:
        """Set the host of the op messages of this broker."""
        self.checks.store_host = self.decisions.store_host = store_host

    def add_to(self, router: Router) -> None:
        self.decisions.add_to(router)
        self._pending.add_to(router)
