"""Transaction checks: a broker asks a producer whether a pending transaction commits.

The half message names its producer group. A producer that is registered for the group sends the decision when it can.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from orbitmq.errors import UnitError
from orbitmq.message.model import MessageExt
from orbitmq.message.properties import PGROUP, UNIQ_KEY
from orbitmq.message.unit import decode_unit, message_of
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Router
from orbitmq.wire.command import Command
from orbitmq.wire.headers_transaction import CheckTransactionStateHeader
from orbitmq.wire.requests import RequestCode

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TransactionCheck:
    """A pending message; the decision is sent over the connection of the check."""

    connection: Connection
    header: CheckTransactionStateHeader
    message: MessageExt


class TransactionChecks:
    """Passes each check to the producer of its group."""

    def __init__(self) -> None:
        self.producers: dict[str, Callable[[TransactionCheck], None]] = {}

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.CHECK_TRANSACTION_STATE, self.handle)

    def handle(self, connection: Connection, command: Command) -> None:
        """A check without a producer here is no error: the broker sends it to another client in its next round."""
        header = command.header(CheckTransactionStateHeader)
        try:
            message = message_of(decode_unit(command.body))
        except UnitError as error:
            _log.warning("event=bad_transaction_check broker=%s error=%s", connection.address, error)
            return
        message.transaction_id = message.properties.get(UNIQ_KEY)
        producer = self.producers.get(message.properties.get(PGROUP, ""))
        if producer is not None:
            producer(TransactionCheck(connection, header, message))
