"""Namespaces: names of topics and groups that several tenants of one cluster may all use. Pure.

Brokers know a resource of a namespace as `namespace%name`; what belongs to a group keeps its mark in front, as
`%RETRY%namespace%group`. Applications see the plain names. What belongs to the system is in no namespace.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from orbitmq.message.model import MessageQueue
from orbitmq.message.topics import DLQ_PREFIX, RETRY_PREFIX, is_system_group, is_system_topic

SEPARATOR = "%"
NAMES_REMEMBERED = 4096  # the topic of each message that is delivered is split, and topics are few
_ENDPOINT = re.compile(r"(?:\w+://)?(MQ_INST_\w+_\w+)\..*")


@dataclass(frozen=True, slots=True)
class Namespace:
    """The names of one tenant; an empty one changes nothing."""

    name: str = ""

    def __bool__(self) -> bool:
        return bool(self.name)

    def wrap(self, name: str) -> str:
        """What brokers call a topic or group; a name that is wrapped already stays as it is."""
        if not self.name or not name or is_system_topic(name) or is_system_group(name):
            return name
        mark, plain = _parts(name)
        return name if plain.startswith(self.name + SEPARATOR) else f"{mark}{self.name}{SEPARATOR}{plain}"

    def unwrap(self, name: str) -> str:
        """The application's name for it; names of other namespaces stay unchanged."""
        if not self.name:
            return name
        mark, plain = _parts(name)
        return mark + plain.removeprefix(self.name + SEPARATOR)

    def wrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """The queue as brokers know it."""
        return replace(queue, topic=self.wrap(queue.topic)) if self.name else queue

    def unwrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """The queue as the application knows it."""
        return replace(queue, topic=self.unwrap(queue.topic)) if self.name else queue


NO_NAMESPACE = Namespace()


def unwrapped(name: str) -> str:
    """The name without its namespace, whichever that is."""
    return split_namespace(name)[1]


@lru_cache(NAMES_REMEMBERED)
def split_namespace(name: str) -> tuple[str, str]:
    """The namespace of what brokers call `name`, empty without one, and the application's name."""
    if is_system_topic(name) or is_system_group(name):
        return "", name
    mark, plain = _parts(name)
    namespace, found, rest = plain.partition(SEPARATOR)
    return (namespace, mark + rest) if found and namespace else ("", name)


def namespace_of(namesrv_addr: str | Iterable[str] | None) -> str:
    """The namespace in an address such as `http://MQ_INST_123_abc.region.example.com:80`; empty without one."""
    first = namesrv_addr if isinstance(namesrv_addr, str) else next(iter(namesrv_addr or ()), "")
    found = _ENDPOINT.match(first.strip())
    return found.group(1) if found else ""


def _parts(name: str) -> tuple[str, str]:
    """The mark of a group's own topics, and the rest."""
    mark = next((prefix for prefix in (RETRY_PREFIX, DLQ_PREFIX) if name.startswith(prefix)), "")
    return mark, name[len(mark) :]
