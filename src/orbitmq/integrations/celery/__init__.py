"""orbitmq as the broker of Celery (`orbitmq[celery]`).

    import orbitmq.integrations.celery  # kombu now knows orbitmq://
    from celery import Celery

    app = Celery("shop", broker="orbitmq://127.0.0.1:9876")

The host is a name server. A user and a password in the URL are an account of the brokers, its path is a namespace.
`broker_transport_options` has the settings of `Options`, and those of any client of `orbitmq.client`.

It needs brokers of orbitmq, or of RocketMQ 5.
"""

from __future__ import annotations

from kombu.transport import TRANSPORT_ALIASES

from orbitmq.integrations.celery.transport import Channel, Transport

__all__ = ["Channel", "Transport"]

# kombu has no entry points for transports.
TRANSPORT_ALIASES.setdefault("orbitmq", "orbitmq.integrations.celery:Transport")
