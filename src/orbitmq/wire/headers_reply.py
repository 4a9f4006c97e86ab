"""Header declaration of a reply on its way from a broker to the client that made the request."""

from __future__ import annotations

from orbitmq.wire.header import Header, Int32, Int64


class PushReplyMessageHeader(Header):
    """PUSH_REPLY_MESSAGE_TO_CLIENT (326). Hosts are `ip:port`, without brackets around an IPv6 address."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    born_host: str
    store_host: str
    store_timestamp: Int64
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
