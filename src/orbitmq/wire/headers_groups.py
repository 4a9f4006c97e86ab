"""Header declarations of the requests about one consumer group: tools to a broker, and a broker to its clients.

Names, types and Java's spelling where it differs; `wire.header` holds the one codec."""

from __future__ import annotations

from orbitmq.wire.header import Header, Int32, Int64


class InvokeBrokerToResetOffsetHeader(Header):
    """INVOKE_BROKER_TO_RESET_OFFSET (222). `timestamp` -1 is the end of the queue; with `queue_id` and `offset`, which
    5.x tools add, the time does not count."""

    topic: str
    group: str
    timestamp: Int64
    is_force: bool
    queue_id: Int32 = -1
    offset: Int64 | None = None


class ResetConsumerClientOffsetHeader(Header):
    """RESET_CONSUMER_CLIENT_OFFSET (220), broker to consumer."""

    topic: str
    group: str
    timestamp: Int64
    is_force: bool = False


class InvokeBrokerToGetConsumerStatusHeader(Header):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223). `client_addr` is a client id; empty means every member."""

    topic: str
    group: str
    client_addr: str | None = None


class GetConsumerStatusFromClientHeader(Header):
    """GET_CONSUMER_STATUS_FROM_CLIENT (221), broker to consumer."""

    topic: str
    group: str


class GetConsumerRunningInfoHeader(Header):
    """GET_CONSUMER_RUNNING_INFO (307), from a tool and on to the consumer."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyHeader(Header):
    """CONSUME_MESSAGE_DIRECTLY (309), from a tool and on to the consumer. `msg_id` is an offset id."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None


class CloneGroupOffsetHeader(Header):
    """CLONE_GROUP_OFFSET (314). Without topic all of the source group's are copied."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False
