"""Deprecated: import from `orbitmq.client.outbox.sync`."""

from __future__ import annotations

import warnings

from orbitmq.client.outbox.sync import Outbox, OutboxLimits

__all__ = ["Outbox", "OutboxLimits"]

warnings.warn("orbitmq.client.sync_outbox is now orbitmq.client.outbox.sync", DeprecationWarning, stacklevel=2)
