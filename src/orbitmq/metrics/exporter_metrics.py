"""Reads the metrics of `table_exporter` from pollers. Results that are too old are left out, and so is a sum over
brokers unless the part of every broker is known: a sum is never too small. Sends no request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial

from orbitmq.message.topics import DLQ_PREFIX, HALF_TOPIC, RETRY_PREFIX, TRANSACTION_GROUP
from orbitmq.metrics.lag import ReadQueueLag, queue_lags
from orbitmq.metrics.largest import largest
from orbitmq.metrics.model import Readers, Sample
from orbitmq.metrics.poller import BrokerPoller
from orbitmq.metrics.runtime_metrics import READ, Read, number
from orbitmq.metrics.versions import version_name
from orbitmq.wire.bodies import ConsumerConnection, ConsumeStatus, MessageModel

BROADCASTING, CLUSTERING = "0", "1"  # RocketMQ's exporter writes them like this
_CLIENT_METRICS: dict[str, Callable[[ConsumeStatus], float]] = {
    "rocketmq_client_consume_fail_msg_count": lambda status: status.consume_failed_msgs,
    "rocketmq_client_consume_fail_msg_tps": lambda status: status.consume_failed_tps,
    "rocketmq_client_consume_ok_msg_tps": lambda status: status.consume_ok_tps,
    "rocketmq_client_consume_rt": lambda status: status.consume_rt,
    "rocketmq_client_consumer_pull_rt": lambda status: status.pull_rt,
    "rocketmq_client_consumer_pull_tps": lambda status: status.pull_tps,
}


class GroupMembers:
    """The members of a group at all brokers."""

    def __init__(self, found: Iterable[ConsumerConnection | None]) -> None:
        known = [members for members in found if members is not None]
        self.clients = {client.client_id or "": client for members in known for client in members.connection_set}
        self.is_broadcast = any(members.message_model is MessageModel.BROADCASTING for members in known)


class View:
    """A snapshot of all pollers. `data` has one poller of each broker name, that of the master while it responds;
    results received after `since` are not too old."""

    def __init__(self, pollers: Iterable[BrokerPoller], now: float, since: float) -> None:
        self.pollers = list(pollers)
        self.now, self.since = now, since
        first: dict[tuple[str, str], BrokerPoller] = {}
        for poller in sorted(self.pollers, key=lambda poller: (not poller.is_up, poller.node.id)):
            first.setdefault((poller.node.cluster, poller.node.name), poller)
        self.data = list(first.values())

    def groups(self) -> dict[str, GroupMembers]:
        names = {group for poller in self.data for group in poller.groups}
        return {group: GroupMembers(self._members(group)) for group in names}

    def _members(self, group: str) -> Iterator[ConsumerConnection | None]:
        for poller in self.data:
            yield poller.get("members", group, since=self.since)

    def pairs(self, poller: BrokerPoller) -> Iterator[tuple[str, str]]:
        """Topics and groups of one broker that exist there, without topics that online members do not subscribe to."""
        for topic, group in list(poller.offsets):
            if topic in poller.topics and group in poller.groups:
                members = poller.get("members", group, since=self.since)
                if members is None or not members.subscription_table or topic in members.subscription_table:
                    yield topic, group

    @cached_property
    def places(self) -> Mapping[tuple[str, str, str], list[tuple[BrokerPoller, str, str]]]:
        """Cluster, topic and group -> the brokers where the group has offsets in the topic."""
        found: defaultdict[tuple[str, str, str], list[tuple[BrokerPoller, str, str]]] = defaultdict(list)
        for poller in self.data:
            for topic, group in self.pairs(poller):
                found[poller.node.cluster, topic, group].append((poller, topic, group))
        return found

    def lags(self, poller: BrokerPoller, topic: str, group: str) -> list[ReadQueueLag] | None:
        """The lag of each queue; None if the broker's part is unknown."""
        ranges = poller.get("ranges", topic, since=self.since)
        offsets = poller.get("offsets", since=self.since)
        if ranges is None or offsets is None or topic not in poller.topics:
            return None
        return list(queue_lags(poller.topics[topic].read_queues, ranges, offsets.get((topic, group), {})))


class ExporterMetrics:
    """`view` returns the current snapshot. `steady_labels` leaves labels empty whose values change all the time and
    would create new series: the number of members and their addresses."""

    labels: Mapping[str, str] = {}

    def __init__(
        self,
        view: Callable[[], View],
        failure: Callable[[], str | None],
        name_servers_at: Callable[[], float | None],
        *,
        queue_series: int,
        steady_labels: bool,
    ) -> None:
        self._view = view
        self._failure = failure
        self._name_servers_at = name_servers_at
        self._queue_series = queue_series
        self._steady = steady_labels

    async def prepare(self) -> None:
        """Nothing to prepare: everything was polled before."""

    def failure(self) -> str | None:
        """Why there are no new results; None if there are."""
        return self._failure()

    def readers(self) -> Readers:
        """One reader for each metric of the table, all of the same snapshot."""
        view = self._view()
        groups = view.groups()
        return {
            "rocketmq_broker_tps": partial(self._broker_rate, view, "puts"),
            "rocketmq_broker_qps": partial(self._broker_rate, view, "gets"),
            "rocketmq_broker_commitlog_diff": partial(self._slaves_behind, view),
            "rocketmq_producer_tps": partial(self._puts, view, "per_second"),
            "rocketmq_producer_message_size": partial(self._puts, view, "bytes_per_second"),
            "rocketmq_producer_offset": partial(self._ends, view),
            "rocketmq_topic_retry_offset": partial(self._ends, view, RETRY_PREFIX),
            "rocketmq_topic_dlq_offset": partial(self._dlq_ends, view),
            "rocketmq_producer_count": partial(self._producers, view),
            "rocketmq_consumer_tps": partial(self._gets, view, "per_second"),
            "rocketmq_consumer_message_size": partial(self._gets, view, "bytes_per_second"),
            "rocketmq_consumer_offset": partial(self._consumed, view),
            "rocketmq_group_consume_tps": partial(self._gets, view, "per_second"),
            "rocketmq_group_consume_total_offset": partial(self._consumed, view),
            "rocketmq_group_diff": partial(self._diffs, view, groups, ""),
            "rocketmq_group_retrydiff": partial(self._diffs, view, groups, RETRY_PREFIX),
            "rocketmq_group_dlqdiff": partial(self._diffs, view, groups, DLQ_PREFIX),
            "rocketmq_message_accumulation": partial(self._accumulated, view),
            "rocketmq_group_get_latency_by_storetime": partial(self._latencies, view),
            "rocketmq_group_get_latency": partial(self._queue_latencies, view),
            "rocketmq_send_back_nums": partial(self._sent_back, view),
            "rocketmq_group_count": partial(self._group_counts, groups),
            **{name: partial(self._clients, view, metric) for name, metric in _CLIENT_METRICS.items()},
            **{name: partial(self._runtime, view, name) for name in READ},
            "orbitmq_broker_up": partial(self._up, view),
            "orbitmq_broker_has_master": partial(self._masters, view),
            "orbitmq_broker_start_time_seconds": partial(self._starts, view),
            "orbitmq_half_messages": partial(self._half_messages, view),
            "orbitmq_timer_messages": partial(self._timers, view, number("timerCongestNum")),
            "orbitmq_timer_late_seconds": partial(self._timers, view, number("timerReadBehind")),
            "orbitmq_group_online_consumers": partial(self._online, groups),
            "orbitmq_group_lag_messages": partial(self._sums, view, lambda lags: sum(lag.waiting for lag in lags)),
            "orbitmq_group_queue_lag_max_messages": partial(
                self._sums, view, lambda lags: max((lag.waiting for lag in lags), default=0)
            ),
            "orbitmq_group_queues": partial(self._sums, view, len),
            "orbitmq_group_ahead_messages": partial(self._sums, view, lambda lags: sum(lag.ahead for lag in lags)),
            "orbitmq_queue_lag_messages": partial(self._queue_lags, view),
            "orbitmq_scrape_stale_seconds": partial(self._stale, view),
        }

    # -------------------------------------------------------------------------------------------------------- brokers

    def _broker_rate(self, view: View, kind: str) -> Iterator[Sample]:
        for poller in view.data:
            value = poller.get(kind, since=view.since)
            if value is not None:
                yield _broker(poller), value

    def _slaves_behind(self, view: View) -> Iterator[Sample]:
        ends = {
            poller: poller.runtime.log_end_offset
            for poller in view.pollers
            if poller.get("runtime", since=view.since) is not None
        }
        masters = {(one.node.cluster, one.node.name): end for one, end in ends.items() if one.node.is_master}
        for poller, end in ends.items():
            master = masters.get((poller.node.cluster, poller.node.name))
            if not poller.node.is_master and master is not None and end is not None:
                yield _broker(poller), max(0, master - end)

    def _runtime(self, view: View, name: str) -> Iterator[Sample | None]:
        for poller in view.pollers:
            table = poller.get("runtime", since=view.since)
            value = READ[name](table, poller.runtime) if table is not None else None
            if table is not None and value is not None:
                yield _runtime_labels(poller, table), value
            else:
                yield None

    def _up(self, view: View) -> Iterator[Sample]:
        for poller in view.pollers:
            if poller.is_up is not None:
                yield _broker(poller), poller.is_up

    def _masters(self, view: View) -> Iterator[Sample]:
        for poller in view.data:
            if poller.is_up is not None:
                yield (poller.node.cluster, poller.node.name), poller.node.is_master and poller.is_up

    def _starts(self, view: View) -> Iterator[Sample]:
        for poller in view.pollers:
            booted = poller.runtime.booted_at_ms
            if booted is not None:
                yield _broker(poller), booted / 1000

    def _half_messages(self, view: View) -> Iterator[Sample]:
        for poller in view.data:
            lags = view.lags(poller, HALF_TOPIC, TRANSACTION_GROUP)
            if lags is not None:
                yield (poller.node.cluster, poller.node.name), sum(lag.waiting for lag in lags)

    def _timers(self, view: View, read: Read) -> Iterator[Sample]:
        for poller in view.data:
            table = poller.get("runtime", since=view.since) if poller.node.is_master else None
            value = read(table, poller.runtime) if table is not None else None
            if value is not None:
                yield (poller.node.cluster, poller.node.name), value

    def _stale(self, view: View) -> Iterator[Sample]:
        responded_at = self._name_servers_at()
        if responded_at is not None:
            yield ("name servers",), view.now - responded_at
        for poller in view.pollers:
            if poller.responded_at is not None:
                yield (str(poller.node),), view.now - poller.responded_at

    # --------------------------------------------------------------------------------------------------------- topics

    def _puts(self, view: View, field: str) -> Iterator[Sample | None]:
        for poller in view.data:
            for topic in list(poller.topics):
                flow = poller.get("put", topic, since=view.since)
                yield None if flow is None else (_topic(poller, topic), getattr(flow, field))

    def _ends(self, view: View, prefix: str = "") -> Iterator[Sample | None]:
        for poller, topic, end in _ends(view):
            is_derived = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
            wanted = topic.startswith(prefix) if prefix else not is_derived
            yield (_topic(poller, topic), end) if wanted else None

    def _dlq_ends(self, view: View) -> Iterator[Sample | None]:
        for poller, topic, end in _ends(view):
            if topic.startswith(DLQ_PREFIX):
                yield _topic(poller, topic.removeprefix(DLQ_PREFIX)), end
            else:
                yield None

    def _producers(self, view: View) -> Iterator[Sample]:
        for poller in view.data:
            for group, members in (poller.get("producers", since=view.since) or {}).items():
                yield _topic(poller, group), len(members)

    # --------------------------------------------------------------------------------------------------------- groups

    def _gets(self, view: View, field: str) -> Iterator[Sample | None]:
        for poller in view.data:
            for pair in view.pairs(poller):
                found = poller.get("got", *pair, since=view.since)
                yield None if found is None else (_group(poller, *pair), getattr(found[0], field))

    def _sent_back(self, view: View) -> Iterator[Sample | None]:
        for poller in view.data:
            for pair in view.pairs(poller):
                found = poller.get("got", *pair, since=view.since)
                yield None if found is None else (_group(poller, *pair), found[1])

    def _consumed(self, view: View) -> Iterator[Sample | None]:
        for poller in view.data:
            offsets = poller.get("offsets", since=view.since)
            for pair in view.pairs(poller) if offsets is not None else ():
                yield _group(poller, *pair), sum(max(0, offset) for offset in offsets[pair].values())

    def _accumulated(self, view: View) -> Iterator[Sample | None]:
        for poller in view.data:
            for pair in view.pairs(poller):
                lags = view.lags(poller, *pair)
                yield None if lags is None else (_group(poller, *pair), sum(lag.plain for lag in lags))

    def _diffs(self, view: View, groups: Mapping[str, GroupMembers], prefix: str) -> Iterator[Sample | None]:
        totals: dict[tuple[str, str], int | None] = {}
        for (_, topic, group), value in _totals(view, lambda lags: sum(lag.plain for lag in lags)):
            before = totals.get((group, topic), 0)
            totals[group, topic] = None if before is None or value is None else before + value
            yield None
        for (group, topic), total in totals.items():
            is_derived = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
            wanted = topic.startswith(prefix) if prefix else not is_derived
            members = groups.get(group)  # None if the group was created while the metrics were read
            if members is not None and wanted and total is not None and not members.is_broadcast:
                online = "" if self._steady else str(len(members.clients))
                yield (group, topic, online, CLUSTERING), total

    def _sums(self, view: View, of: Callable[[Sequence[ReadQueueLag]], int]) -> Iterator[Sample | None]:
        for (cluster, topic, group), value in _totals(view, of):
            yield None if value is None else ((cluster, topic, group), value)

    def _latencies(self, view: View) -> Iterator[Sample | None]:
        for poller in view.data:
            for pair in view.pairs(poller):
                delays = poller.get("delays", *pair, since=view.since)
                yield None if delays is None else (_group(poller, *pair), max(delays.values(), default=0))

    def _queue_latencies(self, view: View) -> Iterator[Sample | None]:
        found = (
            (delay, (*_group(poller, *pair), str(queue_id)))
            for poller in view.data
            for pair in view.pairs(poller)
            for queue_id, delay in (poller.get("delays", *pair, since=view.since) or {}).items()
        )
        return largest(self._queue_series, found)

    def _queue_lags(self, view: View) -> Iterator[Sample | None]:
        found = (
            (lag.waiting, (topic, group, poller.node.name, str(lag.queue_id)))
            for poller in view.data
            for topic, group in view.pairs(poller)
            for lag in view.lags(poller, topic, group) or ()
        )
        return largest(self._queue_series, found)

    def _online(self, groups: Mapping[str, GroupMembers]) -> Iterator[Sample]:
        for name, group in groups.items():
            yield (name,), len(group.clients)

    def _group_counts(self, groups: Mapping[str, GroupMembers]) -> Iterator[Sample]:
        for name, group in groups.items():
            clients = sorted(group.clients.items())
            addresses = ",".join(client.client_addr or "" for _, client in clients)
            hosts = ",".join(client_id.partition("@")[0] for client_id, _ in clients)
            yield ("", "", name) if self._steady else (addresses, hosts, name), len(clients)

    def _clients(self, view: View, metric: Callable[[ConsumeStatus], float]) -> Iterator[Sample | None]:
        seen: set[tuple[str, ...]] = set()  # a client is a member at several brokers
        for poller in view.data:
            for key in [key for key in poller.results if key[0] == "client"]:
                _, group, client_id, address = map(str, key)
                info = poller.get(*key, since=view.since)
                for topic, status in info.status_table.items() if info is not None else ():
                    if (client_id, group, topic) not in seen:
                        seen.add((client_id, group, topic))
                        yield (address, client_id, group, topic), metric(status)
                yield None


def _ends(view: View) -> Iterator[tuple[BrokerPoller, str, int]]:
    for poller in view.data:
        for topic in list(poller.topics):
            ranges = poller.get("ranges", topic, since=view.since)
            if ranges is not None:
                yield poller, topic, sum(held.max_offset for held in ranges.values())


def _totals(
    view: View, of: Callable[[Sequence[ReadQueueLag]], int]
) -> Iterator[tuple[tuple[str, str, str], int | None]]:
    """By cluster, topic and group; None if the part of a broker is unknown."""
    for key, places in view.places.items():
        lags = [view.lags(*place) for place in places]
        yield key, None if None in lags else of([lag for part in lags for lag in part or ()])


def _broker(poller: BrokerPoller) -> tuple[str, str, str]:
    return poller.node.cluster, poller.node.address, poller.node.name


def _topic(poller: BrokerPoller, name: str) -> tuple[str, str, str]:
    return poller.node.cluster, poller.node.name, name


def _group(poller: BrokerPoller, topic: str, group: str) -> tuple[str, str, str, str]:
    return poller.node.cluster, poller.node.name, topic, group


def _runtime_labels(poller: BrokerPoller, table: Mapping[str, str]) -> tuple[str, ...]:
    version = table.get("brokerVersion", "")
    name = table.get("brokerVersionDesc") or (version_name(int(version)).upper() if version.isdecimal() else "")
    return poller.node.cluster, poller.node.address, "", name, table.get("bootTimestamp", ""), version
