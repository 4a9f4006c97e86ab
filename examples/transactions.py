"""Deliver a message if and only if the application's own work succeeded."""

from __future__ import annotations

import asyncio
import sqlite3

from orbitmq.client import (
    ConsumeFromWhere,
    LitePullConsumer,
    LocalTransactionState,
    Message,
    MessageExt,
    TransactionProducer,
)

TOPIC = "ExampleTransactions"


class Orders:
    """What happens between the two halves of a message, and how it is found out later."""

    def __init__(self) -> None:
        self.database = sqlite3.connect(":memory:", check_same_thread=False)
        self.database.execute("create table orders (number text primary key, outcome_of text)")

    def execute(self, message: Message, number: str) -> LocalTransactionState:
        """Runs on a thread of its own, when the broker has the half message and no consumer sees it yet."""
        if number.endswith("2"):
            return LocalTransactionState.ROLLBACK_MESSAGE
        with self.database:
            self.database.execute("insert into orders values (?, ?)", (number, message.transaction_id))
        return LocalTransactionState.COMMIT_MESSAGE

    def check(self, message: MessageExt) -> LocalTransactionState:
        """Called when the broker has no decision and checks the transaction, in any process of the group."""
        found = self.database.execute("select 1 from orders where outcome_of = ?", (message.transaction_id,))
        return LocalTransactionState.COMMIT_MESSAGE if found.fetchone() else LocalTransactionState.UNKNOWN


async def main() -> None:
    async with TransactionProducer("example-transactions", listener=Orders()) as producer:
        for number in ("O-1", "O-2", "O-3"):
            result = await producer.send_in_transaction(Message(TOPIC, number.encode()), number)
            print(f"{number}: {result.local_state.name}")

    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    async with LitePullConsumer("example-transactions-readers", consume_from_where=first) as consumer:
        consumer.subscribe(TOPIC)
        delivered: list[str] = []
        while len(delivered) < 2:
            delivered += [message.body.decode() for message in await consumer.poll(5.0)]
        print(f"delivered: {', '.join(sorted(delivered))}")


asyncio.run(main())
