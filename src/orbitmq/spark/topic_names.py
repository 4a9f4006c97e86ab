"""Topics in an option: by name, or with `*` for any characters."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from orbitmq.message.topics import DLQ_PREFIX, REPLY_TOPIC_SUFFIX, RETRY_PREFIX, is_system_topic
from orbitmq.spark.cluster_options import parts

STAR = "*"


def is_of_the_system(topic: str) -> bool:
    """Whether the topic is for internal use of brokers and groups: retries, dead letters, replies, delays, traces."""
    derived = topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) or topic.endswith(REPLY_TOPIC_SUFFIX)
    return derived or is_system_topic(topic)


@dataclass(frozen=True)
class TopicNames:
    """A set of topics: those of `names`, and those that match a word of `stars`, except system topics and those of
    `own`, which brokers name after themselves. False when empty."""

    names: tuple[str, ...] = ()
    stars: tuple[str, ...] = ()
    own: frozenset[str] = frozenset()

    @cached_property
    def pattern(self) -> str:
        """The words with `*` as a regular expression, empty without any."""
        return "|".join(re.escape(word).replace(r"\*", ".*") for word in self.stars)

    def __bool__(self) -> bool:
        return bool(self.names or self.stars)

    def __contains__(self, topic: str) -> bool:
        if topic in self.names:
            return True
        matches = self.stars and re.fullmatch(self.pattern, topic)
        return bool(matches) and topic not in self.own and not is_of_the_system(topic)


def topic_names(text: str, own: frozenset[str] = frozenset()) -> TopicNames:
    """The topics of an option, separated by commas."""
    words = parts(text, ",")
    named = tuple(word for word in words if STAR not in word)
    return TopicNames(named, tuple(word for word in words if STAR in word), own)
