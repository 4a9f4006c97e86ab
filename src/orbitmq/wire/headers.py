"""Header declarations of the requests clients send to a broker, and of their responses.

Names, types and Java's spelling where it differs; `wire.header` holds the one codec."""

from __future__ import annotations

from enum import StrEnum

from orbitmq.wire.header import Header, Int32, Int64, renamed


class SendMessageHeader(Header):
    """SEND_MESSAGE (10), SEND_REPLY_MESSAGE (324): long names."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    batch: bool = False
    max_reconsume_times: Int32 | None = None
    broker_name: str | None = renamed("bname", None)


class SendMessageV2Header(Header):
    """SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320), SEND_REPLY_MESSAGE_V2 (325): one letter a field."""

    producer_group: str = renamed("a")
    topic: str = renamed("b")
    default_topic: str = renamed("c")
    default_topic_queue_nums: Int32 = renamed("d")
    queue_id: Int32 = renamed("e")
    sys_flag: Int32 = renamed("f")
    born_timestamp: Int64 = renamed("g")
    flag: Int32 = renamed("h")
    properties: str | None = renamed("i", None)
    reconsume_times: Int32 | None = renamed("j", None)
    unit_mode: bool = renamed("k", False)
    max_reconsume_times: Int32 | None = renamed("l", None)
    batch: bool = renamed("m", False)
    broker_name: str | None = renamed("n", None)


class SendMessageResponseHeader(Header):
    """Response to every send that was stored."""

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    region: str = renamed("MSG_REGION", "DefaultRegion")
    trace_on: bool = renamed("TRACE_ON", True)


class ConsumerSendMsgBackHeader(Header):
    """CONSUMER_SEND_MSG_BACK (36)."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    broker_name: str | None = renamed("bname", None)


class PullMessageHeader(Header):
    """PULL_MESSAGE (11), LITE_PULL_MESSAGE (361).

    `bulk` is orbitmq's own: its brokers then limit the bytes of the response, and not the number of messages. Others do
    not look at it.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    sub_version: Int64
    subscription: str | None = None
    expression_type: str | None = None
    broker_name: str | None = renamed("bname", None)
    bulk: bool | None = None


class PullMessageResponseHeader(Header):
    """Response to a pull: all four are required for the codes 0, 19, 20 and 21."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64


class QueryConsumerOffsetHeader(Header):
    """QUERY_CONSUMER_OFFSET (14)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    broker_name: str | None = renamed("bname", None)


class QueryConsumerOffsetResponseHeader(Header):
    """The stored offset: the next one to consume."""

    offset: Int64


class UpdateConsumerOffsetHeader(Header):
    """UPDATE_CONSUMER_OFFSET (15). `only_forward` is orbitmq's own: a greater offset stays."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64
    broker_name: str | None = renamed("bname", None)
    only_forward: bool | None = None


class Boundary(StrEnum):
    """The boundary of a search by time; RocketMQ has it since 5.1."""

    LOWER = "LOWER"
    """The first message stored at or after the time."""
    UPPER = "UPPER"
    """The last message stored at or before it."""


class SearchOffsetHeader(Header):
    """SEARCH_OFFSET_BY_TIMESTAMP (29). `boundary` is a `Boundary` in any case of letters; anything else is LOWER."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    broker_name: str | None = renamed("bname", None)
    boundary: str | None = renamed("boundaryType", None)


class SearchOffsetResponseHeader(Header):
    """The queue offset found. `boundary` is orbitmq's own, for requests that name one: the boundary the offset is of;
    without it the offset may be that of the nearest message, as RocketMQ 4.9 responds.
    """

    offset: Int64
    boundary: str | None = renamed("boundaryType", None)


class GetMaxOffsetHeader(Header):
    """GET_MAX_OFFSET (30)."""

    topic: str
    queue_id: Int32
    broker_name: str | None = renamed("bname", None)


class GetMaxOffsetResponseHeader(Header):
    """The next queue offset to be written."""

    offset: Int64


class GetMinOffsetHeader(Header):
    """GET_MIN_OFFSET (31)."""

    topic: str
    queue_id: Int32
    broker_name: str | None = renamed("bname", None)


class GetMinOffsetResponseHeader(Header):
    """The first queue offset that can be read."""

    offset: Int64


class GetEarliestMsgStoretimeHeader(Header):
    """GET_EARLIEST_MSG_STORETIME (32)."""

    topic: str
    queue_id: Int32
    broker_name: str | None = renamed("bname", None)


class GetEarliestMsgStoretimeResponseHeader(Header):
    """Milliseconds, -1 when the queue holds nothing."""

    timestamp: Int64


class QueryMessageHeader(Header):
    """QUERY_MESSAGE (12): times in milliseconds, both included. A missing `is_unique_key` means false."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    is_unique_key: bool | None = renamed("_UNIQUE_KEY_QUERY", None)


class QueryMessageResponseHeader(Header):
    """Where the index ended; 0 when nothing was found."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


class ViewMessageHeader(Header):
    """VIEW_MESSAGE_BY_ID (33): `offset` is the position in the commit log."""

    offset: Int64


class UnregisterClientHeader(Header):
    """UNREGISTER_CLIENT (35). The connection identifies the client; a request without its name is accepted too."""

    client_id: str | None = renamed("clientID", None)
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupHeader(Header):
    """GET_CONSUMER_LIST_BY_GROUP (38)."""

    consumer_group: str


class NotifyConsumerIdsChangedHeader(Header):
    """NOTIFY_CONSUMER_IDS_CHANGED (40), broker to consumer."""

    consumer_group: str
