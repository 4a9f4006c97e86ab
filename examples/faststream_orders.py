"""FastStream with orbitmq: orders become invoices, one after it was tried again; a bad one is a dead letter."""

from __future__ import annotations

import asyncio
import os
import time

from faststream import FastStream
from faststream.exceptions import NackMessage, RejectMessage
from pydantic import BaseModel

from orbitmq.integrations.faststream import RocketMQBroker, RocketMQMessage

broker = RocketMQBroker(os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876"), logger=None)
app = FastStream(broker, logger=None)
orders = iter((("O-1", "kettle"), ("O-2", "cup"), ("O-3", "nothing")))


class Order(BaseModel):
    number: str
    item: str


class Invoice(BaseModel):
    order: str
    total: float


@broker.subscriber("ExamplePrices", group="example-prices")
async def price(item: str) -> float:
    return {"kettle": 49.90, "cup": 5.50}[item]


@broker.subscriber("ExampleOrders", group="example-billing", expression="new", max_workers=4)
@broker.publisher("ExampleInvoices")
async def bill(order: Order, message: RocketMQMessage) -> Invoice:
    if order.item == "nothing":
        print(f"{order.number} is a dead letter")
        await broker.publish(time.time() + 1, "ExampleReminders", deliver_after=1)
        raise RejectMessage
    if order.item == "cup" and message.reconsume_times == 0:
        print(f"{order.number} is not billed: try again in a second")
        raise NackMessage(delay_level=1)
    reply = await broker.request(order.item, "ExamplePrices", timeout=10)
    return Invoice(order=order.number, total=float(reply.body))


@broker.subscriber("ExampleInvoices", group="example-invoices")
async def send(invoice: Invoice) -> None:
    print(f"{invoice.order} costs {invoice.total:.2f}")
    await order_next()


@broker.subscriber("ExampleReminders", group="example-reminders")
async def remind(due: float) -> None:
    print(f"the reminder comes {'before' if time.time() < due else 'after'} its time")
    app.exit()


@app.after_startup
async def order_next() -> None:
    number, item = next(orders)
    await broker.publish(Order(number=number, item=item), "ExampleOrders", tags="new", keys=number)


# Yours may be run by `faststream run faststream_orders:app` as well.
asyncio.run(app.run())
