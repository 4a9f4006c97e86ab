"""How long each kind of request may have waited before it is refused: RocketMQ's queues, of which there is none here.

What waits is bytes: in the kernel's buffers while the one event loop is busy, and read requests of a peer that does not
take its answers. Both are measured once a read, see `orbitmq.net.lateness`.
"""

from __future__ import annotations

from orbitmq.broker.options import BrokerOptions
from orbitmq.net.routing import Router
from orbitmq.wire.codes import RequestCode

SENDS = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.CONSUMER_SEND_MSG_BACK,
)
PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)


def limit_waits(router: Router, options: BrokerOptions) -> None:
    """Have requests refused that waited longer than the options allow."""
    if options.broker_fast_failure_enable:
        router.limit_wait(SENDS, options.wait_ms_in_send_queue)
        router.limit_wait(PULLS, options.wait_ms_in_pull_queue)
        router.limit_wait((RequestCode.HEART_BEAT,), options.wait_ms_in_heartbeat_queue)
        router.limit_wait((RequestCode.END_TRANSACTION,), options.wait_ms_in_transaction_queue)
