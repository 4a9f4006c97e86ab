"""What all nodes reported of one consumer group, which `diagnosis` judges. Pure, and decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from msgspec import Struct

from orbitmq.admin.clients import ConsumerMember, ConsumerReport, RunningQueue, Subscription
from orbitmq.admin.groups import GroupRules
from orbitmq.admin.pace import Pace
from orbitmq.admin.progress import GroupProgress, GroupQueue
from orbitmq.admin.results import Failure
from orbitmq.admin.verdict import EvidenceValue, Finding, Severity
from orbitmq.message.flags import PERM_READ
from orbitmq.message.topics import retry_topic

MINUTE_MS = 60_000
"""Messages that wait this long while none is finished are a fault; later ones cannot be judged yet."""
YOUNG_MS = 120_000
"""Members that have just started may not have shared the queues yet."""


class TopicPlace(Struct, frozen=True, rename="camel"):
    """One topic on one broker, as the name server reports it to consumers."""

    topic: str
    broker_name: str
    perm: int
    read_queues: int
    write_queues: int

    @property
    def readable(self) -> bool:
        return bool(self.perm & PERM_READ)


@dataclass(slots=True)
class GroupEvidence:
    """What all nodes reported of one group at one time."""

    group: str
    progress: GroupProgress
    now_ms: int
    kind: str | None = None
    start: str | None = None
    members: list[ConsumerMember] = field(default_factory=list)
    reports: list[ConsumerReport] = field(default_factory=list)
    """Of the members that responded."""
    subscriptions: list[Subscription] = field(default_factory=list)
    rules: list[GroupRules] = field(default_factory=list)
    similar: str | None = None
    """A hint with similar group names, for a group that no broker knows."""
    unsubscribed: dict[str, int] = field(default_factory=dict)
    """Topic -> messages behind, of topics the group has offsets of and no member subscribes."""
    places: list[TopicPlace] = field(default_factory=list)
    """Of the topics the group consumes."""
    missing_topics: list[str] = field(default_factory=list)
    """Subscribed, and no name server knows them."""
    topic_hints: dict[str, str] = field(default_factory=dict)
    """Of these, which names are most like them."""
    broker_perms: dict[str, int] = field(default_factory=dict)
    """Broker name -> its own permission."""
    tags: dict[str, list[str]] = field(default_factory=dict)
    """Topic -> the tags of its newest messages, "" for those without."""
    failures: list[Failure] = field(default_factory=list)
    pace: Pace = field(default_factory=Pace)
    """The progress since earlier times."""

    @property
    def online(self) -> bool:
        return bool(self.members)

    @property
    def lag(self) -> int:
        return self.progress.known_lag_messages

    @property
    def own(self) -> list[GroupQueue]:
        """The queues without those of retries."""
        return [one for one in self.progress.queues if one.topic != retry_topic(self.group)]

    def held(self) -> Iterator[tuple[ConsumerReport, RunningQueue]]:
        """Each queue a member has now."""
        for report in self.reports:
            for queue in report.queues:
                if not queue.dropped:
                    yield report, queue

    def grown(self, report: ConsumerReport, age_ms: int = YOUNG_MS) -> bool:
        """Whether the member has run long enough to be judged."""
        return report.started_at_ms is None or self.now_ms - report.started_at_ms > age_ms


Rule = Callable[[GroupEvidence], Iterable[Finding]]


def finding(
    severity: Severity, e: GroupEvidence, rule: str, message: str, remedy: str | None = None, **values: EvidenceValue
) -> Finding:
    return Finding(severity, rule, e.group, message, remedy, values)


critical = partial(finding, Severity.CRITICAL)
warning = partial(finding, Severity.WARNING)
well = partial(finding, Severity.WELL)
