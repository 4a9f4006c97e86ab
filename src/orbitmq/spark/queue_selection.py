"""The queues of a read: of topics by name and by pattern, or one by one. Knows no offsets."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from orbitmq.message.model import MessageQueue
from orbitmq.message.namespace import NO_NAMESPACE, Namespace
from orbitmq.spark.cluster_client import BrokerAddresses, ClusterClient, Routes, require_open
from orbitmq.spark.cluster_options import bad_option
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.topic_names import is_of_the_system

NO_QUEUES: frozenset[int] = frozenset()


@dataclass(frozen=True)
class QueueSelection:
    """The queues of the options subscribe and subscribePattern, or of assign."""

    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    system_topics: bool
    assigned: Mapping[str, Any] | None
    """Topic -> broker -> set of queue ids, or topic -> set of queue ids."""
    names: Namespace = NO_NAMESPACE
    """Namespace of the topics that the pattern is matched with."""

    @property
    def named(self) -> tuple[str, ...]:
        """The topics that the options name."""
        return self.topics or tuple(self.assigned or ())

    def find(self, cluster: ClusterClient) -> Routes:
        """The queues that exist now, and the errors of named topics that do not exist."""
        found = cluster.look_up(dict.fromkeys((*self.named, *self.matching(cluster))))
        return Routes(
            {queue: place for queue, place in found.queues.items() if self.includes(queue)},
            {queue: perm for queue, perm in found.closed.items() if self.includes(queue)},
            {topic: error for topic, error in found.unknown.items() if topic in self.named},
        )

    def checked(self, found: Routes) -> dict[MessageQueue, BrokerAddresses]:
        """The queues of `found`. SourceError when a named topic or queue does not exist, or a queue may not be read."""
        for error in found.unknown.values():
            raise error
        require_open(found.closed)
        there: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for queue in found.queues:
            there[queue.topic].add((queue.broker_name, queue.queue_id))
        for topic, level in (self.assigned or {}).items():
            _check_assigned(topic, level, there[topic])
        return dict(found.queues)

    def includes(self, queue: MessageQueue) -> bool:
        """Whether the options select this queue, judged by its name."""
        if self.assigned is None:
            return queue.topic in self.topics or self._matches(queue.topic)
        level = self.assigned.get(queue.topic, NO_QUEUES)
        return queue.queue_id in (level.get(queue.broker_name, NO_QUEUES) if isinstance(level, dict) else level)

    def matching(self, cluster: ClusterClient) -> list[str]:
        """The topics that the pattern selects now, with their namespace."""
        if self.pattern is None:
            return []
        matching = [topic for topic in cluster.topics() if self._matches(topic)]
        if self.system_topics:
            return matching
        info = cluster.info()
        own = {*info.brokers, *info.clusters}  # brokers keep topics of these names
        return [topic for topic in matching if topic not in own and not is_of_the_system(topic)]

    def _matches(self, topic: str) -> bool:
        plain = self.names.unwrap(topic)
        is_ours = plain != topic or not self.names
        return is_ours and self.pattern is not None and self.pattern.fullmatch(plain) is not None


def _check_assigned(topic: str, level: Any, there: Collection[tuple[str, int]]) -> None:
    """SourceError unless all assigned queues of the topic are there, as broker name and queue id."""
    wanted = level if isinstance(level, dict) else {None: level}
    if None in wanted and len({broker for broker, _ in there}) > 1:
        raise bad_option(f"option assign: topic {topic} is on several brokers; add the broker level above the queues")
    ids = {queue_id for _, queue_id in there}
    for broker, queue_ids in wanted.items():
        for queue_id in sorted(queue_ids):
            if (queue_id not in ids) if broker is None else ((broker, queue_id) not in there):
                raise bad_option(f"option assign: topic {topic} has no queue {queue_id} on {broker or 'its broker'}")


def queue_selection(options: ReadOptions) -> QueueSelection:
    """The selection of the options. SourceError for an invalid pattern or assignment."""
    pattern = None
    if options.subscribe_pattern:
        try:
            pattern = re.compile(options.subscribe_pattern)
        except re.error as error:
            raise bad_option(f"option subscribePattern: {error}") from error
    return QueueSelection(
        options.topics, pattern, options.system_topics, _assigned(options.assign, options.names), options.names
    )


def _assigned(text: str, names: Namespace) -> dict[str, Any] | None:
    if not text:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict) or not value or not all(map(_is_level, value.values())):
        raise bad_option(f"option assign: {text!r} is not JSON topic -> broker -> list of queues")
    return {names.wrap(topic): _as_sets(level) for topic, level in value.items()}


def _as_sets(level: Any) -> Any:
    """Thousands of queues may be looked up."""
    return {broker: frozenset(ids) for broker, ids in level.items()} if isinstance(level, dict) else frozenset(level)


def _is_level(level: Any) -> bool:
    lists = level.values() if isinstance(level, dict) else [level]
    return all(isinstance(ids, list) and ids and all(type(queue_id) is int for queue_id in ids) for ids in lists)
