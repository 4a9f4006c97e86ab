"""The outbox for threads; see `orbitmq.client.outbox`.

    from orbitmq.client.sync import Producer
    from orbitmq.client.outbox.sync import Outbox

    with Producer("orders", "127.0.0.1:9876", outbox=Outbox("orders.outbox")) as producer:
        producer.send(Message("orders", b"..."))

It is not part of `orbitmq.client.sync` because it needs LMDB (`orbitmq[outbox]`).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from orbitmq.client.outbox import outbox
from orbitmq.client.outbox.losses import OnLoss
from orbitmq.client.outbox.outbox import OutboxLimits, RedeliveryRule, StoreRule
from orbitmq.client.outbox.record import LossReason, worth_keeping
from orbitmq.client.sync_wrapper import SyncWrapper, blocking, direct

__all__ = ["Outbox", "OutboxLimits"]


class Outbox(SyncWrapper[outbox.Outbox]):
    """Keeps messages whose send failed; belongs to one `orbitmq.client.sync.Producer`."""

    def __init__(
        self,
        path: str | Path,
        *,
        limits: OutboxLimits | None = None,
        should_store: StoreRule = worth_keeping,
        next_pause: RedeliveryRule | None = None,
        on_loss: OnLoss | None = None,
        drop_oldest: bool = False,
        durable: bool = False,
        raises: bool = True,
    ) -> None:
        super().__init__(
            outbox.Outbox(
                path,
                limits=limits,
                should_store=should_store,
                next_pause=next_pause,
                on_loss=on_loss,
                drop_oldest=drop_oldest,
                durable=durable,
                raises=raises,
            )
        )

    entries = direct(outbox.Outbox.entries)
    purge = blocking(outbox.Outbox.purge)

    def __len__(self) -> int:
        return len(self.core)

    @property
    def size(self) -> int:
        """Bytes that the waiting messages take on disk."""
        return self.core.size

    @property
    def stored(self) -> int:
        """Messages kept since the outbox was opened."""
        return self.core.stored

    @property
    def delivered(self) -> int:
        """Messages sent from the outbox since it was opened."""
        return self.core.delivered

    @property
    def lost(self) -> Counter[LossReason]:
        """Losses since the outbox was opened, by reason."""
        return self.core.lost
