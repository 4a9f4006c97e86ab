"""Whether a group processes its messages: rules of `diagnosis` about progress and listeners. Pure: no I/O.

A delivered message is not yet acknowledged, and no request reports how long a message has been in flight. These rules
combine what is known: since when the next message waits, when a listener last finished one, and whether offsets moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto

from orbitmq.admin.clients import ConsumerReport, RunningQueue
from orbitmq.admin.group_evidence import MINUTE_MS, GroupEvidence, critical, finding, warning
from orbitmq.admin.progress import GroupQueue, label
from orbitmq.admin.verdict import Finding, Severity
from orbitmq.message.flags import PERM_READ
from orbitmq.message.topics import retry_topic
from orbitmq.wire.bodies import LAST_ERROR, LAST_ERROR_AT, SUSPENDED

HOT_LAG = 100
"""Messages behind from which on rates and shares mean something."""
GROWS_MS = 300_000
"""Dead letters grow while the newest one is younger than this."""
BUSY_SHARE = 0.9
"""A cache this full makes a consumer wait before it pulls again."""
CACHED_MAX, CACHED_MIB_MAX = 1000, 100
"""Default limits of what a consumer caches per queue: messages, and mebibytes."""
STACK_LENGTH = 2000
"""Characters of a stack that are shown as evidence; `orbitmq client stack` has it whole."""


class Movement(Enum):
    """Whether the messages that wait in a queue are worked off."""

    MOVES = auto()
    STANDS = auto()
    """Nothing has been finished for a minute, and messages wait for as long."""
    UNKNOWN = auto()
    """There are too few observations, or no node reports it."""


def movement(e: GroupEvidence, one: GroupQueue) -> Movement:
    mark = e.pace.marks.get(label(one))
    if mark is not None and mark.waits and e.now_ms - mark.since_ms >= MINUTE_MS:
        return Movement.STANDS
    if mark is not None and _is_recent(e, mark.moved_ms):
        return Movement.MOVES
    held = [(report, queue) for report, queue in e.held() if label(queue) == label(one)]
    if any(_is_recent(e, queue.last_consume_at_ms) and _finishes(report, one.topic) for report, queue in held):
        return Movement.MOVES
    waited_ms = _waited_ms(one)
    if waited_ms is not None and waited_ms < MINUTE_MS:
        return Movement.MOVES if _works(e) else Movement.UNKNOWN
    idle = all(not _is_recent(e, queue.last_consume_at_ms) and e.grown(report, MINUTE_MS) for report, queue in held)
    return Movement.STANDS if held and idle else Movement.UNKNOWN


def _is_recent(e: GroupEvidence, at_ms: int | None) -> bool:
    return at_ms is not None and e.now_ms - at_ms < MINUTE_MS


def _finishes(report: ConsumerReport, topic: str) -> bool:
    """Whether a listener was done with a message in the last minute, with or without success."""
    return any(one.consume_ok_tps + one.consume_failed_tps > 0 for one in report.topics if one.topic == topic)


def _works(e: GroupEvidence) -> bool:
    """Whether the group has made progress in the last minute, in any queue."""
    moved = any(_is_recent(e, mark.moved_ms) for mark in e.pace.marks.values())
    return moved or any(_finishes(report, one.topic) for report in e.reports for one in report.topics)


def _waited_ms(one: GroupQueue) -> int | None:
    """For how long the next message has been stored."""
    return one.latency_ms if one.delay_ms is None else one.delay_ms


def _waiting(e: GroupEvidence) -> list[GroupQueue]:
    return [one for one in e.own if one.lag_messages]


# ------------------------------------------------------------------------------------------------------ the listener


def stuck(e: GroupEvidence) -> Iterator[Finding]:
    """The listener has messages and finishes none."""
    for report in e.reports:
        queues = [queue for queue in report.queues if not queue.dropped and _is_stuck(e, report, queue)]
        if queues:
            cached = sum(queue.cached_messages for queue in queues)
            yield critical(
                e,
                "stuck-listener",
                f"the listener of {report.client_id} has {cached} messages and has finished none for "
                f"{MINUTE_MS // 1000} s: its stack traces show where it waits",
                f"orbitmq client stack {e.group} --client {report.client_id}",
                clientId=report.client_id,
                queues=[label(queue) for queue in queues],
                cachedMessages=cached,
                threads=report.threads,
                stack=excerpt(report.stack),
            )


def _is_stuck(e: GroupEvidence, report: ConsumerReport, queue: RunningQueue) -> bool:
    """A message that has just arrived in a queue that was empty for long is not stuck."""
    if not queue.cached_messages or _is_recent(e, queue.last_consume_at_ms) or not e.grown(report, MINUTE_MS):
        return False
    of_group = next((one for one in e.progress.queues if label(one) == label(queue)), None)
    moves = Movement.UNKNOWN if of_group is None else movement(e, of_group)
    waited_ms = None if of_group is None else _waited_ms(of_group)
    return moves is not Movement.MOVES and (moves is Movement.STANDS or waited_ms is None or waited_ms >= MINUTE_MS)


def excerpt(stack: str | None) -> str | None:
    """The threads that run listeners, as far as they fit; else the beginning."""
    if not stack:
        return None
    blocks = [block for block in stack.split("\n\n") if "ConsumeMessageThread" in block or "listen" in block.lower()]
    return "\n\n".join(blocks or [stack])[:STACK_LENGTH]


def unlocked(e: GroupEvidence) -> Iterator[Finding]:
    for report, queue in e.held():
        if report.orderly and not queue.locked and e.grown(report):
            yield critical(
                e,
                "not-locked",
                f"{report.client_id} consumes in order and does not hold the lock of {label(queue)}: another member, "
                "or one that died less than a minute ago, still has it",
                f"orbitmq group connections {e.group}",
                lastLockAtMs=queue.last_lock_at_ms,
                unlockAttempts=queue.unlock_attempts,
                cachedMessages=queue.cached_messages,
            )


def suspended(e: GroupEvidence) -> Iterator[Finding]:
    """Fields that orbitmq's clients report and RocketMQ's do not."""
    for report in e.reports:
        paused = report.properties.get(SUSPENDED)
        if paused is None:
            continue
        places = {label(queue) for queue in report.queues} if paused == "true" else set(paused.split())
        queues = [one for one in _waiting(e) if label(one) in places]
        lag = sum(one.lag_messages or 0 for one in queues)
        make = critical if any(has_waited(e, one) for one in queues) else warning
        yield make(
            e,
            "suspended",
            f"{report.client_id} is suspended by its application"
            + ("" if paused == "true" else f" in {len(places)} queues")
            + f" and consumes nothing until it is resumed: {lag} messages wait for it",
            f"orbitmq client show {e.group} --client {report.client_id}",
            clientId=report.client_id,
            lagMessages=lag,
            queues=[label(one) for one in queues],
        )


def has_waited(e: GroupEvidence, one: GroupQueue) -> bool:
    """For a minute, without anything being finished."""
    moves, waited_ms = movement(e, one), _waited_ms(one)
    return moves is Movement.STANDS or (moves is Movement.UNKNOWN and waited_ms is not None and waited_ms >= MINUTE_MS)


def unpulled(e: GroupEvidence) -> Iterator[Finding]:
    """A member has the queue and nothing of it, though messages wait."""
    given = all(one.consume_enable for one in e.rules) and all(perm & PERM_READ for perm in e.broker_perms.values())
    behind = {label(one): one for one in _waiting(e) if movement(e, one) is Movement.STANDS}
    for report, queue in e.held():
        one = behind.get(label(queue))
        if one is None or queue.cached_messages or not given or SUSPENDED in report.properties:
            continue
        yield critical(
            e,
            "not-pulling",
            f"{report.client_id} has {label(queue)} and has pulled nothing from it for {MINUTE_MS // 1000} s, though "
            f"{one.lag_messages} messages wait: it is suspended (RocketMQ's clients do not report that), or pulling "
            "has died",
            f"orbitmq client stack {e.group} --client {report.client_id}",
            clientId=report.client_id,
            lastPullAtMs=queue.last_pull_at_ms,
            lagMessages=one.lag_messages,
        )


def failing(e: GroupEvidence) -> Iterator[Finding]:
    """The listener gives messages back."""
    rates = [(report, topic) for report in e.reports for topic in report.topics]
    failed = sum(topic.failed_last_hour for _, topic in rates)
    tps = round(sum(topic.consume_failed_tps for _, topic in rates), 3)
    waiting, dead = e.progress.retry_lag_messages or 0, e.progress.dead_letters or 0
    if not (tps or failed or waiting):
        return
    fails = {one.client_id: one for one, topic in rates if topic.consume_failed_tps or topic.failed_last_hour}
    error, at_ms = _last_error(fails.values())
    every = bool(tps) and not any(topic.consume_ok_tps for _, topic in rates)
    what = (
        f"the listener of {e.group} failed with every message of the last minute"
        if every
        else f"the listener of {e.group} fails"
    )
    yield (critical if every else warning)(
        e,
        "listener-fails",
        f"{what}: {failed} deliveries in the last hour, {waiting} messages wait to be tried again, {dead} were given up"
        + _why(fails.values(), error),
        f"orbitmq msg query {retry_topic(e.group)}",
        failedTps=tps,
        failedLastHour=failed,
        retryLagMessages=waiting,
        deadLetters=dead,
        lastError=error,
        lastErrorAtMs=at_ms,
        clients=sorted(fails),
    )


def _last_error(reports: Iterable[ConsumerReport]) -> tuple[str | None, int | None]:
    failing = [one.properties for one in reports if LAST_ERROR in one.properties]
    newest = max(failing, key=_error_at, default=None)
    return (None, None) if newest is None else (newest[LAST_ERROR], _error_at(newest) or None)


def _error_at(properties: Mapping[str, str]) -> int:
    text = properties.get(LAST_ERROR_AT, "")
    return int(text) if text.isdecimal() else 0


def _why(failing: Iterable[ConsumerReport], error: str | None) -> str:
    if error is not None:
        return f"; the last error is {error}"
    return "; its clients do not report why (RocketMQ's never do): see their logs" if any(True for _ in failing) else ""


def dead_letters(e: GroupEvidence) -> Iterator[Finding]:
    count, at_ms = e.progress.dead_letters, e.progress.newest_dead_letter_at_ms
    if not count:
        return
    grows = at_ms is not None and e.now_ms - at_ms < GROWS_MS
    topics = [topic for report in e.reports for topic in report.topics]
    well = sum(topic.consume_ok_tps for topic in topics) > sum(topic.consume_failed_tps for topic in topics)
    make, what = (critical, ", and they grow") if grows and not well else (warning, "")
    yield make(
        e,
        "dead-letters",
        f"{count} messages became dead letters after too many retries{what}; they are not consumed",
        f"orbitmq msg query %DLQ%{e.group}",
        deadLetters=count,
        newestAtMs=at_ms,
    )


def throttled(e: GroupEvidence) -> Iterator[Finding]:
    """A full cache is normal while a group catches up; it is reported if the group does not."""
    consumed, produced = e.progress.consume_tps, e.progress.produce_tps
    if consumed and produced is not None and consumed > produced:
        return
    for report, queue in e.held():
        count = _limit(report.properties, "pullThresholdForQueue", CACHED_MAX)
        size = _limit(report.properties, "pullThresholdSizeForQueue", CACHED_MIB_MAX)
        full = queue.cached_messages >= BUSY_SHARE * count or queue.cached_size_mib >= BUSY_SHARE * size
        if full and not _is_stuck(e, report, queue):
            yield warning(
                e,
                "flow-control",
                f"{report.client_id} has its cache of {label(queue)} full and does not pull until the listener has "
                "processed some of it: messages arrive faster than the listener processes them",
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


def slow(e: GroupEvidence) -> Iterator[Finding]:
    consumed, produced = e.progress.consume_tps, e.progress.produce_tps
    if e.lag >= HOT_LAG and consumed and produced and produced >= consumed:
        yield warning(
            e,
            "too-slow",
            f"{e.group} consumes {consumed:g} messages/s and {produced:g} are produced: its lag grows without bound",
            f"orbitmq client show {e.group}",
            consumeTps=consumed,
            produceTps=produced,
            lagMessages=e.lag,
        )


# ------------------------------------------------------------------------------------------------- nothing explains it


def standing(e: GroupEvidence) -> Iterator[Finding]:
    """For a lag that nothing else explains."""
    queues = [one for one in _waiting(e) if movement(e, one) is Movement.STANDS]
    if queues:
        lag = sum(one.lag_messages or 0 for one in queues)
        yield critical(
            e,
            "no-progress",
            f"{e.group} has finished nothing in {len(queues)} queues for {MINUTE_MS // 1000} s, and {lag} messages "
            "wait there",
            f"orbitmq client stack {e.group}",
            lagMessages=lag,
            queues=[label(one) for one in queues],
        )


def undecided(e: GroupEvidence) -> Iterator[Finding]:
    """What one look cannot know is not well."""
    queues = [one for one in _waiting(e) if movement(e, one) is Movement.UNKNOWN]
    lag = e.progress.lag_messages
    if queues or (lag is None and e.progress.model != "BROADCASTING" and not e.failures):
        why = "how many messages wait is not known"
        if queues:
            waits = sum(one.lag_messages or 0 for one in queues)
            why = f"{waits} messages wait, and nothing shows yet whether its {len(e.members)} members finish any"
        yield finding(
            Severity.UNKNOWN,
            e,
            "too-early",
            f"it is too early to judge {e.group}: {why}",
            f"orbitmq group why {e.group} --watch 10",
            lagMessages=lag,
            queues=[label(one) for one in queues],
        )
