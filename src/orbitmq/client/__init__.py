"""The client library: producers and consumers for orbitmq and for Apache RocketMQ 4.9 and later brokers.

The classes here are for asyncio; `orbitmq.client.sync` has the same under the same names for threads. Decisions are
pure code in `core`; everything else carries them out.
"""

from __future__ import annotations

from orbitmq.client.core.allocation import (
    AllocateAveragely,
    AllocateByCircle,
    AllocateByConfig,
    AllocateByMachineRoom,
    AllocateConsistentHash,
    AllocateMachineRoomNearby,
    AllocateStrategy,
)
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
from orbitmq.client.core.offsets import OffsetTable
from orbitmq.client.core.queue_selectors import QueueSelector, RoomSelector, hash_selector, random_selector
from orbitmq.client.core.replies import create_reply_message, reply_to_client
from orbitmq.client.core.selectors import MessageSelector
from orbitmq.client.lite_pull import LitePullConsumer
from orbitmq.client.offset_store import OffsetStore
from orbitmq.client.producer import Producer
from orbitmq.client.pull import PullConsumer
from orbitmq.client.push import PushConsumer
from orbitmq.client.schedule import PullContext, PullSchedule
from orbitmq.client.settings import LitePullSettings, ProducerSettings, PullSettings, PushSettings, TransactionSettings
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
    "AllocateAveragely",
    "AllocateByCircle",
    "AllocateByConfig",
    "AllocateByMachineRoom",
    "AllocateConsistentHash",
    "AllocateMachineRoomNearby",
    "AllocateStrategy",
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
    "OffsetStore",
    "OffsetTable",
    "OrbitMQError",
    "OrderlyContext",
    "Producer",
    "ProducerSettings",
    "PullConsumer",
    "PullContext",
    "PullResult",
    "PullSchedule",
    "PullSettings",
    "PullStatus",
    "PushConsumer",
    "PushSettings",
    "QueueSelector",
    "RemotingError",
    "RemotingTimeout",
    "RequestTimeout",
    "RoomSelector",
    "SendRequestError",
    "SendResult",
    "SendStatus",
    "TooManyRequestsError",
    "TransactionListener",
    "TransactionProducer",
    "TransactionSendResult",
    "TransactionSettings",
    "create_reply_message",
    "hash_selector",
    "random_selector",
    "reply_to_client",
]
