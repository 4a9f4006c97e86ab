"""The outbox for threads; see `orbitmq.client.outbox`.

    from orbitmq.client.sync import Producer
    from orbitmq.client.outbox.sync import Outbox

    with Producer("orders", "127.0.0.1:9876", outbox=Outbox("orders.outbox")) as producer:
        producer.send(Message("orders", b"..."))

It is not part of `orbitmq.client.sync` because it needs LMDB (`orbitmq[outbox]`).
"""

from __future__ import annotations

from collections import Counter

from orbitmq.client.outbox import outbox
from orbitmq.client.outbox.outbox import OutboxLimits
from orbitmq.client.outbox.record import LossReason
from orbitmq.client.sync_wrapper import SyncWrapper, arguments_of, blocking, direct

__all__ = ["Outbox", "OutboxLimits"]


class Outbox(SyncWrapper[outbox.Outbox]):
    """Keeps messages whose send failed; belongs to one `orbitmq.client.sync.Producer`."""

    @arguments_of(outbox.Outbox)
    def __init__(self) -> None: ...

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
