"""A transactional outbox: messages in the application's own database, sent when its transaction has committed.

    outbox = OutboxTable()

    with engine.begin() as connection:
        connection.execute(orders.insert().values(number="O-1"))
        connection.execute(outbox.insert(Message("orders", b"O-1"), sharding_key="O-1"))

    run_relay(engine, "shop-relay", "127.0.0.1:9876")  # a program of its own

A message is a row that your transaction inserts, so there is none of a transaction that was rolled back. A relay sends
the rows and deletes what a broker has stored: at least once, since it may end between the two. Each message has an
IDEMPOTENCY_TOKEN, the same whenever it is sent, by which `orbitmq.client.idempotent` consumes it once.

Messages with the same topic and sharding key are sent in the order of their rows, one after another, and none before an
earlier one that failed. Rows are in the order of your transactions if these wait for each other, as they do if they
change the same row before they insert messages about it. Repetitions left out, the messages of a key arrive in that
order, however often relays die.

Needs SQLAlchemy 2 and PostgreSQL, MySQL or SQLite: `pip install 'orbitmq[idempotent]'`. With SQLite use an engine made
by `orbitmq.client.idempotent.serialised_sqlite`.
"""

from __future__ import annotations

try:
    import sqlalchemy  # noqa: F401 - here the error can name the extra
except ImportError as error:
    raise ImportError("the outbox needs SQLAlchemy: pip install 'orbitmq[idempotent]'") from error

from orbitmq.integrations.outbox.relay import Backlog, OutboxRelay, run_relay
from orbitmq.integrations.outbox.table import OutboxRow, OutboxTable

__all__ = ["Backlog", "OutboxRelay", "OutboxRow", "OutboxTable", "run_relay"]
