"""Reads the figures of `table_exporter` out of surveys. What is too old is not told, and a sum over brokers only when
the part of every broker is known: never a smaller figure instead. Asks nobody.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial

from orbitmq.message.topics import DLQ_PREFIX, HALF_TOPIC, RETRY_PREFIX, TRANSACTION_GROUP
from orbitmq.metrics.lag import QueueLag, queue_lags
from orbitmq.metrics.largest import largest
from orbitmq.metrics.model import Readers, Sample
from orbitmq.metrics.runtime_figures import READ
from orbitmq.metrics.survey import Survey
from orbitmq.metrics.versions import version_name
from orbitmq.wire.bodies import ConsumerConnection, ConsumeStatus, MessageModel

BROADCASTING, CLUSTERING = "0", "1"  # how RocketMQ's exporter writes the two
_CLIENT_FIGURES: dict[str, Callable[[ConsumeStatus], float]] = {
    "rocketmq_client_consume_fail_msg_count": lambda status: status.consume_failed_msgs,
    "rocketmq_client_consume_fail_msg_tps": lambda status: status.consume_failed_tps,
    "rocketmq_client_consume_ok_msg_tps": lambda status: status.consume_ok_tps,
    "rocketmq_client_consume_rt": lambda status: status.consume_rt,
    "rocketmq_client_consumer_pull_rt": lambda status: status.pull_rt,
    "rocketmq_client_consumer_pull_tps": lambda status: status.pull_tps,
}


class Group:
    """The members of a group as all brokers together know them."""

    def __init__(self, found: Iterable[ConsumerConnection | None]) -> None:
        known = [members for members in found if members is not None]
        self.clients = {client.client_id or "": client for members in known for client in members.connection_set}
        self.is_broadcast = any(members.message_model is MessageModel.BROADCASTING for members in known)


class View:
    """One look at all surveys: `data` are those of one broker of each name, the master while it answers; what came
    after `since` is not too old.
    """

    def __init__(self, surveys: Iterable[Survey], now: float, since: float) -> None:
        self.surveys = list(surveys)
        self.now, self.since = now, since
        first: dict[tuple[str, str], Survey] = {}
        for survey in sorted(self.surveys, key=lambda survey: (not survey.is_up, survey.node.id)):
            first.setdefault((survey.node.cluster, survey.node.name), survey)
        self.data = list(first.values())

    def groups(self) -> dict[str, Group]:
        names = {group for survey in self.data for group in survey.groups}
        return {group: Group(self._members(group)) for group in names}

    def _members(self, group: str) -> Iterator[ConsumerConnection | None]:
        for survey in self.data:
            yield survey.get("members", group, since=self.since)

    def pairs(self, survey: Survey) -> Iterator[tuple[str, str]]:
        """Topics and groups of one broker that exist there; without topics the online members do not subscribe."""
        for topic, group in list(survey.offsets):
            if topic in survey.topics and group in survey.groups:
                members = survey.get("members", group, since=self.since)
                if members is None or not members.subscription_table or topic in members.subscription_table:
                    yield topic, group

    @cached_property
    def places(self) -> Mapping[tuple[str, str, str], list[tuple[Survey, str, str]]]:
        """Cluster, topic and group -> the brokers where the group has offsets in the topic."""
        found: defaultdict[tuple[str, str, str], list[tuple[Survey, str, str]]] = defaultdict(list)
        for survey in self.data:
            for topic, group in self.pairs(survey):
                found[survey.node.cluster, topic, group].append((survey, topic, group))
        return found

    def lags(self, survey: Survey, topic: str, group: str) -> list[QueueLag] | None:
        """Queue by queue; None when the broker's part is not known."""
        ranges = survey.get("ranges", topic, since=self.since)
        offsets = survey.get("offsets", since=self.since)
        if ranges is None or offsets is None or topic not in survey.topics:
            return None
        return list(queue_lags(survey.topics[topic].read_queues, ranges, offsets.get((topic, group), {})))


class ExporterFigures:
    """`view` gives the newest look; `steady_labels` leaves values empty that change all the time and make new series:
    the number of members and their addresses.
    """

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
        self._look = view
        self._failure = failure
        self._name_servers_at = name_servers_at
        self._queue_series = queue_series
        self._steady = steady_labels

    async def prepare(self) -> None:
        """Everything was asked beforehand."""

    def failure(self) -> str | None:
        """Why nothing new is known; None when it is."""
        return self._failure()

    def readers(self) -> Readers:
        """One a metric of the table, all over one look."""
        view = self._look()
        groups = view.groups()
        return {
            "rocketmq_broker_tps": partial(self._broker_answer, view, "puts"),
            "rocketmq_broker_qps": partial(self._broker_answer, view, "gets"),
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
            **{name: partial(self._clients, view, figure) for name, figure in _CLIENT_FIGURES.items()},
            **{name: partial(self._runtime, view, name) for name in READ},
            "orbitmq_broker_up": partial(self._up, view),
            "orbitmq_broker_has_master": partial(self._masters, view),
            "orbitmq_broker_start_time_seconds": partial(self._starts, view),
            "orbitmq_half_messages": partial(self._half_messages, view),
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

    def _broker_answer(self, view: View, kind: str) -> Iterator[Sample]:
        for survey in view.data:
            value = survey.get(kind, since=view.since)
            if value is not None:
                yield _broker(survey), value

    def _slaves_behind(self, view: View) -> Iterator[Sample]:
        ends = {
            survey: survey.runtime.log_end_offset
            for survey in view.surveys
            if survey.get("runtime", since=view.since) is not None
        }
        masters = {(one.node.cluster, one.node.name): end for one, end in ends.items() if one.node.is_master}
        for survey, end in ends.items():
            master = masters.get((survey.node.cluster, survey.node.name))
            if not survey.node.is_master and master is not None and end is not None:
                yield _broker(survey), max(0, master - end)

    def _runtime(self, view: View, name: str) -> Iterator[Sample | None]:
        for survey in view.surveys:
            table = survey.get("runtime", since=view.since)
            value = READ[name](table, survey.runtime) if table is not None else None
            if table is not None and value is not None:
                yield _runtime_labels(survey, table), value
            else:
                yield None

    def _up(self, view: View) -> Iterator[Sample]:
        for survey in view.surveys:
            if survey.is_up is not None:
                yield _broker(survey), survey.is_up

    def _masters(self, view: View) -> Iterator[Sample]:
        for survey in view.data:
            if survey.is_up is not None:
                yield (survey.node.cluster, survey.node.name), survey.node.is_master and survey.is_up

    def _starts(self, view: View) -> Iterator[Sample]:
        for survey in view.surveys:
            booted = survey.runtime.booted_at_ms
            if booted is not None:
                yield _broker(survey), booted / 1000

    def _half_messages(self, view: View) -> Iterator[Sample]:
        for survey in view.data:
            lags = view.lags(survey, HALF_TOPIC, TRANSACTION_GROUP)
            if lags is not None:
                yield (survey.node.cluster, survey.node.name), sum(lag.waiting for lag in lags)

    def _stale(self, view: View) -> Iterator[Sample]:
        asked = self._name_servers_at()
        if asked is not None:
            yield ("name servers",), view.now - asked
        for survey in view.surveys:
            if survey.answered_at is not None:
                yield (str(survey.node),), view.now - survey.answered_at

    # --------------------------------------------------------------------------------------------------------- topics

    def _puts(self, view: View, field: str) -> Iterator[Sample | None]:
        for survey in view.data:
            for topic in list(survey.topics):
                flow = survey.get("put", topic, since=view.since)
                yield None if flow is None else (_topic(survey, topic), getattr(flow, field))

    def _ends(self, view: View, prefix: str = "") -> Iterator[Sample | None]:
        for survey, topic, end in _ends(view):
            is_derived = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
            wanted = topic.startswith(prefix) if prefix else not is_derived
            yield (_topic(survey, topic), end) if wanted else None

    def _dlq_ends(self, view: View) -> Iterator[Sample | None]:
        for survey, topic, end in _ends(view):
            if topic.startswith(DLQ_PREFIX):
                yield _topic(survey, topic.removeprefix(DLQ_PREFIX)), end
            else:
                yield None

    def _producers(self, view: View) -> Iterator[Sample]:
        for survey in view.data:
            for group, members in (survey.get("producers", since=view.since) or {}).items():
                yield _topic(survey, group), len(members)

    # --------------------------------------------------------------------------------------------------------- groups

    def _gets(self, view: View, field: str) -> Iterator[Sample | None]:
        for survey in view.data:
            for pair in view.pairs(survey):
                found = survey.get("got", *pair, since=view.since)
                yield None if found is None else (_group(survey, *pair), getattr(found[0], field))

    def _sent_back(self, view: View) -> Iterator[Sample | None]:
        for survey in view.data:
            for pair in view.pairs(survey):
                found = survey.get("got", *pair, since=view.since)
                yield None if found is None else (_group(survey, *pair), found[1])

    def _consumed(self, view: View) -> Iterator[Sample | None]:
        for survey in view.data:
            offsets = survey.get("offsets", since=view.since)
            for pair in view.pairs(survey) if offsets is not None else ():
                yield _group(survey, *pair), sum(max(0, offset) for offset in offsets[pair].values())

    def _accumulated(self, view: View) -> Iterator[Sample | None]:
        for survey in view.data:
            for pair in view.pairs(survey):
                lags = view.lags(survey, *pair)
                yield None if lags is None else (_group(survey, *pair), sum(lag.plain for lag in lags))

    def _diffs(self, view: View, groups: Mapping[str, Group], prefix: str) -> Iterator[Sample | None]:
        totals: dict[tuple[str, str], int | None] = {}
        for (_, topic, group), value in _totals(view, _plain):
            before = totals.get((group, topic), 0)
            totals[group, topic] = None if before is None or value is None else before + value
            yield None
        for (group, topic), total in totals.items():
            is_derived = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
            wanted = topic.startswith(prefix) if prefix else not is_derived
            members = groups.get(group)  # None for a group that came while the figures were read
            if members is not None and wanted and total is not None and not members.is_broadcast:
                online = "" if self._steady else str(len(members.clients))
                yield (group, topic, online, CLUSTERING), total

    def _sums(self, view: View, of: Callable[[Sequence[QueueLag]], int]) -> Iterator[Sample | None]:
        for (cluster, topic, group), value in _totals(view, of):
            yield None if value is None else ((cluster, topic, group), value)

    def _latencies(self, view: View) -> Iterator[Sample | None]:
        for survey in view.data:
            for pair in view.pairs(survey):
                delays = survey.get("delays", *pair, since=view.since)
                yield None if delays is None else (_group(survey, *pair), max(delays.values(), default=0))

    def _queue_latencies(self, view: View) -> Iterator[Sample | None]:
        found = (
            (delay, (*_group(survey, *pair), str(queue_id)))
            for survey in view.data
            for pair in view.pairs(survey)
            for queue_id, delay in (survey.get("delays", *pair, since=view.since) or {}).items()
        )
        return largest(self._queue_series, found)

    def _queue_lags(self, view: View) -> Iterator[Sample | None]:
        found = (
            (lag.waiting, (topic, group, survey.node.name, str(lag.queue_id)))
            for survey in view.data
            for topic, group in view.pairs(survey)
            for lag in view.lags(survey, topic, group) or ()
        )
        return largest(self._queue_series, found)

    def _online(self, groups: Mapping[str, Group]) -> Iterator[Sample]:
        for name, group in groups.items():
            yield (name,), len(group.clients)

    def _group_counts(self, groups: Mapping[str, Group]) -> Iterator[Sample]:
        for name, group in groups.items():
            clients = sorted(group.clients.items())
            addresses = ",".join(client.client_addr or "" for _, client in clients)
            hosts = ",".join(client_id.partition("@")[0] for client_id, _ in clients)
            yield ("", "", name) if self._steady else (addresses, hosts, name), len(clients)

    def _clients(self, view: View, figure: Callable[[ConsumeStatus], float]) -> Iterator[Sample | None]:
        told: set[tuple[str, ...]] = set()  # a client is a member at several brokers
        for survey in view.data:
            for key in [key for key in survey.answers if key[0] == "client"]:
                _, group, client_id, address = map(str, key)
                info = survey.get(*key, since=view.since)
                for topic, status in info.status_table.items() if info is not None else ():
                    if (client_id, group, topic) not in told:
                        told.add((client_id, group, topic))
                        yield (address, client_id, group, topic), figure(status)
                yield None


def _ends(view: View) -> Iterator[tuple[Survey, str, int]]:
    for survey in view.data:
        for topic in list(survey.topics):
            ranges = survey.get("ranges", topic, since=view.since)
            if ranges is not None:
                yield survey, topic, sum(held.max_offset for held in ranges.values())


def _totals(view: View, of: Callable[[Sequence[QueueLag]], int]) -> Iterator[tuple[tuple[str, str, str], int | None]]:
    """Of each cluster, topic and group; None where the part of a broker is not known."""
    for key, places in view.places.items():
        lags = [view.lags(*place) for place in places]
        yield key, None if None in lags else of([lag for part in lags for lag in part or ()])


def _plain(lags: Sequence[QueueLag]) -> int:
    return sum(lag.plain for lag in lags)


def _broker(survey: Survey) -> tuple[str, str, str]:
    return survey.node.cluster, survey.node.address, survey.node.name


def _topic(survey: Survey, name: str) -> tuple[str, str, str]:
    return survey.node.cluster, survey.node.name, name


def _group(survey: Survey, topic: str, group: str) -> tuple[str, str, str, str]:
    return survey.node.cluster, survey.node.name, topic, group


def _runtime_labels(survey: Survey, table: Mapping[str, str]) -> tuple[str, ...]:
    version = table.get("brokerVersion", "")
    name = table.get("brokerVersionDesc") or (version_name(int(version)).upper() if version.isdecimal() else "")
    return survey.node.cluster, survey.node.address, "", name, table.get("bootTimestamp", ""), version
