"""Why a group consumes nothing, too little, or something unexpected: rules over evidence. Pure: no I/O.

A rule is a function that takes the evidence and yields findings. Each finding has the values it rests on and the
command that repairs the fault or shows more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from orbitmq.admin.consumption import (
    HOT_LAG,
    Movement,
    dead_letters,
    failing,
    has_waited,
    movement,
    slow,
    standing,
    stuck,
    suspended,
    throttled,
    undecided,
    unlocked,
    unpulled,
)
from orbitmq.admin.group_evidence import MINUTE_MS, GroupEvidence, Rule, critical, finding, warning, well
from orbitmq.admin.progress import GroupQueue, QueueState, label
from orbitmq.admin.verdict import EvidenceValue, Finding, Severity, worst_first
from orbitmq.message.config import SUBSCRIBE_ALL, TAG
from orbitmq.message.flags import PERM_READ
from orbitmq.message.topics import retry_topic

HOT_SKEW = 3.0
"""A queue with three times the mean, once there is enough to speak of a mean."""

# ------------------------------------------------------------------------------------- nothing can be consumed at all


def unknown(e: GroupEvidence) -> Iterator[Finding]:
    if not (e.online or e.rules or e.progress.queues or e.failures):
        remedy = "orbitmq group list"
        text = f"no broker knows the group {e.group}: no consumer of that name has ever connected"
        similar = "" if e.similar in (None, remedy) else f"; {e.similar}"
        yield critical(e, "unknown", f"{text}{similar}", remedy)


def offline(e: GroupEvidence) -> Iterator[Finding]:
    known = bool(e.rules or e.progress.queues)
    if known and e.progress.members == 0:
        last = max((one.last_consumed_at_ms for one in e.progress.queues if one.last_consumed_at_ms), default=None)
        behind = e.progress.lag_messages is None or bool(e.lag + (e.progress.retry_lag_messages or 0))
        moves = any(movement(e, one) is Movement.MOVES for one in e.own if one.lag_messages)
        if moves:
            what = ", but its offsets move: a program that is no member commits them, as Spark does"
        else:
            what = ", so nothing is consumed" if behind else ", and nothing waits for it"
        make = critical if behind and not moves else well  # groups of jobs that are over are no trouble
        yield make(
            e,
            "offline",
            f"no client of {e.group} is online{what}",
            f"orbitmq group connections {e.group}",
            lagMessages=e.progress.lag_messages,
            lastConsumedStoredAtMs=last,
        )


def disabled(e: GroupEvidence) -> Iterator[Finding]:
    off = [one.broker_name for one in e.rules if not one.consume_enable]
    if off:
        yield critical(
            e,
            "disabled",
            f"consuming is switched off for {e.group} on {', '.join(off)}",
            f"orbitmq group alter {e.group} --consume-enable",
            brokers=off,
        )


def forbidden(e: GroupEvidence) -> Iterator[Finding]:
    shut = sorted(name for name, perm in e.broker_perms.items() if not perm & PERM_READ)
    for name in shut:
        yield critical(
            e,
            "broker-not-readable",
            f"{name} delivers no messages: its brokerPermission lacks read",
            f"orbitmq broker config set brokerPermission=6 --broker {name}",
            broker=name,
            brokerPermission=e.broker_perms[name],
        )
    for place in e.places:
        if not place.readable and place.broker_name not in shut:
            yield critical(
                e,
                "topic-not-readable",
                f"{place.topic} cannot be read on {place.broker_name}: consumers are not shown its queues there",
                f"orbitmq topic permission {place.topic} RW --broker {place.broker_name}",
                topic=place.topic,
                perm=place.perm,
            )


def no_topic(e: GroupEvidence) -> Iterator[Finding]:
    for topic in e.missing_topics:
        yield critical(
            e,
            "no-topic",
            f"{e.group} subscribes {topic}, and no name server knows that topic",
            e.topic_hints.get(topic) or "orbitmq topic list",
            topic=topic,
        )


def differing(e: GroupEvidence) -> Iterator[Finding]:
    topics = sorted({one.topic for one in e.subscriptions if one.conflict})
    for topic in topics:
        rows = [one for one in e.subscriptions if one.topic == topic]
        wants = [f"{', '.join(one.clients)}: {one.expression or 'not subscribed'}" for one in rows]
        yield critical(
            e,
            "subscriptions-differ",
            f"members of {e.group} subscribe {topic} differently: the last heartbeat decides what brokers deliver, and "
            "queues of members without the subscription are not consumed",
            f"orbitmq group subscriptions {e.group}",
            subscriptions=wants,
        )


def subscribes_nothing(e: GroupEvidence) -> Iterator[Finding]:
    """Push consumers must have queues; others may assign queues themselves. `differing` reports a member's mismatch."""
    pushed = [report for report in e.reports if report.kind == "CONSUME_PASSIVELY"]
    idle = [one for one in pushed if all(want.topic == retry_topic(e.group) for want in one.subscriptions)]
    if idle and len(idle) == len(e.members):
        names = ", ".join(one.client_id for one in idle)
        yield critical(
            e,
            "no-subscription",
            f"{names} {'has' if len(idle) == 1 else 'have'} subscribed no topic, so {e.group} consumes nothing",
            f"orbitmq group subscriptions {e.group}",
            clients=[one.client_id for one in idle],
        )


def unsubscribed(e: GroupEvidence) -> Iterator[Finding]:
    if any(report.kind == "CONSUME_ACTIVELY" and not report.subscriptions for report in e.reports):
        return  # it assigns its queues itself and does not report which
    for topic, lag in sorted(e.unsubscribed.items()):
        if e.online and lag:
            yield critical(
                e,
                "not-subscribed",
                f"{e.group} is {lag} messages behind in {topic}, which no member subscribes any more",
                f"orbitmq offset skip {e.group} {topic}",
                topic=topic,
                lagMessages=lag,
            )


def filtered(e: GroupEvidence) -> Iterator[Finding]:
    for one in e.subscriptions:
        wants = {tag.strip() for tag in (one.expression or "").split("||")}
        sample = e.tags.get(one.topic, [])
        if one.expression_type != TAG or SUBSCRIBE_ALL in wants or not sample or wants & set(sample):
            continue
        tags = [f"{tag or '(none)'} x{count}" for tag, count in Counter(sample).most_common(5)]
        yield warning(  # a rare tag may just not be among the newest
            e,
            "filter-matches-nothing",
            f"{e.group} subscribes to {one.topic} with {one.expression}, and none of its newest {len(sample)} "
            "messages has such a tag: they are skipped",
            f"orbitmq msg query {one.topic}",
            expression=one.expression,
            newestTags=tags,
        )


def ahead(e: GroupEvidence) -> Iterator[Finding]:
    for topic, queues in _by_topic(one for one in e.own if one.state is QueueState.OFFSET_AHEAD):
        yield critical(
            e,
            "offset-ahead",
            f"the group's offset is beyond the end of {len(queues)} queues of {topic}: the topic was recreated or "
            "its store was lost, and nothing is delivered until the queues have grown that long",
            f"orbitmq offset reset {e.group} {topic} --to end",
            topic=topic,
            queues=[f"{label(one)}: {one.consumer_offset} > {one.max_offset}" for one in queues],
        )


# --------------------------------------------------------------------------------------- a part of it is not consumed


def unreached(e: GroupEvidence) -> Iterator[Finding]:
    for failure in e.failures:
        what = "what it would say of itself" if failure.target.startswith("client ") else "what it has of the group"
        yield warning(
            e,
            "no-answer",
            f"{failure.target} does not respond ({failure.message}): {what} is missing here",
            "orbitmq cluster list",
            code=failure.code,
            hint=failure.hint,
        )


def unconnected(e: GroupEvidence) -> Iterator[Finding]:
    for member in e.members:
        if member.missing:
            yield warning(
                e,
                "not-connected",
                f"{member.client_id} is not connected to {', '.join(member.missing)}, where other members are: queues "
                "there that are assigned to it are not consumed",
                f"orbitmq group connections {e.group}",
                brokers=member.brokers,
                missing=member.missing,
            )


def one_broker(e: GroupEvidence) -> Iterator[Finding]:
    by_broker: dict[str, int] = {}
    for one in e.own:
        by_broker[one.broker_name] = by_broker.get(one.broker_name, 0) + (one.lag_messages or 0)
    behind = [name for name, lag in by_broker.items() if lag >= HOT_LAG]
    others = sum(lag for name, lag in by_broker.items() if name not in behind)
    if len(behind) == 1 and len(by_broker) > 1 and others * 10 < by_broker[behind[0]]:
        yield warning(
            e,
            "one-broker",
            f"the group is behind on {behind[0]} and not on the others: check that broker, and which members reach it",
            f"orbitmq broker status {behind[0]}",
            lagMessages=by_broker[behind[0]],
            elsewhere=others,
        )


def unread(e: GroupEvidence) -> Iterator[Finding]:
    for place in e.places:
        queues = [one for one in e.progress.unread_queues if one.startswith(f"{place.topic}/{place.broker_name}/")]
        if place.read_queues < place.write_queues and queues:
            yield critical(
                e,
                "unread-queues",
                f"{place.topic} has {place.write_queues} queues to write and {place.read_queues} to read on "
                f"{place.broker_name}: messages in the others are not delivered",
                f"orbitmq topic alter {place.topic} --read-queues {place.write_queues} --broker {place.broker_name}",
                topic=place.topic,
                queues=queues,
            )


def unowned(e: GroupEvidence) -> Iterator[Finding]:
    """Of members that share queues. A lock of one that died lasts a minute, and sharing takes as long."""
    queues = e.progress.unowned_queues or []
    pushed = e.kind == "CONSUME_PASSIVELY" and e.progress.model == "CLUSTERING"
    readable = {(one.topic, one.broker_name) for one in e.places if one.readable}
    queues = [one for one in queues if tuple(one.split("/")[:2]) in readable]
    if not (pushed and queues and e.reports):
        return
    waiting = [one for one in e.own if one.lag_messages and label(one) in queues]
    lag = sum(one.lag_messages or 0 for one in waiting)
    unowned = f"{len(queues)} queues belong to no member"
    evidence: dict[str, EvidenceValue] = {"queues": queues, "lagMessages": lag}
    if any(has_waited(e, one) for one in waiting) and all(e.grown(one, MINUTE_MS) for one in e.reports):
        yield critical(
            e,
            "unowned-queues",
            f"{unowned}, and {lag} messages wait there: members do not agree on the assignment of queues, or a "
            "dead one is still listed or holds their lock",
            f"orbitmq group connections {e.group}",
            **evidence,
        )
    else:
        severity = Severity.WARNING if all(map(e.grown, e.reports)) else Severity.UNKNOWN
        sentence = f"{unowned}: a rebalance is in progress, or a member that died holds their lock for a minute"
        yield finding(severity, e, "unowned-queues", sentence, f"orbitmq group why {e.group} --watch 10", **evidence)


def shared(e: GroupEvidence) -> Iterator[Finding]:
    """Members that share by different rules, or do not see each other."""
    owners: dict[str, list[str]] = {}
    for report, queue in e.held():
        if e.progress.model == "CLUSTERING" and report.kind == "CONSUME_PASSIVELY" and e.grown(report):
            owners.setdefault(label(queue), []).append(report.client_id)
    twice = {place: clients for place, clients in owners.items() if len(clients) > 1}
    if twice:
        yield critical(
            e,
            "shared-queues",
            f"{len(twice)} queues are consumed by more than one member: messages are delivered twice, and "
            "offsets move back and forth; members have equal client ids, other strategies, or see different members",
            f"orbitmq client show {e.group} -o yaml",
            queues=[f"{place}: {', '.join(sorted(clients))}" for place, clients in sorted(twice.items())],
        )


def idle(e: GroupEvidence) -> Iterator[Finding]:
    if e.progress.idle_clients and e.progress.model != "BROADCASTING" and len(e.members) > len(e.own) > 0:
        yield warning(
            e,
            "more-clients-than-queues",
            f"{len(e.members)} clients share {len(e.own)} queues: {len(e.progress.idle_clients)} of them have none",
            f"orbitmq topic alter {e.own[0].topic} --queues N",
            idleClients=e.progress.idle_clients,
            queues=len(e.own),
        )


def hot(e: GroupEvidence) -> Iterator[Finding]:
    top = max(e.own, key=lambda one: one.lag_messages or 0, default=None)
    skew = e.progress.skew
    if top is None or skew is None or skew < HOT_SKEW or (top.lag_messages or 0) < HOT_LAG:
        return
    yield warning(
        e,
        "hot-queue",
        f"{label(top)} has {top.lag_messages} of {e.lag} messages behind: many messages share a key, or its consumer "
        "is the slow one",
        f"orbitmq group progress {e.group}",
        skew=skew,
        lagMessages=top.lag_messages,
        clientId=top.client_id,
    )


def expired(e: GroupEvidence) -> Iterator[Finding]:
    for topic, queues in _by_topic(one for one in e.own if one.state is QueueState.EXPIRED):
        lost = sum(one.expired_messages or 0 for one in queues)
        yield warning(
            e,
            "expired",
            f"{lost} messages of {topic} were removed before {e.group} took them: it is behind by more than the broker "
            "keeps",
            "orbitmq broker config show",
            expiredMessages=lost,
            queues=[label(one) for one in queues],
        )


# --------------------------------------------------------------------------------------------------------- limitations


def fresh(e: GroupEvidence) -> Iterator[Finding]:
    queues = [one for one in e.own if one.state is QueueState.NO_OFFSET and one.lag_messages]
    if queues and e.start == "CONSUME_FROM_LAST_OFFSET":
        yield warning(
            e,
            "begins-at-the-end",
            f"{e.group} has no offset of {len(queues)} queues, and its members begin at the end: messages sent "
            "before they started are not consumed",
            f"orbitmq offset reset {e.group} {queues[0].topic} --to begin",
            topic=queues[0].topic,
            queues=[label(one) for one in queues],
            consumeFromWhere=e.start,
        )


def broadcast(e: GroupEvidence) -> Iterator[Finding]:
    if e.progress.model == "BROADCASTING":
        yield well(
            e,
            "broadcast",
            f"{e.group} broadcasts: each member has its own offsets, and failed messages are not retried",
            f"orbitmq client show {e.group}",
            members=len(e.members),
        )


def versions(e: GroupEvidence) -> Iterator[Finding]:
    for what, found in (
        ("versions", {one.version for one in e.members if one.version}),
        ("name-servers", {one.name_servers for one in e.reports if one.name_servers}),
    ):
        if len(found) > 1:
            yield warning(
                e,
                f"different-{what}",
                f"members of {e.group} have different {what.replace('-', ' ')}: they may see different queues and "
                "share them differently",
                f"orbitmq group connections {e.group}",
                found=sorted(found),
            )


def _by_topic(queues: Iterable[GroupQueue]) -> list[tuple[str, list[GroupQueue]]]:
    found: dict[str, list[GroupQueue]] = {}
    for one in queues:
        found.setdefault(one.topic, []).append(one)
    return sorted(found.items())


# The order of likelihood within a severity.
REASONS: tuple[Rule, ...] = (
    unknown, offline, disabled, no_topic, forbidden, differing, subscribes_nothing, unsubscribed, suspended, failing,
    stuck, unlocked, unpulled, ahead, unread, unowned, shared, filtered, unreached, dead_letters, slow, throttled,
    hot, idle, one_broker, unconnected, expired, fresh, broadcast, versions,
)  # fmt: skip
UNEXPLAINED: tuple[Rule, ...] = (standing, undecided)
"""Findings where nothing critical explains a lag."""


def diagnose(evidence: GroupEvidence) -> list[Finding]:
    """All findings, most severe and most likely first, or one finding that the group is healthy. This is the only
    function that judges a group: commands and pages render its findings."""
    found = [one for rule in REASONS for one in rule(evidence)]
    if not any(one.severity is Severity.CRITICAL for one in found):
        found += [one for rule in UNEXPLAINED for one in rule(evidence)]
    return worst_first(found) or [_well(evidence)]


def _well(e: GroupEvidence) -> Finding:
    evidence: dict[str, EvidenceValue] = {
        "members": len(e.members),
        "lagMessages": e.progress.lag_messages,
        "consumeTps": e.progress.consume_tps,
        "produceTps": e.progress.produce_tps,
    }
    members = "1 member is online" if len(e.members) == 1 else f"{len(e.members)} members are online"
    if not e.lag:
        sentence = f"{e.group} has consumed everything there is: {members}"
    else:
        sentence = f"{e.group} is {e.lag} messages behind and works on them: {members}, and nothing speaks against it"
    return well(e, "well", sentence, f"orbitmq group progress {e.group} --watch 2", **evidence)
