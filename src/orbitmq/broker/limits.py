"""How long a request may have waited before it is refused, and how large its body may be: both stand in its row.

A longest wait stands for RocketMQ's queues, of which there is none here.

What waits is bytes: in the kernel's buffers while the one event loop is busy, and read requests of a peer that does not
take its answers. Both are measured once a read, see `orbitmq.net.lateness`.
"""

from __future__ import annotations

from orbitmq.broker.options import BrokerOptions
from orbitmq.net.routing import Handler, Router
from orbitmq.runtime.refusals import Refusals
from orbitmq.wire.request import Queue, Request


def limit_requests(router: Router, options: BrokerOptions, refusals: Refusals) -> None:
    """Have requests refused that waited longer than the options allow, or whose bodies are larger than any that makes
    sense.
    """
    router.limit_bodies(refusals)
    if options.broker_fast_failure_enable:
        longest_ms = {
            Queue.SEND: options.wait_ms_in_send_queue,
            Queue.PULL: options.wait_ms_in_pull_queue,
            Queue.HEARTBEAT: options.wait_ms_in_heartbeat_queue,
            Queue.TRANSACTION: options.wait_ms_in_transaction_queue,
        }

        def limit(request: Request, handler: Handler) -> Handler:
            if (limit_ms := longest_ms.get(request.queue)) is not None:
                router.limit_wait(request, limit_ms)
            return handler

        router.wrap(limit)
