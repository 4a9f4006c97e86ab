"""What each request to a broker needs, one line a request code. Must not know accounts.

The lines of RocketMQ 4.9 stand. Where it asks for nothing but a valid signature although the request reads, changes or
deletes what belongs to somebody, a line here asks for the permission the same effect needs by another way; applications
have it anyway. Requests about the whole broker need an administrator. `docs/access-control.md` is made of this table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from orbitmq.broker.access.accounts import ANY, PUB, SUB, group_resource
from orbitmq.errors import MessageIllegal, RequestRejected
from orbitmq.message.ids import decode_offset_message_id
from orbitmq.message.properties import INNER_MULTI_DISPATCH
from orbitmq.store.multi_dispatch import dispatch_names, is_dispatched
from orbitmq.wire.bodies import HeartbeatData, QueueLocks
from orbitmq.wire.codes import RequestCode as R
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.objects import decode_request

TopicAt = Callable[[int], str | None]
"""The topic its sender gave to the message at an offset of the commit log; None when no message begins there."""
Resources = Iterator[tuple[str, int]]
Needs = Callable[[Command, TopicAt], Resources]

UNSTATED = "an account"
"""What RocketMQ 4.9.7 asks for where its code says nothing: any valid signature."""


class Level(Enum):
    """Who may ask at all."""

    ACCOUNT = "an account"
    ADMIN = "an administrator"


@dataclass(frozen=True)
class Rule:
    """`text` is `needs` in words; `original` is what RocketMQ 4.9.7 asks for where that is something else, and
    `reason` says why."""

    text: str
    needs: Needs | None = None
    level: Level = Level.ACCOUNT
    original: str = ""
    reason: str = ""


# ------------------------------------------------------------------------------------------------ parts of a request


def _field(command: Command, name: str) -> str:
    """A field that names a resource; without it there is nothing to check, so the request cannot pass."""
    value = (command.ext or {}).get(name)
    if not value:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"field {name} is missing, access cannot be checked")
    return value


def _topic(name: str, permission: int) -> Needs:
    def needs(command: Command, _topic_at: TopicAt) -> Resources:
        yield _field(command, name), permission

    return needs


def _group(name: str) -> Needs:
    def needs(command: Command, _topic_at: TopicAt) -> Resources:
        yield group_resource(_field(command, name)), SUB

    return needs


def _both(group: str, topic: str, permission: int = SUB) -> Needs:
    def needs(command: Command, _topic_at: TopicAt) -> Resources:
        yield group_resource(_field(command, group)), SUB
        yield _field(command, topic), permission

    return needs


def _group_and_topic_if_given(group: str, topic: str) -> Needs:
    def needs(command: Command, _topic_at: TopicAt) -> Resources:
        yield group_resource(_field(command, group)), SUB
        if (command.ext or {}).get(topic):
            yield _field(command, topic), SUB

    return needs


def _send(name: str, properties: str) -> Needs:
    """A topic is published to, and so is each further queue that the message names; a retry topic belongs to the group
    that consumes it, and what is sent there enters no further queue.
    """

    def needs(command: Command, _topic_at: TopicAt) -> Resources:
        topic = _field(command, name)
        yield _published(topic)
        text = (command.ext or {}).get(properties)
        if text and INNER_MULTI_DISPATCH in text and is_dispatched(topic):
            yield from map(_published, dispatch_names(text.encode()))

    return needs


def _published(topic: str) -> tuple[str, int]:
    return topic, SUB if topic == group_resource(topic) else PUB


def _heartbeat(command: Command, _topic_at: TopicAt) -> Resources:
    for consumer in decode_request(HeartbeatData, command.body).consumer_data_set:
        yield group_resource(consumer.group_name), SUB
        for subscription in consumer.subscription_data_set:
            yield subscription.topic, SUB


def _unregister(command: Command, _topic_at: TopicAt) -> Resources:
    if (command.ext or {}).get("consumerGroup"):
        yield group_resource(_field(command, "consumerGroup")), SUB


def _locks(command: Command, _topic_at: TopicAt) -> Resources:
    batch = decode_request(QueueLocks, command.body)
    yield group_resource(batch.consumer_group), SUB
    for topic in {queue.topic for queue in batch.mq_set}:
        yield topic, SUB


def _offset(command: Command, name: str) -> int:
    text = _field(command, name)
    try:
        return int(text)
    except ValueError:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"field {name} is no whole number") from None


def _message(offset: int, permission: int, topic_at: TopicAt) -> Resources:
    topic = topic_at(offset)
    if topic is None:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"no message can be read at offset {offset}")
    yield topic, permission


def _view(command: Command, topic_at: TopicAt) -> Resources:
    return _message(_offset(command, "offset"), SUB, topic_at)


def _send_back(command: Command, topic_at: TopicAt) -> Resources:
    yield group_resource(_field(command, "group")), SUB
    yield from _message(_offset(command, "offset"), SUB, topic_at)


def _end_transaction(command: Command, topic_at: TopicAt) -> Resources:
    return _message(_offset(command, "commitLogOffset"), PUB, topic_at)


def _consume_directly(command: Command, topic_at: TopicAt) -> Resources:
    yield group_resource(_field(command, "consumerGroup")), SUB
    try:
        place = decode_offset_message_id(_field(command, "msgId"))
    except MessageIllegal as error:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from error
    yield from _message(place.physical_offset, SUB, topic_at)


def _clone(command: Command, _topic_at: TopicAt) -> Resources:
    yield group_resource(_field(command, "srcGroup")), SUB
    yield group_resource(_field(command, "destGroup")), SUB
    if (command.ext or {}).get("topic"):
        yield _field(command, "topic"), SUB


# -------------------------------------------------------------------------------------------------------- the table

_WHOLE = "it concerns the whole broker"
_SAME = "what the group's and topic's own consumers may do"
_READS = "it shows what is in the topic"
_FACTS = "it tells of the topic"
_OURS = "RocketMQ 4.9.7 does not know it"


def _admin(original: str = "", reason: str = "") -> Rule:
    return Rule("an administrator", level=Level.ADMIN, original=original, reason=reason)


def _closed(reason: str = _WHOLE) -> Rule:
    return _admin(UNSTATED, reason)


_SEND_TEXT = "PUB on the topic and on each queue of its multi-dispatch; for a retry topic SUB on its group"
_SUB_TOPIC, _ANY_TOPIC = "SUB on the topic", "PUB or SUB on the topic"
_SUB_GROUP, _SUB_BOTH = "SUB on the group", "SUB on the group and on the topic"
_SEND_DIFFERS = (
    "RocketMQ looks at the producer group of a send to a retry topic, not at whose topic it is, and not at the queues "
    "that a message enters besides"
)
_SEND_ORIGINAL = "PUB on the topic; for a retry topic SUB on the group that the request names as sender"

RULES: Mapping[int, Rule] = {
    R.SEND_MESSAGE: Rule(_SEND_TEXT, _send("topic", "properties"), original=_SEND_ORIGINAL, reason=_SEND_DIFFERS),
    R.SEND_MESSAGE_V2: Rule(_SEND_TEXT, _send("b", "i"), original=_SEND_ORIGINAL, reason=_SEND_DIFFERS),
    R.SEND_BATCH_MESSAGE: Rule(_SEND_TEXT, _send("b", "i"), original=UNSTATED, reason="a batch is a send"),
    R.SEND_REPLY_MESSAGE: Rule("an account"),
    R.SEND_REPLY_MESSAGE_V2: Rule("an account"),
    R.END_TRANSACTION: Rule(
        "PUB on the topic of the prepared message",
        _end_transaction,
        original=UNSTATED,
        reason="it decides over a message",
    ),
    R.PULL_MESSAGE: Rule(_SUB_BOTH, _both("consumerGroup", "topic")),
    R.LITE_PULL_MESSAGE: Rule(_SUB_BOTH, _both("consumerGroup", "topic"), original="-", reason=_OURS),
    R.CONSUMER_SEND_MSG_BACK: Rule(
        "SUB on the group and on the topic of the message",
        _send_back,
        original=_SUB_GROUP,
        reason="the message becomes readable for the group",
    ),
    R.QUERY_MESSAGE: Rule(_SUB_TOPIC, _topic("topic", SUB)),
    R.VIEW_MESSAGE_BY_ID: Rule("SUB on the topic of the message", _view, original=UNSTATED, reason=_READS),
    R.QUERY_CONSUME_QUEUE: Rule(_SUB_TOPIC, _topic("topic", SUB), original=UNSTATED, reason=_READS),
    R.QUERY_CONSUMER_OFFSET: Rule(_SUB_BOTH, _both("consumerGroup", "topic"), original=UNSTATED, reason=_SAME),
    R.UPDATE_CONSUMER_OFFSET: Rule(_SUB_BOTH, _both("consumerGroup", "topic")),
    R.SEARCH_OFFSET_BY_TIMESTAMP: Rule(_ANY_TOPIC, _topic("topic", ANY), original=UNSTATED, reason=_FACTS),
    R.GET_MAX_OFFSET: Rule(_ANY_TOPIC, _topic("topic", ANY), original=UNSTATED, reason=_FACTS),
    R.GET_MIN_OFFSET: Rule(_ANY_TOPIC, _topic("topic", ANY), original=UNSTATED, reason=_FACTS),
    R.GET_EARLIEST_MSG_STORETIME: Rule(_ANY_TOPIC, _topic("topic", ANY), original=UNSTATED, reason=_FACTS),
    R.HEART_BEAT: Rule("SUB on every consumer group and every subscribed topic", _heartbeat),
    R.UNREGISTER_CLIENT: Rule("SUB on the consumer group, if one is named", _unregister),
    R.GET_CONSUMER_LIST_BY_GROUP: Rule(_SUB_GROUP, _group("consumerGroup")),
    R.LOCK_BATCH_MQ: Rule(
        "SUB on the group and on the topics of the queues", _locks, original=UNSTATED, reason="it stops consumers"
    ),
    R.UNLOCK_BATCH_MQ: Rule(
        "SUB on the group and on the topics of the queues", _locks, original=UNSTATED, reason="it breaks an order"
    ),
    R.CHECK_CLIENT_CONFIG: Rule("an account"),
    # One topic or one group
    R.UPDATE_AND_CREATE_TOPIC: _admin(),
    R.UPDATE_AND_CREATE_TOPIC_LIST: _admin("-", _OURS),
    R.DELETE_TOPIC_IN_BROKER: _admin(),
    R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _admin(),
    R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _admin("-", _OURS),
    R.DELETE_SUBSCRIPTIONGROUP: _admin(),
    R.GET_TOPIC_CONFIG: Rule(_ANY_TOPIC, _topic("topic", ANY), original="-", reason=_OURS),
    R.GET_SUBSCRIPTIONGROUP_CONFIG: Rule(_SUB_GROUP, _group("group"), original="-", reason=_OURS),
    R.GET_TOPIC_STATS_INFO: Rule(_ANY_TOPIC, _topic("topic", ANY), original=UNSTATED, reason=_FACTS),
    R.QUERY_TOPIC_CONSUME_BY_WHO: Rule(_ANY_TOPIC, _topic("topic", ANY), original=UNSTATED, reason=_FACTS),
    R.GET_CONSUME_STATS: Rule(
        "SUB on the group, and on the topic if one is named",
        _group_and_topic_if_given("consumerGroup", "topic"),
        original=UNSTATED,
        reason=_SAME,
    ),
    R.GET_CONSUMER_CONNECTION_LIST: Rule(_SUB_GROUP, _group("consumerGroup"), original=UNSTATED, reason=_SAME),
    R.QUERY_CONSUME_TIME_SPAN: Rule(_SUB_BOTH, _both("group", "topic"), original=UNSTATED, reason=_SAME),
    R.QUERY_CORRECTION_OFFSET: Rule(_SUB_BOTH, _both("compareGroup", "topic"), original=UNSTATED, reason=_SAME),
    R.QUERY_TOPICS_BY_CONSUMER: Rule(_SUB_GROUP, _group("group"), original="-", reason=_OURS),
    R.QUERY_SUBSCRIPTION_BY_CONSUMER: Rule(_SUB_BOTH, _both("group", "topic"), original="-", reason=_OURS),
    R.INVOKE_BROKER_TO_RESET_OFFSET: Rule(_SUB_BOTH, _both("group", "topic"), original=UNSTATED, reason=_SAME),
    R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Rule(_SUB_BOTH, _both("group", "topic"), original=UNSTATED, reason=_SAME),
    R.CLONE_GROUP_OFFSET: Rule(
        "SUB on both groups, and on the topic if one is named", _clone, original=UNSTATED, reason=_SAME
    ),
    R.GET_CONSUMER_RUNNING_INFO: Rule(_SUB_GROUP, _group("consumerGroup"), original=UNSTATED, reason=_SAME),
    R.CONSUME_MESSAGE_DIRECTLY: Rule(
        "SUB on the group and on the topic of the message", _consume_directly, original=UNSTATED, reason=_SAME
    ),
    R.GET_PRODUCER_CONNECTION_LIST: _closed("it tells of other applications; producer groups are no resource"),
    R.RESUME_CHECK_HALF_MESSAGE: _closed(),
    R.GET_PENDING_TRANSACTIONS: _admin("-", _OURS),
    R.PROMOTE_SLAVE: _admin("-", _OURS),
    R.BROKER_STANDING: _admin("-", _OURS),
    # The whole broker
    R.GET_ALL_TOPIC_CONFIG: _closed(),
    R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _closed(),
    R.GET_ALL_CONSUMER_OFFSET: _closed(),
    R.GET_ALL_DELAY_OFFSET: _closed(),
    R.UPDATE_BROKER_CONFIG: _admin(),
    R.GET_BROKER_CONFIG: _closed(),
    R.GET_BROKER_RUNTIME_INFO: _closed(),
    R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _closed(),
    R.CLEAN_EXPIRED_CONSUMEQUEUE: _closed(),
    R.CLEAN_UNUSED_TOPIC: _closed(),
    R.DELETE_EXPIRED_COMMITLOG: _closed(),
    R.VIEW_BROKER_STATS_DATA: _closed(),
    R.GET_BROKER_CONSUME_STATS: _closed(),
    R.GET_ALL_PRODUCER_INFO: _closed(),
    R.UPDATE_AND_CREATE_ACL_CONFIG: _closed("whoever can change accounts can do everything"),
    R.DELETE_ACL_CONFIG: _closed("whoever can change accounts can do everything"),
    R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: _closed("whoever can change accounts can do everything"),
    R.GET_BROKER_CLUSTER_ACL_INFO: _closed(),
    R.GET_BROKER_CLUSTER_ACL_CONFIG: _closed("the answer has every secret key"),
}

# Codes no broker handles: requests of 4.9.7 to name servers and to clients, and names without a meaning. With a valid
# signature they are answered as unknown codes are; should one get a handler, it needs an administrator until it has a
# line above.
NOT_FOR_BROKERS = frozenset(
    {
        R.QUERY_BROKER_OFFSET,
        R.GET_TOPIC_CONFIG_LIST,
        R.GET_TOPIC_NAME_LIST,
        R.TRIGGER_DELETE_FILES,
        R.CHECK_TRANSACTION_STATE,
        R.NOTIFY_CONSUMER_IDS_CHANGED,
        R.PUT_KV_CONFIG,
        R.GET_KV_CONFIG,
        R.DELETE_KV_CONFIG,
        R.REGISTER_BROKER,
        R.UNREGISTER_BROKER,
        R.GET_ROUTEINFO_BY_TOPIC,
        R.GET_BROKER_CLUSTER_INFO,
        R.WIPE_WRITE_PERM_OF_BROKER,
        R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        R.SUSPEND_CONSUMER,
        R.RESUME_CONSUMER,
        R.RESET_CONSUMER_OFFSET_IN_CONSUMER,
        R.RESET_CONSUMER_OFFSET_IN_BROKER,
        R.ADJUST_CONSUMER_THREAD_POOL,
        R.WHO_CONSUME_THE_MESSAGE,
        R.DELETE_TOPIC_IN_NAMESRV,
        R.GET_KVLIST_BY_NAMESPACE,
        R.RESET_CONSUMER_CLIENT_OFFSET,
        R.GET_CONSUMER_STATUS_FROM_CLIENT,
        R.GET_TOPICS_BY_CLUSTER,
        R.REGISTER_FILTER_SERVER,
        R.REGISTER_MESSAGE_FILTER_CLASS,
        R.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        R.GET_UNIT_TOPIC_LIST,
        R.GET_HAS_UNIT_SUB_TOPIC_LIST,
        R.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        R.UPDATE_NAMESRV_CONFIG,
        R.GET_NAMESRV_CONFIG,
        R.QUERY_DATA_VERSION,
        R.PUSH_REPLY_MESSAGE_TO_CLIENT,
        R.ADD_WRITE_PERM_OF_BROKER,
    }
)

WITHOUT_RULE = _admin()
NOT_HANDLED = Rule("an account")


def rule_of(code: int, *, is_handled: bool) -> Rule:
    """What a request needs; a code that is handled without a line in the table needs an administrator."""
    return RULES.get(code, WITHOUT_RULE) if is_handled else NOT_HANDLED
