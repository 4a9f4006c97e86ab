"""The SQL92 subscriptions of consumer groups: reported by heartbeats, compiled once, saved to
config/consumerFilter.json.

An entry outlives its group for a day, so that the bitmaps made for it in the queues' extensions stay valid when the
group returns. The rules are RocketMQ's; the caller passes the time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from orbitmq.broker.options import BrokerOptions
from orbitmq.errors import ExpressionIllegal, RequestRejected
from orbitmq.filter.bloom import BloomFilter
from orbitmq.filter.sql92 import Sql92Expression, compile_sql92, prepare
from orbitmq.message.config import SQL92, TAG, SubscriptionData
from orbitmq.message.javajson import dumps_pretty
from orbitmq.message.properties import EncodedProperties
from orbitmq.runtime.clock import Clock
from orbitmq.runtime.refusals import Refusals
from orbitmq.runtime.saved import SavedFile
from orbitmq.wire.bodies import BloomBits, FilterTable, GroupFilter, TopicFilters
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.objects import decode, plain

_log = logging.getLogger(__name__)

FILTER_LINES = 100  # in the log, of new filters that come together
FILTERS_MAX = 20_000  # entries, about 1 KiB each plus their expression; heartbeats create them
# The maximum total cost of the filters that are evaluated for each message of one topic to make a bitmap, in the unit
# of `Sql92Expression.cost`: some 0.5 ms per send. A hundred filters fill a bitmap anyway.
BITMAP_COST_MAX = 10_000
COMPILED_MAX = 16  # new expressions of one heartbeat, some 10 ms each at worst; the others come with the next one
REVIVAL_MS = 30_000  # an entry that was alive when the broker stopped counts as dead since so long ago at most


def compiled(expression: str | None, kind: str | None) -> Sql92Expression:
    """ExpressionIllegal for anything but a SQL92 expression that means something."""
    if kind != SQL92:
        raise ExpressionIllegal(f"the broker knows no expressions of type {kind}")
    return compile_sql92(expression or "")


def is_tag(kind: str | None) -> bool:
    return kind in (None, "", TAG)


@dataclass(slots=True, eq=False)
class Filter:
    """The subscription of a group for a topic. `bits` are its bits of a message's bitmap; times are milliseconds."""

    topic: str
    group: str
    expression: Sql92Expression
    bits: list[int]
    born_ms: int
    version: int
    dead_ms: int = 0

    @property
    def is_dead(self) -> bool:
        return self.dead_ms >= self.born_ms


class Filters:
    """(topic, group) -> filter."""

    def __init__(self, directory: Path, options: BrokerOptions, clock: Clock, refusals: Refusals | None = None) -> None:
        self._clock = clock
        self._refusals = refusals or Refusals()
        self._options = options
        self.bloom = BloomFilter.sized(options.max_error_rate_of_bloom_filter, options.expect_consumer_num_use_filter)
        self._by_topic: dict[str, dict[str, Filter]] = {}
        self._by_group: dict[str, dict[str, Filter]] = {}
        self._costs: dict[str, int] = {}  # of each topic's filters together
        self._count = 0
        self._compiled = 0
        self._changed = False
        self.file = SavedFile(directory / "consumerFilter.json", self._text)

    def of(self, group: str) -> Collection[Filter]:
        """The filters of a group."""
        return self._by_group.get(group, {}).values()

    def find(self, topic: str, group: str) -> Filter | None:
        return self._by_topic.get(topic, {}).get(group)

    def check(self, expression: str | None, kind: str | None) -> Sql92Expression:
        """The compiled expression; RequestRejected when expressions are not evaluated here, or this one cannot be."""
        self.check_on(kind)
        try:
            return compiled(expression, kind)
        except ExpressionIllegal as error:
            raise RequestRejected(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error

    def check_on(self, kind: str | None) -> None:
        """Refuse expressions while they are not evaluated here."""
        if not self._options.enable_property_filter:
            remark = f"The broker does not support consumer to filter message by {kind}"  # RocketMQ's words
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, remark)

    def report(self, topic: str, group: str) -> GroupFilter | None:
        """A group's filter as a tool sees it."""
        found = self.find(topic, group)
        return None if found is None else self._saved(found)

    # -------------------------------------------------------------------------------------------- what groups subscribe

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Register the subscriptions of a heartbeat. Subscriptions that the group no longer has are marked dead."""
        if not self._options.enable_property_filter:
            return
        wanted = {one.topic: one for one in subscriptions if not is_tag(one.expression_type)}
        compiled_before = self._compiled
        for topic, subscription in wanted.items():
            if self._compiled - compiled_before >= COMPILED_MAX:
                _log.warning("event=filters_delayed group=%s limit=%d", group, COMPILED_MAX)
                break
            self._take(topic, group, subscription)
        for topic, known in self._by_group.get(group, {}).items():
            if topic not in wanted:
                self._kill(known)

    def forget_group(self, group: str) -> None:
        """The last member of a group has left."""
        for known in self._by_group.get(group, {}).values():
            self._kill(known)

    def _take(self, topic: str, group: str, subscription: SubscriptionData) -> None:
        known = self.find(topic, group)
        if known is None or (subscription.version > known.version and subscription.expression != known.expression.text):
            self._replace(topic, group, subscription)
            return
        if subscription.version > known.version:
            known.version = subscription.version
        elif subscription.version < known.version or not known.is_dead:
            return
        known.dead_ms = 0
        self._changed = True

    def _replace(self, topic: str, group: str, subscription: SubscriptionData) -> None:
        """Register a new expression. An invalid one removes the old one; pulls then report that there is none."""
        self._compiled += 1
        self._remove(topic, group)
        try:
            expression = compiled(subscription.expression, subscription.expression_type)
        except ExpressionIllegal as error:
            text = "event=filter_refused topic=%.300s group=%.300s error=%.300s"
            self._refusals.log(_log, text, topic, group, error)
            return
        if self._count >= FILTERS_MAX:
            text = "event=filter_refused topic=%.300s group=%.300s limit=%d"
            self._refusals.log(_log, text, topic, group, FILTERS_MAX)
            return
        self._add(
            Filter(
                topic, group, expression, self.bloom.positions(group, topic), self._clock.now_ms(), subscription.version
            )
        )
        text = "event=filter_registered topic=%.300s group=%.300s"
        self._refusals.log(_log, text, topic, group, level=logging.INFO, lines=FILTER_LINES)

    def _kill(self, known: Filter) -> None:
        if not known.is_dead:
            known.dead_ms = self._clock.now_ms()
            self._changed = True

    def _add(self, added: Filter) -> None:
        self._by_topic.setdefault(added.topic, {})[added.group] = added
        self._by_group.setdefault(added.group, {})[added.topic] = added
        self._costs[added.topic] = self._costs.get(added.topic, 0) + added.expression.cost
        self._count += 1
        self._changed = True

    def _remove(self, topic: str, group: str) -> None:
        removed = self.find(topic, group)
        if removed is None:
            return
        self._costs[topic] -= removed.expression.cost
        for table, outer, inner in ((self._by_topic, topic, group), (self._by_group, group, topic)):
            del table[outer][inner]
            if not table[outer]:
                del table[outer]
        if topic not in self._by_topic:
            del self._costs[topic]
        self._count -= 1
        self._changed = True

    # ---------------------------------------------------------------------------------------------------------- bitmaps

    def bitmap(self, topic: str, properties: bytes) -> bytes:
        """The filters that match a message of the topic; empty if there are none, or too many to evaluate."""
        filters = self._by_topic.get(topic)
        if not filters or self._costs[topic] > BITMAP_COST_MAX:
            return b""
        read = EncodedProperties(properties)
        return self.bloom.bitmap(one.bits for one in filters.values() if one.expression.matches(read))

    # --------------------------------------------------------------------------------------------------------- the file

    def load(self) -> None:
        """Read the file; one with bitmaps of another size is ignored."""
        if self._options.enable_property_filter:
            prepare()
        saved = self.file.load(lambda text: decode(FilterTable, text))
        entries = [] if saved is None else [
            one for topic in saved.filter_data_by_topic.values() for one in topic.group_filter_data.values()
        ]  # fmt: skip
        if any(not self._fits(one) for one in entries):
            _log.warning("event=filters_dropped reason=bloom_filter_size path=%s", self.file.path)
            return
        for entry in entries[:FILTERS_MAX]:
            self._load(entry)

    def _fits(self, entry: GroupFilter) -> bool:
        bits = entry.bloom_filter_data
        return bits is None or (bits.bit_num == self.bloom.bit_count and len(bits.bit_pos) == self.bloom.hash_count)

    def _load(self, entry: GroupFilter) -> None:
        try:
            expression = compiled(entry.expression, entry.expression_type)
        except ExpressionIllegal as error:
            _log.warning("event=filter_refused topic=%s group=%s error=%s", entry.topic, entry.consumer_group, error)
            return
        bits = self.bloom.positions(entry.consumer_group, entry.topic)
        dead_ms = entry.dead_time or max(entry.born_time, self._clock.now_ms() - REVIVAL_MS)
        self._add(
            Filter(entry.topic, entry.consumer_group, expression, bits, entry.born_time, entry.client_version, dead_ms)
        )

    def save_soon(self) -> None:
        """Let entries go that have been dead for long; write the file if anything changed since the last time."""
        limit = self._clock.now_ms() - self._options.filter_data_clean_time_span_ms
        filters = [one for topic in self._by_topic.values() for one in topic.values()]
        for old in [one for one in filters if one.is_dead and one.dead_ms <= limit]:
            self._remove(old.topic, old.group)
        if self._changed:
            self._changed = False
            self.file.mark()

    def _text(self) -> Callable[[], str]:
        """What changes in a filter while a thread writes it is written once more soon."""
        filters = {topic: list(found.items()) for topic, found in self._by_topic.items()}
        return partial(self._written, filters)

    def _written(self, filters: dict[str, list[tuple[str, Filter]]]) -> str:
        table = {
            topic: TopicFilters(topic, {group: self._saved(one) for group, one in found})
            for topic, found in filters.items()
        }
        return dumps_pretty(plain(FilterTable(table)))

    def _saved(self, one: Filter) -> GroupFilter:
        bits = BloomBits(self.bloom.bit_count, one.bits)
        return GroupFilter(
            one.group, one.topic, one.expression.text, SQL92, one.born_ms, one.dead_ms, one.version, bits, one.is_dead
        )
