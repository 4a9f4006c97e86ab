"""Header declarations of the requests tools send to a broker, and of their responses."""

from __future__ import annotations

from orbitmq.wire.header import Header, Int32, Int64


class CreateTopicHeader(Header):
    """UPDATE_AND_CREATE_TOPIC (17)."""

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    order: bool
    topic_sys_flag: Int32 | None = None
    attributes: str | None = None  # changes of them, which 5.x tools send


class DeleteTopicHeader(Header):
    """DELETE_TOPIC_IN_BROKER (215)."""

    topic: str


class DeleteSubscriptionGroupHeader(Header):
    """DELETE_SUBSCRIPTIONGROUP (207)."""

    group_name: str
    remove_offset: bool = False
    clean_offset: bool = False  # the name 5.x tools use


class GetTopicStatsInfoHeader(Header):
    """GET_TOPIC_STATS_INFO (202)."""

    topic: str


class GetConsumeStatsHeader(Header):
    """GET_CONSUME_STATS (208)."""

    consumer_group: str
    topic: str | None = None


class GetConsumerConnectionListHeader(Header):
    """GET_CONSUMER_CONNECTION_LIST (203)."""

    consumer_group: str


class GetProducerConnectionListHeader(Header):
    """GET_PRODUCER_CONNECTION_LIST (204)."""

    producer_group: str


class QueryTopicConsumeByWhoHeader(Header):
    """QUERY_TOPIC_CONSUME_BY_WHO (300)."""

    topic: str


class GetTopicConfigHeader(Header):
    """GET_TOPIC_CONFIG (351), sent by 5.x tools."""

    topic: str


class GetSubscriptionGroupConfigHeader(Header):
    """GET_SUBSCRIPTIONGROUP_CONFIG (352), sent by 5.x tools."""

    group: str


class QueryConsumeTimeSpanHeader(Header):
    """QUERY_CONSUME_TIME_SPAN (303)."""

    topic: str
    group: str


class QueryCorrectionOffsetHeader(Header):
    """QUERY_CORRECTION_OFFSET (308). `filter_groups`: groups to leave out, separated by commas."""

    compare_group: str
    topic: str
    filter_groups: str | None = None


class ViewBrokerStatsDataHeader(Header):
    """VIEW_BROKER_STATS_DATA (315)."""

    stats_name: str
    stats_key: str


class GetBrokerConsumeStatsHeader(Header):
    """GET_BROKER_CONSUME_STATS (317). With `is_order` only topics that keep a global order."""

    is_order: bool = False


class QueryConsumeQueueHeader(Header):
    """QUERY_CONSUME_QUEUE (321). `index` is a queue offset."""

    topic: str
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None


class QueryTopicsByConsumerHeader(Header):
    """QUERY_TOPICS_BY_CONSUMER (343), sent by 5.x tools."""

    group: str


class QuerySubscriptionByConsumerHeader(Header):
    """QUERY_SUBSCRIPTION_BY_CONSUMER (345), sent by 5.x tools."""

    group: str
    topic: str


class GetBrokerConfigResponseHeader(Header):
    """The version of the broker's settings, a data version as JSON text."""

    version: str
