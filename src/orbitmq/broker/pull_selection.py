"""Which messages of a queue a pull gets: tags by their hash, SQL92 expressions by properties.

The subscription is that of the group's heartbeat, or one in the pull itself. Knows subscriptions and filters, not how a
queue is read or a response made.
"""

from __future__ import annotations

import logging
from functools import lru_cache

from orbitmq.broker.clients import Consumers
from orbitmq.broker.filters import Filter, Filters, is_tag
from orbitmq.broker.options import BrokerOptions
from orbitmq.errors import MessageError, RequestRejected, UnitError
from orbitmq.filter.sql92 import Sql92Expression
from orbitmq.filter.tags import tag_subscription
from orbitmq.message.config import SUBSCRIBE_ALL, SubscriptionData, SubscriptionGroup
from orbitmq.message.flags import PULL_SUBSCRIPTION
from orbitmq.message.properties import RETRY_TOPIC, EncodedProperties
from orbitmq.message.topics import RETRY_PREFIX
from orbitmq.message.unit import properties_of
from orbitmq.runtime.refusals import Limit, Refusals
from orbitmq.store.extended_queue import Extension
from orbitmq.store.pull_batch import EVERYTHING, Selection
from orbitmq.wire.bodies import MessageModel
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers import PullMessageHeader

_log = logging.getLogger(__name__)

# What one pull may spend on comparing messages, in the unit of `Sql92Expression.cost`: some 5 ms of the event loop. A
# short expression is compared with the 800 messages that any pull looks over.
COST_MAX = 90_000
LOOKS_MIN, LOOKS_MAX = 8, 800
SUBSCRIPTIONS_REMEMBERED = 4096  # parsed expressions of pulls that bring their own
REMEMBERED_LENGTH_MAX = 1024  # characters of these; longer ones are rare, and are parsed each time
EXPRESSION_LENGTH_MAX = 16 << 10  # of any expression: some thousand tags. A held pull keeps its own


class PullSelection:
    """Finds the selection of a pull, or the reason to refuse it."""

    def __init__(
        self, consumers: Consumers, filters: Filters, options: BrokerOptions, refusals: Refusals | None = None
    ) -> None:
        self._refusals = refusals or Refusals()
        self._consumers = consumers
        self._filters = filters
        self._options = options

    def selection(self, header: PullMessageHeader, group: SubscriptionGroup) -> Selection:
        """The selection of the pull; RequestRejected if no subscription is known, or it cannot be evaluated."""
        on_request = bool(header.sys_flag & PULL_SUBSCRIPTION)
        if header.subscription is not None and len(header.subscription) > EXPRESSION_LENGTH_MAX:
            raise self._too_long(header, len(header.subscription))
        if on_request and not is_tag(header.expression_type):
            own = self._filters.check(header.subscription, header.expression_type)
            return Selection(None, ExpressionLook(own))
        subscription = own_tags(header.topic, header.subscription) if on_request else self._of_heartbeat(header, group)
        if self._options.filter_support_retry and header.topic.startswith(RETRY_PREFIX):
            return Selection(by_tags(subscription).matcher, RetryLook(self._filters, header.topic))
        if is_tag(subscription.expression_type):
            return by_tags(subscription)
        self._filters.check_on(subscription.expression_type)
        return Selection(None, FilterLook(self._filters, self._registered(header)))

    def _too_long(self, header: PullMessageHeader, length: int) -> RequestRejected:
        text = "event=expression_refused group=%.300s topic=%.300s characters=%d limit=%d"
        what = header.consumer_group, header.topic, length, EXPRESSION_LENGTH_MAX
        self._refusals.note(Limit.EXPRESSIONS, _log, text, *what)
        remark = f"an expression of {length} characters is longer than {EXPRESSION_LENGTH_MAX}"
        return RequestRejected(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark)

    def _of_heartbeat(self, header: PullMessageHeader, config: SubscriptionGroup) -> SubscriptionData:
        group = self._consumers.groups.get(header.consumer_group)
        if group is None:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"no heartbeat of the group {header.consumer_group} has come yet"
            )
        if group.message_model is MessageModel.BROADCASTING and not config.consume_broadcast_enabled:
            raise RequestRejected(ResponseCode.NO_PERMISSION, f"group {group.name} may not consume by broadcast")
        subscription = group.subscriptions.get(header.topic)
        if subscription is None:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"group {group.name} does not subscribe {header.topic}"
            )
        if subscription.version < header.sub_version:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, f"the subscription of {group.name} for {header.topic} is outdated"
            )
        return subscription

    def _registered(self, header: PullMessageHeader) -> Filter:
        """The compiled expression of the group's heartbeat."""
        found = self._filters.find(header.topic, header.consumer_group)
        if found is None:
            raise RequestRejected(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                f"the broker has no filter of {header.consumer_group} for {header.topic}: is the expression right?",
            )
        if found.version < header.sub_version:
            raise RequestRejected(
                ResponseCode.FILTER_DATA_NOT_LATEST, f"the filter of {found.group} for {header.topic} is outdated"
            )
        return found


def by_tags(subscription: SubscriptionData) -> Selection:
    """Class filters are not executed; their subscribers get every message, as from RocketMQ."""
    if subscription.expression == SUBSCRIBE_ALL or not subscription.codes or subscription.class_filter_mode:
        return EVERYTHING
    return Selection(subscription.codes.__contains__)


def own_tags(topic: str, expression: str | None) -> SubscriptionData:
    """A subscription that a request brings; RequestRejected."""
    parse = _parsed_tags if len(expression or "") <= REMEMBERED_LENGTH_MAX else tag_subscription
    try:
        return parse(topic, expression)
    except MessageError as error:
        raise RequestRejected(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error


_parsed_tags = lru_cache(SUBSCRIPTIONS_REMEMBERED)(tag_subscription)


class ExpressionLook:
    """An expression in the pull itself: bitmaps do not cover it."""

    def __init__(self, expression: Sql92Expression) -> None:
        self._expression = expression
        self.reads_max = _reads_max(expression.cost)

    def may_take(self, _extension: Extension) -> bool:
        return True

    def takes(self, unit: memoryview) -> bool:
        return _matches(self._expression, unit)


class FilterLook:
    """A registered filter: a bitmap made after its registration may save reading the message."""

    def __init__(self, filters: Filters, chosen: Filter) -> None:
        self._bloom = filters.bloom
        self._filter = chosen
        self.reads_max = _reads_max(chosen.expression.cost)

    def may_take(self, extension: Extension) -> bool:
        is_older = extension.store_timestamp <= self._filter.born_ms
        return is_older or self._bloom.may_want(self._filter.bits, extension.bitmap)

    def takes(self, unit: memoryview) -> bool:
        return _matches(self._filter.expression, unit)


class RetryLook:
    """Messages of a retry topic, each by the group's filter for the topic it was first sent to."""

    def __init__(self, filters: Filters, retry_topic: str) -> None:
        self._filters = filters
        self._group = retry_topic.removeprefix(RETRY_PREFIX)
        self.reads_max = _reads_max(max((one.expression.cost for one in filters.of(self._group)), default=1))

    def may_take(self, _extension: Extension) -> bool:
        return True

    def takes(self, unit: memoryview) -> bool:
        properties = _properties(unit)
        chosen = self._filters.find(properties.get(RETRY_TOPIC) or "", self._group)
        return chosen is None or chosen.expression.matches(properties)


def _reads_max(cost: int) -> int:
    return max(LOOKS_MIN, min(LOOKS_MAX, COST_MAX // cost))


def _matches(expression: Sql92Expression, unit: memoryview) -> bool:
    return expression.matches(_properties(unit))


def _properties(unit: memoryview) -> EncodedProperties:
    """Bytes that are no message have none."""
    try:
        return EncodedProperties(properties_of(unit))
    except UnitError:
        return EncodedProperties(b"")
