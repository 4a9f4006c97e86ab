"""The file consumerFilter.json: the SQL92 subscriptions of consumer groups, as a broker keeps them over a restart."""

from __future__ import annotations

from msgspec import Struct, field


class BloomBits(Struct, frozen=True):
    """The bits of a subscription in the bitmaps of messages, and how many bits those have."""

    bit_num: int = 0
    bit_pos: list[int] = field(default_factory=list)


class GroupFilter(Struct, frozen=True):
    """What one group wants of one topic. Times are milliseconds; `dead_time` is 0 while the group subscribes it."""

    consumer_group: str
    topic: str
    expression: str
    expression_type: str
    born_time: int = 0
    dead_time: int = 0
    client_version: int = 0
    bloom_filter_data: BloomBits | None = None
    dead: bool = False  # written for people, not read


class TopicFilters(Struct, frozen=True):
    """The subscriptions of one topic by group."""

    topic: str = ""
    group_filter_data: dict[str, GroupFilter] = field(default_factory=dict)


class FilterTable(Struct, frozen=True):
    """All of them by topic (Java: ConsumerFilterManager as it serializes itself)."""

    filter_data_by_topic: dict[str, TopicFilters] = field(default_factory=dict)
