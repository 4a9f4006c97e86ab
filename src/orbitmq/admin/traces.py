"""The trace of a message: what producers and consumers wrote down about it, as records and as a graph.

Reading the records is done by `client.core.trace`; putting them together is pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct, field

from orbitmq.admin.messages import search
from orbitmq.admin.results import Failure, Result
from orbitmq.admin.session import Session
from orbitmq.client.core.trace import ConsumeBegun, ConsumeEnded, Published, Record, TransactionEnded, decode_trace
from orbitmq.errors import BodyError, NotFound, UnitError
from orbitmq.message.compression import decompress
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.message.topics import TRACE_TOPIC
from orbitmq.operations.offsets import earliest_store_time

UNKNOWN = -1
UNKNOWN_GROUP = "%UNKNOWN_GROUP%"
SUCCESS, FAILED, NOT_KNOWN = "success", "failed", "unknown"
ENDINGS = {0: "done", 1: "took too long", 2: "raised an error", 3: "returned nothing", 4: "wants it again"}
"""How a listener ended, in words."""


class Traced(Struct, frozen=True, rename="camel", kw_only=True):
    """One record of a trace. Fields that a kind of record does not have are None."""

    kind: str
    """Pub, SubBefore, SubAfter or EndTransaction."""
    at_ms: int | None
    """When it began, by the client's clock; None for an end without a time."""
    msg_id: str
    group: str | None
    topic: str | None = None
    client_host: str
    """`ip:port` that the record came from."""
    store_host: str | None = None
    """The broker the message was sent to."""
    cost_ms: int | None = None
    success: bool | None = None
    tags: str | None = None
    keys: str | None = None
    offset_msg_id: str | None = None
    body_bytes: int | None = None
    message_kind: int | None = None
    """0 plain, 1 and 2 of a transaction, 3 delayed."""
    request_id: str | None = None
    """The same for the begin and the end of one call of a listener."""
    retries: int | None = None
    outcome: int | None = None
    """How a listener ended, a key of `ENDINGS`."""
    state: str | None = None
    """Of a transaction: COMMIT_MESSAGE, ROLLBACK_MESSAGE, UNKNOW."""
    from_check: bool | None = None
    """Whether the broker checked the transaction."""
    transaction_id: str | None = None
    region: str | None = None


class NoTrace(StrEnum):
    """Why there is no record."""

    NO_TOPIC = "noTopic"
    NOT_TRACED = "notTraced"
    EXPIRED = "expired"
    QUERY_FAILED = "queryFailed"


_CAUSES = {
    NoTrace.NO_TOPIC: "there is no trace topic {topic}: brokers make it with traceTopicEnable=true",
    NoTrace.NOT_TRACED: "no client wrote one: tracing is off at producer and consumers, or they use another topic",
    NoTrace.EXPIRED: "the trace topic {topic} keeps nothing as old as the message",
    NoTrace.QUERY_FAILED: "not every broker of the trace topic responds",
}


@dataclass(frozen=True, slots=True)
class Trace:
    """Records in their order of time; when there are none, why."""

    name: str
    topic: str
    records: list[Traced]
    failures: list[Failure]
    cause: NoTrace | None = None

    @property
    def why(self) -> str | None:
        """The cause as a clause without a full stop."""
        return _CAUSES[self.cause].format(topic=self.topic) if self.cause else None


async def trace(session: Session, name: str, topic: str = TRACE_TOPIC, made_ms: int | None = None) -> Trace:
    """What is written down of a message id, or of messages with a key. `made_ms` is when the message was made, if that
    is known: records may have expired since.
    """
    try:
        homes = await session.homes(topic)
    except NotFound:
        return Trace(name, topic, [], [], NoTrace.NO_TOPIC)
    found = await search(session, [topic], name)
    records = in_order(record for message in found.items for record in read(message, name))
    if records:
        return Trace(name, topic, records, found.failures)
    if found.failures:
        return Trace(name, topic, [], found.failures, NoTrace.QUERY_FAILED)
    route = await session.route(topic)
    queues = [
        (node, MessageQueue(topic, node.name, number))
        for node in homes
        for data in route.queue_datas
        if data.broker_name == node.name
        for number in range(data.read_queues)
    ]
    gathered = await session.each(
        {key: f"{key[0]}: {topic}" for key in queues}, lambda key: session.request(earliest_store_time, key[0], key[1])
    )
    oldest = [found_ms for found_ms in gathered.responses.values() if found_ms > 0]
    return Trace(name, topic, [], gathered.failures, why_none(made_ms, oldest, gathered.failures))


def why_none(made_ms: int | None, oldest_ms: Sequence[int], failures: Sequence[Failure]) -> NoTrace:
    """The cause, where the topic is there and has no record: `oldest_ms` are the oldest messages of its queues."""
    if failures:
        return NoTrace.QUERY_FAILED
    if made_ms is not None and oldest_ms and made_ms < min(oldest_ms):
        return NoTrace.EXPIRED
    return NoTrace.NOT_TRACED


def read(message: MessageExt, name: str) -> list[Traced]:
    """The records in a message of a trace topic that concern an id or key. One that cannot be read has none."""
    try:
        records = decode_trace(decompress(message.body, message.sys_flag))
    except (BodyError, UnitError):
        return []
    return [_traced(record, message.born_host) for record in records if _concerns(record, name)]


def _concerns(record: Record, name: str) -> bool:
    return name in record.msg_id.split(",") or name in (record.keys or "").split()


def _traced(record: Record, client_host: str) -> Traced:
    match record:
        case Published():
            return Traced(
                kind=record.name, at_ms=record.timestamp, msg_id=record.msg_id, group=record.group, topic=record.topic,
                client_host=client_host, store_host=record.broker_address, cost_ms=record.cost_ms,
                success=record.success, tags=record.tags, keys=record.keys, offset_msg_id=record.offset_msg_id,
                body_bytes=record.body_size, message_kind=record.kind, region=record.region_id,
            )  # fmt: skip
        case ConsumeBegun():
            return Traced(
                kind=record.name, at_ms=record.timestamp, msg_id=record.msg_id, group=record.group,
                client_host=client_host, keys=record.keys, request_id=record.request_id, retries=record.retries,
                region=record.region_id,
            )  # fmt: skip
        case ConsumeEnded():
            return Traced(
                kind=record.name, at_ms=record.timestamp or None, msg_id=record.msg_id, group=record.group,
                client_host=client_host, cost_ms=record.cost_ms, success=record.success, keys=record.keys,
                request_id=record.request_id, outcome=record.outcome,
            )  # fmt: skip
        case TransactionEnded():
            return Traced(
                kind=record.name, at_ms=record.timestamp, msg_id=record.msg_id, group=record.group, topic=record.topic,
                client_host=client_host, store_host=record.broker_address, tags=record.tags, keys=record.keys,
                message_kind=record.kind, state=record.state, from_check=record.from_check,
                transaction_id=record.transaction_id, region=record.region_id,
            )  # fmt: skip


def in_order(records: Iterable[Traced]) -> list[Traced]:
    """Sorted by time, without duplicates of resent batches. An end without a time follows its begin."""
    each = list(dict.fromkeys(records))
    begun = {one.request_id: one.at_ms for one in each if one.kind == ConsumeBegun.name}

    def place(one: Traced) -> tuple[int, bool]:
        return one.at_ms or begun.get(one.request_id) or 0, one.kind == ConsumeEnded.name

    return sorted(each, key=place)


# -------------------------------------------------------------------------------------------- the graph of dashboards


class TraceNode(Struct, frozen=True, rename="camel", kw_only=True):
    """One box of the graph. The shape is that of RocketMQ's dashboard, whose unknown numbers are -1."""

    request_id: str | None = None
    store_host: str | None = None
    client_host: str | None = None
    cost_time: int = UNKNOWN
    begin_timestamp: int = UNKNOWN
    end_timestamp: int = UNKNOWN
    retry_times: int = UNKNOWN
    status: str = NOT_KNOWN
    """success, failed or unknown."""
    transaction_state: str | None = None
    transaction_id: str | None = None
    from_transaction_check: bool = False
    msg_type: int = UNKNOWN


class ProducerNode(Struct, frozen=True, rename="camel", kw_only=True):
    """The send, and what its producer decided about the transaction."""

    msg_id: str
    tags: str | None
    keys: str | None
    offset_msg_id: str | None = field(name="offSetMsgId")
    topic: str
    group_name: str
    trace_node: TraceNode
    transaction_node_list: list[TraceNode]


class SubscriptionNode(Struct, frozen=True, rename="camel", kw_only=True):
    """The attempts of one group."""

    subscription_group: str
    consume_node_list: list[TraceNode]


class TraceGraph(Struct, frozen=True, rename="camel", kw_only=True):
    """A trace in the form of RocketMQ's dashboard; `producer_node` is None when the send was not traced."""

    producer_node: ProducerNode | None
    subscription_node_list: list[SubscriptionNode]
    message_trace_views: list[Traced]


def graph(records: Sequence[Traced]) -> TraceGraph:
    """Records of one message put together: begin and end of a call by their request id."""
    return TraceGraph(
        producer_node=_producer(records),
        subscription_node_list=_subscriptions(records),
        message_trace_views=list(records),
    )


def ids(records: Iterable[Traced]) -> list[str]:
    """The messages that records are of: a key may have several."""
    return list(dict.fromkeys(one.msg_id for one in records))


def _producer(records: Sequence[Traced]) -> ProducerNode | None:
    ends = [one for one in records if one.kind == TransactionEnded.name]
    sends = [one for one in records if one.kind == Published.name]
    if not sends:
        return None
    sent = sends[-1]  # one that was sent again is where the last attempt left it
    return ProducerNode(
        msg_id=sent.msg_id,
        tags=sent.tags,
        keys=sent.keys,
        offset_msg_id=sent.offset_msg_id,
        topic=sent.topic or "",
        group_name=sent.group or UNKNOWN_GROUP,
        trace_node=_sent(sent),
        transaction_node_list=[_decided(one) for one in ends],
    )


def _sent(sent: Traced) -> TraceNode:
    begin, cost = _known(sent.at_ms), _known(sent.cost_ms)
    return TraceNode(
        store_host=sent.store_host,
        client_host=sent.client_host,
        cost_time=cost,
        begin_timestamp=begin,
        end_timestamp=begin + cost if UNKNOWN not in (begin, cost) else UNKNOWN,
        status=_status(sent.success),
        msg_type=_known(sent.message_kind),
    )


def _decided(end: Traced) -> TraceNode:
    return TraceNode(
        store_host=end.store_host,
        client_host=end.client_host,
        begin_timestamp=_known(end.at_ms),
        transaction_state=end.state,
        transaction_id=end.transaction_id,
        from_transaction_check=bool(end.from_check),
        msg_type=_known(end.message_kind),
    )


def _subscriptions(records: Sequence[Traced]) -> list[SubscriptionNode]:
    begun = {one.request_id: one for one in records if one.kind == ConsumeBegun.name}
    ended = {one.request_id: one for one in records if one.kind == ConsumeEnded.name}
    groups: dict[str, list[TraceNode]] = {}
    for request in dict.fromkeys([*begun, *ended]):
        before, after = begun.get(request), ended.get(request)
        group = next((one.group for one in (before, after) if one is not None and one.group), UNKNOWN_GROUP)
        groups.setdefault(group, []).append(_attempt(request, before, after))
    return [SubscriptionNode(subscription_group=name, consume_node_list=nodes) for name, nodes in groups.items()]


def _attempt(request: str | None, before: Traced | None, after: Traced | None) -> TraceNode:
    begin = _known(before.at_ms) if before else UNKNOWN
    cost = _known(after.cost_ms) if after else UNKNOWN
    end = _known(after.at_ms) if after else UNKNOWN
    if end == UNKNOWN and UNKNOWN not in (begin, cost):
        end = begin + cost
    return TraceNode(
        request_id=request,
        client_host=next((one.client_host for one in (before, after) if one is not None), None),
        cost_time=cost,
        begin_timestamp=begin,
        end_timestamp=end,
        retry_times=_known(before.retries) if before else UNKNOWN,
        status=_status(after.success if after else None),
    )


def _known(number: int | None) -> int:
    return UNKNOWN if number is None else number


def _status(success: bool | None) -> str:
    return NOT_KNOWN if success is None else SUCCESS if success else FAILED


async def traced(session: Session, name: str, topic: str = TRACE_TOPIC) -> Result[Traced]:
    """The records of a message id or key; a warning says why there are none."""
    found = await trace(session, name, topic)
    return Result(found.records, [f"no trace of {name}: {found.why}"] if found.why else [], found.failures)
