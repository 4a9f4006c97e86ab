"""The headers of POP consumption: a broker delivers messages and takes acknowledgements, of RocketMQ 5."""

from __future__ import annotations

from orbitmq.wire.header import Header, Int32, Int64, renamed


class PopMessageHeader(Header):
    """POP_MESSAGE (200050). Queue -1 is all of them; `init_mode` 0 begins at the oldest message, 1 at the newest."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64
    init_mode: Int32
    expression_type: str | None = renamed("expType", None)
    expression: str | None = renamed("exp", None)
    order: bool | None = None
    attempt_id: str | None = None
    broker_name: str | None = renamed("bname", None)


class PopMessageResponseHeader(Header):
    """Response to POP_MESSAGE and PEEK_MESSAGE."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class PeekMessageHeader(Header):
    """PEEK_MESSAGE (200052)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    broker_name: str | None = renamed("bname", None)


class AckMessageHeader(Header):
    """ACK_MESSAGE (200051)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    broker_name: str | None = renamed("bname", None)


class ChangeInvisibleTimeHeader(Header):
    """CHANGE_MESSAGE_INVISIBLETIME (200053)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64
    broker_name: str | None = renamed("bname", None)


class ChangeInvisibleTimeResponseHeader(Header):
    """Response to CHANGE_MESSAGE_INVISIBLETIME."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


class NotificationHeader(Header):
    """NOTIFICATION (200054)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64
    order: bool | None = None
    attempt_id: str | None = None
    broker_name: str | None = renamed("bname", None)


class NotificationResponseHeader(Header):
    """Response to NOTIFICATION."""

    has_msg: bool
    polling_full: bool = False


class InFlightHeader(Header):
    """GET_IN_FLIGHT (30005), orbitmq's own. Without a topic, of all; with one, also of its retry topic."""

    consumer_group: str
    topic: str | None = None
    limit: Int32 = 100


class PollingInfoHeader(Header):
    """POLLING_INFO (200055)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    broker_name: str | None = renamed("bname", None)


class PollingInfoResponseHeader(Header):
    """Response to POLLING_INFO."""

    polling_num: Int32
