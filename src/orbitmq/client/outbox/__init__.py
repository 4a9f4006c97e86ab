"""Store and forward: messages that could not be sent are kept in files on this machine and sent again.

    outbox = Outbox("orders.outbox", on_loss=print)
    async with Producer("orders", "127.0.0.1:9876", outbox=outbox) as producer:
        await producer.send(Message("orders", b"..."))

When a send has finally failed, the outbox keeps the message if the store rule accepts it and the limits allow it. A
background thread writes it; your event loop never waits for the disk. The message is sent again, with the same unique
id, when the redelivery rule says so, and at once when a broker accepts another message of its topic. Messages with the
same sharding key, or for the same chosen queue, keep their order: a new one is queued behind those that wait.

Every message leaves the outbox in one of two ways: it is sent, or `on_loss` is called with the reason why not.
"""

from orbitmq.client.outbox.losses import OnLoss
from orbitmq.client.outbox.outbox import Outbox, OutboxEntry, OutboxLimits, RedeliveryRule, StoreRule
from orbitmq.client.outbox.record import Loss, LossReason, doubling_pause, worth_keeping

__all__ = [
    "Loss",
    "LossReason",
    "OnLoss",
    "Outbox",
    "OutboxEntry",
    "OutboxLimits",
    "RedeliveryRule",
    "StoreRule",
    "doubling_pause",
    "worth_keeping",
]
