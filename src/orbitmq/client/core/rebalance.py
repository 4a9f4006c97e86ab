"""The changes of a new assignment. Pure; must not know the allocation strategy."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from orbitmq.client.core.allocation import AllocateStrategy, allocate
from orbitmq.message.model import MessageQueue


@dataclass(frozen=True, slots=True)
class AssignmentChange:
    """The step from the held queues of a topic to its assigned ones."""

    dropped: tuple[MessageQueue, ...]
    added: tuple[MessageQueue, ...]

    def __bool__(self) -> bool:
        return bool(self.dropped or self.added)


def change(topic: str, held: Collection[MessageQueue], assigned: Collection[MessageQueue]) -> AssignmentChange:
    """Queues of `topic` to release and to take, in order."""
    dropped = sorted(queue for queue in held if queue.topic == topic and queue not in assigned)
    return AssignmentChange(tuple(dropped), tuple(sorted(queue for queue in assigned if queue not in held)))


class AllocationGuard:
    """Decides whether to follow a member list, one instance per topic.

    A broker that has not received this client's heartbeat yet responds with a list without it; following that would
    release every queue. Such a list is followed only if a second round has the same.
    """

    def __init__(self) -> None:
        self._missing_before = False

    def assignment(
        self,
        strategy: AllocateStrategy,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue] | None:
        """The queues assigned to `client_id`; None to keep the present ones."""
        if not queues or not client_ids:
            return None
        missing = client_id not in client_ids
        first_time, self._missing_before = missing and not self._missing_before, missing
        return None if first_time else allocate(strategy, group, client_id, queues, client_ids)
