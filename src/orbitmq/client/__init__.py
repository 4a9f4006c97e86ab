"""The client library: producers and consumers for orbitmq and for brokers of Apache RocketMQ 4.9 and later.

The classes in this module are for asyncio. These modules are public as well; all others may change without notice:

    orbitmq.client.sync         the same classes under the same names, for threads
    orbitmq.client.outbox       keeps failed sends on disk and sends them again (`orbitmq[outbox]`)
    orbitmq.client.outbox.sync  the same for threads
    orbitmq.client.idempotent   idempotent consumption with your own database (`orbitmq[idempotent]`)
    orbitmq.client.typed        values instead of bytes, and their schemas
    orbitmq.client.typed.sync   the same for threads
    orbitmq.client.telemetry    spans for OpenTelemetry (`orbitmq[telemetry]`)
    orbitmq.client.metrics      metrics for Prometheus (`orbitmq[telemetry]`)
"""

from __future__ import annotations

from orbitmq.client.base import Client
from orbitmq.client.consistency import SubscriptionCheck, SubscriptionDifference
from orbitmq.client.consumer import Consumer
from orbitmq.client.core.allocation import (
    AllocateAveragely,
    AllocateByCircle,
    AllocateByConfig,
    AllocateByMachineRoom,
    AllocateConsistentHash,
    AllocateMachineRoomNearby,
    AllocateStrategy,
)
from orbitmq.client.core.capacity import Times, nodes_for, threads_for
from orbitmq.client.core.hooks import (
    ConsumeContext,
    ConsumeHook,
    FilterContext,
    FilterHook,
    ForbiddenHook,
    MessageKind,
    ReceiveContext,
    ReceiveHook,
    SendContext,
    SendHook,
)
from orbitmq.client.core.latency import Fault
from orbitmq.client.core.model import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    ListenerContext,
    LocalTransactionState,
    OrderlyContext,
    PullResult,
    PullStatus,
    Rejection,
    SendResult,
    SendStatus,
    TransactionSendResult,
)
from orbitmq.client.core.offsets import OffsetTable
from orbitmq.client.core.outgoing import Outgoing
from orbitmq.client.core.queue_selectors import QueueSelector, RoomSelector, hash_selector, random_selector
from orbitmq.client.core.replies import create_reply_message, reply_to_client
from orbitmq.client.core.selectors import MessageSelector, Selector
from orbitmq.client.core.trace import (
    ConsumeBegun,
    ConsumeEnded,
    Outcome,
    Published,
    Record,
    TransactionEnded,
    decode_trace,
)
from orbitmq.client.core.transaction_end import EndContext, EndTransactionHook
from orbitmq.client.lag import QueueLag, total_lag
from orbitmq.client.lite_pull import LitePullConsumer
from orbitmq.client.offset_store import OffsetStore
from orbitmq.client.producer import Around, Producer, SendCallback
from orbitmq.client.pull import PullConsumer, reset_offset_by_timestamp
from orbitmq.client.push import PushConsumer
from orbitmq.client.queue_listeners import OnQueues, OnTopicQueues, QueueListener
from orbitmq.client.reading_consumer import ReadingConsumer
from orbitmq.client.schedule import PullContext, PullSchedule, PullTask
from orbitmq.client.schedules import MessageFactory, Schedule
from orbitmq.client.settings import (
    LitePullSettings,
    ProducerSettings,
    PullSettings,
    PushSettings,
    SimpleSettings,
    TransactionSettings,
)
from orbitmq.client.simple import SimpleConsumer
from orbitmq.client.timed import Timed
from orbitmq.client.topic_read import Place, TopicRead
from orbitmq.client.transactions import HalfMessage, TransactionListener, TransactionProducer
from orbitmq.client.worker import Handler
from orbitmq.client.worker_runner import run_worker
from orbitmq.client.workers import Listener, OrderlyListener
from orbitmq.errors import (
    BrokerError,
    ClientError,
    ConfigurationError,
    ConnectError,
    ExpressionIllegal,
    HookFailed,
    InvalidStateError,
    MessageError,
    MessageIllegal,
    OrbitMQError,
    PeerError,
    RemotingError,
    RemotingTimeout,
    RequestTimeout,
    SendRequestError,
    StoreError,
    TooManyRequestsError,
)
from orbitmq.message.model import Message, MessageExt, MessageQueue
from orbitmq.net.remoting import RpcHook
from orbitmq.wire.bodies import ConsumeFromWhere, MessageModel

__all__ = [
    "AllocateAveragely",
    "AllocateByCircle",
    "AllocateByConfig",
    "AllocateByMachineRoom",
    "AllocateConsistentHash",
    "AllocateMachineRoomNearby",
    "AllocateStrategy",
    "Around",
    "BrokerError",
    "Client",
    "ClientError",
    "ConcurrentContext",
    "ConfigurationError",
    "ConnectError",
    "ConsumeBegun",
    "ConsumeConcurrentlyStatus",
    "ConsumeContext",
    "ConsumeEnded",
    "ConsumeFromWhere",
    "ConsumeHook",
    "ConsumeOrderlyStatus",
    "Consumer",
    "EndContext",
    "EndTransactionHook",
    "ExpressionIllegal",
    "Fault",
    "FilterContext",
    "FilterHook",
    "ForbiddenHook",
    "HalfMessage",
    "Handler",
    "HookFailed",
    "InvalidStateError",
    "Listener",
    "ListenerContext",
    "LitePullConsumer",
    "LitePullSettings",
    "LocalTransactionState",
    "Message",
    "MessageError",
    "MessageExt",
    "MessageFactory",
    "MessageIllegal",
    "MessageKind",
    "MessageModel",
    "MessageQueue",
    "MessageSelector",
    "OffsetStore",
    "OffsetTable",
    "OnQueues",
    "OnTopicQueues",
    "OrbitMQError",
    "OrderlyContext",
    "OrderlyListener",
    "Outcome",
    "Outgoing",
    "PeerError",
    "Place",
    "Producer",
    "ProducerSettings",
    "Published",
    "PullConsumer",
    "PullContext",
    "PullResult",
    "PullSchedule",
    "PullSettings",
    "PullStatus",
    "PullTask",
    "PushConsumer",
    "PushSettings",
    "QueueLag",
    "QueueListener",
    "QueueSelector",
    "ReadingConsumer",
    "ReceiveContext",
    "ReceiveHook",
    "Record",
    "Rejection",
    "RemotingError",
    "RemotingTimeout",
    "RequestTimeout",
    "RoomSelector",
    "RpcHook",
    "Schedule",
    "Selector",
    "SendCallback",
    "SendContext",
    "SendHook",
    "SendRequestError",
    "SendResult",
    "SendStatus",
    "SimpleConsumer",
    "SimpleSettings",
    "StoreError",
    "SubscriptionCheck",
    "SubscriptionDifference",
    "Timed",
    "Times",
    "TooManyRequestsError",
    "TopicRead",
    "TransactionEnded",
    "TransactionListener",
    "TransactionProducer",
    "TransactionSendResult",
    "TransactionSettings",
    "create_reply_message",
    "decode_trace",
    "hash_selector",
    "nodes_for",
    "random_selector",
    "reply_to_client",
    "reset_offset_by_timestamp",
    "run_worker",
    "threads_for",
    "total_lag",
]
