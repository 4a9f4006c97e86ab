"""Have an effect once however often its message comes: the token and the work go into one transaction."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, text

from orbitmq.client import ConsumeFromWhere, Message, MessageExt
from orbitmq.client.idempotent import Idempotent, serialised_sqlite
from orbitmq.client.sync import Producer, PushConsumer

TOPIC = "ExampleIdempotent"


def main(engine: Engine) -> None:
    with Producer("example-payments") as producer:
        for payment in ("P-1", "P-2", "P-1", "P-1"):  # a sender that was not sure whether it had sent
            producer.send(Message(TOPIC, b"10", keys=payment))

    with engine.begin() as connection:
        connection.execute(text("create table bookings (payment text, amount integer)"))
    once = Idempotent(engine, "example-bookkeepers")
    once.create_table()
    consumer = PushConsumer("example-bookkeepers", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer.subscribe(TOPIC)

    @consumer.on_message
    @once
    def book(message: MessageExt, connection: Connection) -> None:
        row = {"payment": message.keys, "amount": int(message.body)}
        connection.execute(text("insert into bookings values (:payment, :amount)"), row)

    with consumer:
        deadline = time.monotonic() + 10
        while sum(once.counts.values()) < 4 and time.monotonic() < deadline:
            time.sleep(0.02)

    with engine.begin() as connection:
        for payment, amount in connection.execute(text("select * from bookings order by payment")):
            print(f"{payment} booked once: {amount}")
    print(f"{once.counts['done']} done, {once.counts['cache'] + once.counts['database']} recognised")


with tempfile.TemporaryDirectory() as directory:
    main(serialised_sqlite(create_engine(f"sqlite:///{Path(directory) / 'shop.db'}?timeout=30")))
