"""The client library: producers and consumers for orbitmq and for Apache RocketMQ 4.9 and later brokers.

The classes here are for asyncio; `orbitmq.client.sync` has the same under the same names for threads. Decisions are
pure code in `core`; everything else carries them out.
"""

from __future__ import annotations

from orbitmq.client.core.allocation import STRATEGIES, Allocate, averagely, by_circle, by_consistent_hash
from orbitmq.client.core.model import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    LocalTransactionState,
    OrderlyContext,
    PullResult,
    PullStatus,
    SendResult,
    SendStatus,
    TransactionSendResult,
)
from orbitmq.client.core.replies import create_reply_message, reply_to_client
from orbitmq.client.core.selectors import MessageSelector
from orbitmq.client.lite_pull import LitePullConsumer
from orbitmq.client.producer import Producer
from orbitmq.client.push import PushConsumer
from orbitmq.client.settings import LitePullSettings, ProducerSettings, PushSettings, TransactionSettings
from orbitmq.client.transactions import HalfMessage, TransactionListener, TransactionProducer
from orbitmq.client.workers import Listener
from orbitmq.errors import (
    BrokerError,
    ClientError,
    ConnectError,
    InvalidStateError,
    MessageIllegal,
    OrbitMQError,
    RemotingError,
    RemotingTimeout,
    RequestTimeout,
    SendRequestError,
    TooManyRequestsError,
)
from orbitmq.message.model import Message, MessageExt, MessageQueue
from orbitmq.wire.bodies import ConsumeFromWhere, MessageModel

__all__ = [
    "STRATEGIES",
    "Allocate",
    "BrokerError",
    "ClientError",
    "ConcurrentContext",
    "ConnectError",
    "ConsumeConcurrentlyStatus",
    "ConsumeFromWhere",
    "ConsumeOrderlyStatus",
    "HalfMessage",
    "InvalidStateError",
    "Listener",
    "LitePullConsumer",
    "LitePullSettings",
    "LocalTransactionState",
    "Message",
    "MessageExt",
    "MessageIllegal",
    "MessageModel",
    "MessageQueue",
    "MessageSelector",
    "OrbitMQError",
    "OrderlyContext",
    "Producer",
    "ProducerSettings",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "PushSettings",
    "RemotingError",
    "RemotingTimeout",
    "RequestTimeout",
    "SendRequestError",
    "SendResult",
    "SendStatus",
    "TooManyRequestsError",
    "TransactionListener",
    "TransactionProducer",
    "TransactionSendResult",
    "TransactionSettings",
    "averagely",
    "by_circle",
    "by_consistent_hash",
    "create_reply_message",
    "reply_to_client",
]
