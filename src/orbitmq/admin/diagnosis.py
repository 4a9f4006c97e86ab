"""Why a group consumes nothing, too little, or not what is expected: rules over evidence. Pure: asks nobody.

A rule is a function of the evidence that yields findings; each says what it saw in a sentence, the figures it goes by,
and the command that repairs it or looks further. A limit stands beside its rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from orbitmq.admin.answers import Failure
from orbitmq.admin.clients import Member, Running, RunningQueue, Subscription
from orbitmq.admin.groups import GroupRules
from orbitmq.admin.progress import GroupProgress, QueueLag, State
from orbitmq.admin.verdict import Severity
from orbitmq.message.config import SUBSCRIBE_ALL, TAG
from orbitmq.message.flags import PERM_READ
from orbitmq.message.topics import retry_topic

STUCK_MS = 60_000
"""A listener that has had messages for so long and finished none is taken for stuck, as RocketMQ's own tool does."""
IDLE_MS = 60_000
"""A queue that is not asked for: a pull is held 15 s, and repeated at once."""
YOUNG_MS = 120_000
"""Members that have just started may not have shared the queues yet."""
HOT_SKEW, HOT_LAG = 3.0, 100
"""A queue with three times the mean, once there is enough to speak of a mean."""
BUSY_SHARE = 0.9
"""A cache this full makes a consumer wait before it pulls again."""
CACHED_MAX, CACHED_MIB_MAX = 1000, 100
"""What a consumer keeps of one queue unless it is told otherwise: messages, and mebibytes."""
STACK_LENGTH = 2000
"""Characters of a stack that are shown as evidence; `orbitmq client stack` has it whole."""

Figure = str | int | float | bool | list[str] | None


class Finding(Struct, frozen=True, rename="camel"):
    """One reason, or one thing to know."""

    severity: Severity
    rule: str
    sentence: str
    """What was seen, and what it means."""
    evidence: dict[str, Figure]
    """The figures the sentence stands on."""
    command: str | None
    """What repairs it, or what to look at next."""


class TopicPlace(Struct, frozen=True, rename="camel"):
    """One topic on one broker, as the name server tells consumers."""

    topic: str
    broker_name: str
    perm: int
    read_queues: int
    write_queues: int

    @property
    def readable(self) -> bool:
        return bool(self.perm & PERM_READ)


@dataclass(slots=True)
class Evidence:
    """All that was seen of one group in one look."""

    group: str
    progress: GroupProgress
    now_ms: int
    kind: str | None = None
    start: str | None = None
    members: list[Member] = field(default_factory=list)
    reports: list[Running] = field(default_factory=list)
    """Of members that answered."""
    subscriptions: list[Subscription] = field(default_factory=list)
    rules: list[GroupRules] = field(default_factory=list)
    similar: str | None = None
    """A hint with group names like this one, for one that nobody knows."""
    unsubscribed: dict[str, int] = field(default_factory=dict)
    """Topic -> messages behind, of topics the group has offsets of and no member subscribes."""
    places: list[TopicPlace] = field(default_factory=list)
    """Of the topics the group consumes."""
    missing_topics: list[str] = field(default_factory=list)
    """Subscribed, and no name server knows them."""
    broker_perms: dict[str, int] = field(default_factory=dict)
    """Broker name -> its own permission."""
    tags: dict[str, list[str]] = field(default_factory=dict)
    """Topic -> the tags of its newest messages, "" for those without."""
    failures: list[Failure] = field(default_factory=list)

    @property
    def online(self) -> bool:
        return bool(self.members)

    @property
    def lag(self) -> int:
        return self.progress.known_lag_messages

    @property
    def own(self) -> list[QueueLag]:
        """The queues without those of retries."""
        return [one for one in self.progress.queues if one.topic != retry_topic(self.group)]

    def held(self) -> Iterator[tuple[Running, RunningQueue]]:
        """Each queue a member has now."""
        for report in self.reports:
            for queue in report.queues:
                if not queue.dropped:
                    yield report, queue

    def grown(self, report: Running) -> bool:
        """Whether the member has run long enough to be judged."""
        return report.started_at_ms is None or self.now_ms - report.started_at_ms > YOUNG_MS


Rule = Callable[[Evidence], Iterable[Finding]]


def _critical(rule: str, sentence: str, command: str | None = None, **evidence: Figure) -> Finding:
    return Finding(Severity.CRITICAL, rule, sentence, evidence, command)


def _warning(rule: str, sentence: str, command: str | None = None, **evidence: Figure) -> Finding:
    return Finding(Severity.WARNING, rule, sentence, evidence, command)


def _place(queue: QueueLag | RunningQueue) -> str:
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"


# ------------------------------------------------------------------------------------- nothing can be consumed at all


def unknown(e: Evidence) -> Iterator[Finding]:
    if not (e.online or e.rules or e.progress.queues or e.failures):
        yield _critical(
            "unknown",
            f"no broker knows the group {e.group}: no consumer of that name has ever connected"
            + (f"; {e.similar}" if e.similar else ""),
            "orbitmq group list",
        )


def offline(e: Evidence) -> Iterator[Finding]:
    known = bool(e.rules or e.progress.queues)
    if known and e.progress.members == 0:
        last = max((one.last_consumed_at_ms for one in e.progress.queues if one.last_consumed_at_ms), default=None)
        yield _critical(
            "offline",
            f"no client of {e.group} is online, so nobody consumes",
            f"orbitmq group connections {e.group}",
            lagMessages=e.progress.lag_messages,
            lastConsumedStoredAtMs=last,
        )


def disabled(e: Evidence) -> Iterator[Finding]:
    off = [one.broker_name for one in e.rules if not one.consume_enable]
    if off:
        yield _critical(
            "disabled",
            f"consuming is switched off for {e.group} on {', '.join(off)}",
            f"orbitmq group alter {e.group} --consume-enable",
            brokers=off,
        )


def forbidden(e: Evidence) -> Iterator[Finding]:
    shut = sorted(name for name, perm in e.broker_perms.items() if not perm & PERM_READ)
    for name in shut:
        yield _critical(
            "broker-not-readable",
            f"{name} gives nobody messages: its brokerPermission lacks reading",
            f"orbitmq broker config set brokerPermission=6 --broker {name}",
            broker=name,
            brokerPermission=e.broker_perms[name],
        )
    for place in e.places:
        if not place.readable and place.broker_name not in shut:
            yield _critical(
                "topic-not-readable",
                f"{place.topic} cannot be read on {place.broker_name}: consumers are not shown its queues there",
                f"orbitmq topic permission {place.topic} RW --broker {place.broker_name}",
                topic=place.topic,
                perm=place.perm,
            )


def no_topic(e: Evidence) -> Iterator[Finding]:
    for topic in e.missing_topics:
        yield _critical(
            "no-topic",
            f"{e.group} subscribes {topic}, and no name server knows that topic",
            f"orbitmq topic create {topic}",
            topic=topic,
        )


def differing(e: Evidence) -> Iterator[Finding]:
    topics = sorted({one.topic for one in e.subscriptions if one.conflict})
    for topic in topics:
        rows = [one for one in e.subscriptions if one.topic == topic]
        wants = [f"{', '.join(one.clients)}: {one.expression or 'not subscribed'}" for one in rows]
        yield _critical(
            "subscriptions-differ",
            f"members of {e.group} subscribe {topic} differently: the last heartbeat decides what brokers give, and "
            "queues of members that do not want it are read by nobody",
            f"orbitmq group subscriptions {e.group}",
            subscriptions=wants,
        )


def unsubscribed(e: Evidence) -> Iterator[Finding]:
    for topic, lag in sorted(e.unsubscribed.items()):
        if e.online and lag:
            yield _critical(
                "not-subscribed",
                f"{e.group} is {lag} messages behind in {topic}, which no member subscribes any more",
                f"orbitmq offset skip {e.group} {topic}",
                topic=topic,
                lagMessages=lag,
            )


def filtered(e: Evidence) -> Iterator[Finding]:
    for one in e.subscriptions:
        wants = {tag.strip() for tag in (one.expression or "").split("||")}
        sample = e.tags.get(one.topic, [])
        if one.expression_type != TAG or SUBSCRIBE_ALL in wants or not sample or wants & set(sample):
            continue
        told = [f"{tag or '(none)'} x{count}" for tag, count in Counter(sample).most_common(5)]
        yield _critical(
            "filter-matches-nothing",
            f"{e.group} wants {one.topic} with {one.expression}, and none of its newest {len(sample)} messages has "
            "such a tag: they are passed over",
            f"orbitmq msg query {one.topic}",
            expression=one.expression,
            newestTags=told,
        )


def stuck(e: Evidence) -> Iterator[Finding]:
    """The listener has messages and finishes none."""
    for report in e.reports:
        if not e.grown(report):
            continue
        queues = [queue for queue in report.queues if not queue.dropped and _is_stuck(queue, e.now_ms)]
        if queues:
            cached = sum(queue.cached_messages for queue in queues)
            yield _critical(
                "stuck-listener",
                f"the listener of {report.client_id} has {cached} messages and has finished none for "
                f"{STUCK_MS // 1000} s: its threads say where it waits",
                f"orbitmq client stack {e.group} --client {report.client_id}",
                clientId=report.client_id,
                queues=[_place(queue) for queue in queues],
                cachedMessages=cached,
                threads=report.threads,
                stack=excerpt(report.stack),
            )


def _is_stuck(queue: RunningQueue, now_ms: int) -> bool:
    since = queue.last_consume_at_ms
    return queue.cached_messages > 0 and (since is None or now_ms - since > STUCK_MS)


def excerpt(stack: str | None) -> str | None:
    """The threads that run listeners, as far as they fit; else the beginning."""
    if not stack:
        return None
    blocks = [block for block in stack.split("\n\n") if "ConsumeMessageThread" in block or "listen" in block.lower()]
    return "\n\n".join(blocks or [stack])[:STACK_LENGTH]


def unlocked(e: Evidence) -> Iterator[Finding]:
    for report, queue in e.held():
        if report.orderly and not queue.locked and e.grown(report):
            yield _critical(
                "not-locked",
                f"{report.client_id} consumes in order and holds no lock of {_place(queue)}: another member, or one "
                "that died less than a minute ago, still has it",
                f"orbitmq group connections {e.group}",
                lastLockAtMs=queue.last_lock_at_ms,
                unlockAttempts=queue.unlock_attempts,
                cachedMessages=queue.cached_messages,
            )


def suspended(e: Evidence) -> Iterator[Finding]:
    behind = {_place(one): one.lag_messages for one in e.own if one.lag_messages}
    for report, queue in e.held():
        since = queue.last_pull_at_ms
        idle = since is not None and e.now_ms - since > IDLE_MS
        if idle and not queue.cached_messages and _place(queue) in behind and e.grown(report):
            yield _critical(
                "not-pulling",
                f"{report.client_id} has {_place(queue)} and has not asked for messages for {IDLE_MS // 1000} s: it is "
                "suspended, or its pulling has died",
                f"orbitmq client stack {e.group} --client {report.client_id}",
                clientId=report.client_id,
                lastPullAtMs=since,
                lagMessages=behind[_place(queue)],
            )


def ahead(e: Evidence) -> Iterator[Finding]:
    for topic, queues in _by_topic(one for one in e.own if one.state is State.OFFSET_AHEAD):
        yield _critical(
            "offset-ahead",
            f"the group's offset is beyond the end of {len(queues)} queues of {topic}: the topic was made anew or its "
            "store was lost, and nothing comes until the queues have grown that long",
            f"orbitmq offset reset {e.group} {topic} --to end",
            topic=topic,
            queues=[f"{_place(one)}: {one.consumer_offset} > {one.max_offset}" for one in queues],
        )


def failing(e: Evidence) -> Iterator[Finding]:
    """The listener gives messages back."""
    rates = [(report.client_id, topic) for report in e.reports for topic in report.topics]
    failed = sum(topic.failed_last_hour for _, topic in rates)
    tps = round(sum(topic.consume_failed_tps for _, topic in rates), 3)
    waiting, dead = e.progress.retry_lag_messages or 0, e.progress.dead_letters or 0
    if not (tps or failed or waiting):
        return
    yield _warning(
        "listener-fails",
        f"the listener of {e.group} fails: {failed} deliveries in the last hour, {waiting} messages wait to be tried "
        f"again, {dead} were given up",
        f"orbitmq msg query {retry_topic(e.group)}",
        failedTps=tps,
        failedLastHour=failed,
        retryLagMessages=waiting,
        deadLetters=dead,
        clients=sorted({client for client, topic in rates if topic.consume_failed_tps or topic.failed_last_hour}),
    )


def dead_letters(e: Evidence) -> Iterator[Finding]:
    if e.progress.dead_letters:
        yield _warning(
            "dead-letters",
            f"{e.progress.dead_letters} messages were given up after too many tries; nobody consumes them",
            f"orbitmq msg query %DLQ%{e.group}",
            deadLetters=e.progress.dead_letters,
        )


# --------------------------------------------------------------------------------------- a part of it is not consumed


def unreached(e: Evidence) -> Iterator[Finding]:
    for failure in e.failures:
        what = "what it would say of itself" if failure.target.startswith("client ") else "what it has of the group"
        yield _warning(
            "no-answer",
            f"{failure.target} does not answer ({failure.message}): {what} is not in this",
            "orbitmq cluster list",
            code=failure.code,
            hint=failure.hint,
        )


def unconnected(e: Evidence) -> Iterator[Finding]:
    for member in e.members:
        if member.missing:
            yield _warning(
                "not-connected",
                f"{member.client_id} is not connected to {', '.join(member.missing)}, where other members are: queues "
                "there that fall to it are read by nobody",
                f"orbitmq group connections {e.group}",
                brokers=member.brokers,
                missing=member.missing,
            )


def one_broker(e: Evidence) -> Iterator[Finding]:
    by_broker: dict[str, int] = {}
    for one in e.own:
        by_broker[one.broker_name] = by_broker.get(one.broker_name, 0) + (one.lag_messages or 0)
    behind = [name for name, lag in by_broker.items() if lag >= HOT_LAG]
    others = sum(lag for name, lag in by_broker.items() if name not in behind)
    if len(behind) == 1 and len(by_broker) > 1 and others * 10 < by_broker[behind[0]]:
        yield _warning(
            "one-broker",
            f"the group is behind on {behind[0]} and not on the others: look at that broker, and who reaches it",
            f"orbitmq broker status {behind[0]}",
            lagMessages=by_broker[behind[0]],
            elsewhere=others,
        )


def unread(e: Evidence) -> Iterator[Finding]:
    for place in e.places:
        queues = [one for one in e.progress.unread_queues if one.startswith(f"{place.topic}/{place.broker_name}/")]
        if place.read_queues < place.write_queues and queues:
            yield _critical(
                "unread-queues",
                f"{place.topic} has {place.write_queues} queues to write and {place.read_queues} to read on "
                f"{place.broker_name}: messages in the others are shown to nobody",
                f"orbitmq topic alter {place.topic} --read-queues {place.write_queues} --broker {place.broker_name}",
                topic=place.topic,
                queues=queues,
            )


def unowned(e: Evidence) -> Iterator[Finding]:
    queues = e.progress.unowned_queues or []
    pushed = e.kind == "CONSUME_PASSIVELY" and e.progress.model == "CLUSTERING"
    readable = {(one.topic, one.broker_name) for one in e.places if one.readable}
    queues = [one for one in queues if tuple(one.split("/")[:2]) in readable]
    if pushed and queues and e.reports and all(map(e.grown, e.reports)):
        yield _critical(
            "unowned-queues",
            f"{len(queues)} queues belong to no member: members do not agree on how queues are shared, or one that is "
            "still listed is gone",
            f"orbitmq group connections {e.group}",
            queues=queues,
        )


def shared(e: Evidence) -> Iterator[Finding]:
    """Members that share by different rules, or do not see each other."""
    owners: dict[str, list[str]] = {}
    for report, queue in e.held():
        if e.progress.model == "CLUSTERING" and report.kind == "CONSUME_PASSIVELY" and e.grown(report):
            owners.setdefault(_place(queue), []).append(report.client_id)
    twice = {place: clients for place, clients in owners.items() if len(clients) > 1}
    if twice:
        yield _critical(
            "shared-queues",
            f"{len(twice)} queues are consumed by more than one member: messages come twice, and offsets go back and "
            "forth; members have equal client ids, other strategies, or see different members",
            f"orbitmq client show {e.group} -o yaml",
            queues=[f"{place}: {', '.join(sorted(clients))}" for place, clients in sorted(twice.items())],
        )


def idle(e: Evidence) -> Iterator[Finding]:
    if e.progress.idle_clients and e.progress.model != "BROADCASTING" and len(e.members) > len(e.own) > 0:
        yield _warning(
            "more-clients-than-queues",
            f"{len(e.members)} clients share {len(e.own)} queues: {len(e.progress.idle_clients)} of them have none",
            f"orbitmq topic alter {e.own[0].topic} --queues N",
            idleClients=e.progress.idle_clients,
            queues=len(e.own),
        )


def hot(e: Evidence) -> Iterator[Finding]:
    top = max(e.own, key=lambda one: one.lag_messages or 0, default=None)
    skew = e.progress.skew
    if top is None or skew is None or skew < HOT_SKEW or (top.lag_messages or 0) < HOT_LAG:
        return
    yield _warning(
        "hot-queue",
        f"{_place(top)} has {top.lag_messages} of {e.lag} messages behind: many messages share a key, or its consumer "
        "is the slow one",
        f"orbitmq group progress {e.group}",
        skew=skew,
        lagMessages=top.lag_messages,
        clientId=top.client_id,
    )


def throttled(e: Evidence) -> Iterator[Finding]:
    for report, queue in e.held():
        count = _limit(report.properties, "pullThresholdForQueue", CACHED_MAX)
        size = _limit(report.properties, "pullThresholdSizeForQueue", CACHED_MIB_MAX)
        full = queue.cached_messages >= BUSY_SHARE * count or queue.cached_size_mib >= BUSY_SHARE * size
        if full and not _is_stuck(queue, e.now_ms):
            yield _warning(
                "flow-control",
                f"{report.client_id} has its cache of {_place(queue)} full and pulls no more until the listener has "
                "worked some off: the listener is slower than what comes",
                f"orbitmq client show {e.group} --client {report.client_id}",
                cachedMessages=queue.cached_messages,
                cachedMessagesMax=count,
                cachedSizeMib=queue.cached_size_mib,
                cachedSizeMibMax=size,
                threads=report.threads,
            )


def _limit(properties: Mapping[str, str], key: str, usual: int) -> int:
    text = properties.get(key, "")
    return int(text) if text.isdecimal() and int(text) > 0 else usual


def expired(e: Evidence) -> Iterator[Finding]:
    for topic, queues in _by_topic(one for one in e.own if one.state is State.EXPIRED):
        lost = sum(one.expired_messages or 0 for one in queues)
        yield _warning(
            "expired",
            f"{lost} messages of {topic} were removed before {e.group} took them: it is behind by more than the broker "
            "keeps",
            "orbitmq broker config show",
            expiredMessages=lost,
            queues=[_place(one) for one in queues],
        )


def slow(e: Evidence) -> Iterator[Finding]:
    consumed, produced = e.progress.consume_tps, e.progress.produce_tps
    if e.lag >= HOT_LAG and consumed and produced and produced >= consumed:
        yield _warning(
            "too-slow",
            f"{e.group} takes {consumed:g} messages a second and {produced:g} come: it falls behind for ever",
            f"orbitmq client show {e.group}",
            consumeTps=consumed,
            produceTps=produced,
            lagMessages=e.lag,
        )


# ------------------------------------------------------------------------------------------------------ to be known


def fresh(e: Evidence) -> Iterator[Finding]:
    queues = [one for one in e.own if one.state is State.NO_OFFSET and one.lag_messages]
    if queues and e.start == "CONSUME_FROM_LAST_OFFSET":
        yield _warning(
            "begins-at-the-end",
            f"{e.group} has no offset of {len(queues)} queues, and its members begin at the end: what was sent before "
            "they came is not consumed",
            f"orbitmq offset reset {e.group} {queues[0].topic} --to begin",
            topic=queues[0].topic,
            queues=[_place(one) for one in queues],
            consumeFromWhere=e.start,
        )


def broadcast(e: Evidence) -> Iterator[Finding]:
    if e.progress.model == "BROADCASTING":
        yield _warning(
            "broadcast",
            f"{e.group} broadcasts: each member has offsets of its own, and messages that fail are not tried again",
            f"orbitmq client show {e.group}",
            members=len(e.members),
        )


def versions(e: Evidence) -> Iterator[Finding]:
    for what, found in (
        ("versions", {one.version for one in e.members if one.version}),
        ("name-servers", {one.name_servers for one in e.reports if one.name_servers}),
    ):
        if len(found) > 1:
            yield _warning(
                f"different-{what}",
                f"members of {e.group} have different {what.replace('-', ' ')}: they may see different queues and "
                "share them differently",
                f"orbitmq group connections {e.group}",
                found=sorted(found),
            )


def _by_topic(queues: Iterable[QueueLag]) -> list[tuple[str, list[QueueLag]]]:
    found: dict[str, list[QueueLag]] = {}
    for one in queues:
        found.setdefault(one.topic, []).append(one)
    return sorted(found.items())


# The order of likelihood within a severity.
REASONS: tuple[Rule, ...] = (
    unknown, offline, disabled, no_topic, forbidden, differing, unsubscribed, stuck, unlocked, suspended, ahead, unread,
    unowned, shared, filtered, unreached, failing, dead_letters, throttled, slow, hot, idle, one_broker, unconnected,
    expired, fresh, broadcast, versions,
)  # fmt: skip
_SEVERITIES = (Severity.CRITICAL, Severity.WARNING, Severity.WELL)


def diagnose(evidence: Evidence) -> list[Finding]:
    """Everything found, the worst and likeliest first; one line that all is well when nothing was."""
    found = [finding for rule in REASONS for finding in rule(evidence)]
    found.sort(key=lambda one: _SEVERITIES.index(one.severity))
    return found or [_well(evidence)]


def _well(e: Evidence) -> Finding:
    figures: dict[str, Figure] = {
        "members": len(e.members),
        "lagMessages": e.progress.lag_messages,
        "consumeTps": e.progress.consume_tps,
        "produceTps": e.progress.produce_tps,
    }
    if not e.lag:
        sentence = f"{e.group} has consumed everything there is: {len(e.members)} members are online"
    else:
        sentence = f"{e.group} is {e.lag} messages behind and works on them; nothing speaks against it"
    return Finding(Severity.WELL, "well", sentence, figures, f"orbitmq group progress {e.group} --watch 2")
