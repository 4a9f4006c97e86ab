"""What each kind of request may bring: how long it may have waited before it is refused, which stands for RocketMQ's
queues, of which there is none here; and how large its body may be.

What waits is bytes: in the kernel's buffers while the one event loop is busy, and read requests of a peer that does not
take its answers. Both are measured once a read, see `orbitmq.net.lateness`.
"""

from __future__ import annotations

from orbitmq.broker.options import BrokerOptions
from orbitmq.net.routing import Router
from orbitmq.runtime.refusals import Refusals
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.frame import FRAME_SIZE_MAX

SENDS = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.CONSUMER_SEND_MSG_BACK,
)
PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
REPLIES = (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
LISTS = (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST)
BODY_SIZE_MAX = 1 << 20  # bytes: locks of some 10,000 queues
HEARTBEAT_SIZE_MAX = 4 << 20  # some 8,000 groups with two topics each, and 20 ms to read
BODY_SIZES = {
    **dict.fromkeys((*SENDS, *PULLS), FRAME_SIZE_MAX),  # messages have a limit of their own, the others no use for one
    **dict.fromkeys((*REPLIES, *LISTS), FRAME_SIZE_MAX),
    RequestCode.HEART_BEAT: HEARTBEAT_SIZE_MAX,
}


def limit_requests(router: Router, options: BrokerOptions, refusals: Refusals) -> None:
    """Have requests refused that waited longer than the options allow, or whose bodies are larger than any that makes
    sense. To be called when the router is complete.
    """
    router.limit_bodies(BODY_SIZES, BODY_SIZE_MAX, refusals)
    if options.broker_fast_failure_enable:
        router.limit_wait(SENDS, options.wait_ms_in_send_queue)
        router.limit_wait(PULLS, options.wait_ms_in_pull_queue)
        router.limit_wait((RequestCode.HEART_BEAT,), options.wait_ms_in_heartbeat_queue)
        router.limit_wait((RequestCode.END_TRANSACTION,), options.wait_ms_in_transaction_queue)
