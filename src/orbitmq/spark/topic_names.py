"""Topics as an option names them: by name, or with `*` for any letters. Must not know where topics are looked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from orbitmq.message.topics import DLQ_PREFIX, REPLY_TOPIC_SUFFIX, RETRY_PREFIX, is_system_topic
from orbitmq.spark.cluster_options import parts

STAR = "*"


def is_of_the_system(topic: str) -> bool:
    """Whether brokers and groups have the topic for their own use: retries, dead letters, replies, delays, traces."""
    derived = topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) or topic.endswith(REPLY_TOPIC_SUFFIX)
    return derived or is_system_topic(topic)


@dataclass(frozen=True)
class TopicNames:
    """The topics that are meant: those of `names`, and those that a word of `stars` matches, unless they are of the
    system or called like one of `own`, as brokers call topics of theirs. False when nothing is named."""

    names: tuple[str, ...] = ()
    stars: tuple[str, ...] = ()
    own: frozenset[str] = frozenset()

    @cached_property
    def pattern(self) -> str:
        """What the words with `*` are as a regular expression; empty without any."""
        return "|".join(re.escape(word).replace(r"\*", ".*") for word in self.stars)

    def __bool__(self) -> bool:
        return bool(self.names or self.stars)

    def __contains__(self, topic: str) -> bool:
        if topic in self.names:
            return True
        matches = self.stars and re.fullmatch(self.pattern, topic)
        return bool(matches) and topic not in self.own and not is_of_the_system(topic)


def topic_names(text: str, own: frozenset[str] = frozenset()) -> TopicNames:
    """What an option says, names separated by commas."""
    words = parts(text, ",")
    named = tuple(word for word in words if STAR not in word)
    return TopicNames(named, tuple(word for word in words if STAR in word), own)
