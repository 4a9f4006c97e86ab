"""The history of one message, derived from records in stores: one sentence, a timeline, and its state in each group.
Pure.

A message is several records: delayed in the schedule topic, prepared in the half topic, itself in its topic, copied
into a retry topic for each attempt of a group and finally into its dead-letter topic. All carry the same unique id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from msgspec import Struct

from orbitmq.admin.bodies import StoredMessage, shown
from orbitmq.admin.envelope import rfc3339
from orbitmq.admin.traces import Trace, Traced
from orbitmq.admin.tracks import Track, TrackKind
from orbitmq.message.model import MessageExt
from orbitmq.message.pop import retry_group
from orbitmq.message.properties import DELAY, REAL_TOPIC
from orbitmq.message.topics import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC


class MessageState(StrEnum):
    """The state of a message, in one word."""

    STORED = "stored"
    """Stored in its topic: `groups` report its state in each of them."""
    DELAYED = "delayed"
    PENDING = "pending"
    """A half message whose producer has not decided."""
    COMMITTED = "committed"
    """Decided for, and not seen in its topic (any more)."""
    ROLLED_BACK = "rolledBack"
    DECIDED = "decided"
    """Its producer has decided, but the node that knows the decision has not responded, or is gone."""
    GIVEN_UP = "givenUp"
    """Its producer was checked as often as allowed."""
    COPIES = "copies"
    """Only copies are left, in retry topics and dead letters."""
    EXPIRED = "expired"
    UNKNOWN = "unknown"
    """It was sent, and not every node that may have it has responded."""
    NOT_FOUND = "notFound"


class GroupState(StrEnum):
    """The state of a message in one group."""

    CONSUMED = "consumed"
    FILTERED = "filtered"
    WAITING = "waiting"
    """The group has not come to it."""
    RETRYING = "retrying"
    DEAD = "dead"
    OFFLINE = "offline"
    """No member is online and the group has not consumed it yet."""
    IN_FLIGHT = "inFlight"
    """It was delivered, and is redelivered unless it is acknowledged in time."""
    PULLED = "pulled"
    """Its members pull by themselves: that the group's offset is further on proves nothing."""
    UNKNOWN = "unknown"


class HalfState(StrEnum):
    """What is known about the decision of a half message."""

    PENDING = "pending"
    DECIDED = "decided"
    """And not for it, if the message is not in its topic."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Delayed:
    """A record of the schedule topic. `due_ms` None: not known; `is_delivered` None: not known."""

    message: MessageExt
    due_ms: int | None
    is_delivered: bool | None


@dataclass(frozen=True, slots=True)
class HalfRecord:
    """The newest record of the half topic: each round of questions leaves a copy behind."""

    message: MessageExt
    state: HalfState
    checks: int = 0
    next_check_ms: int | None = None


@dataclass(slots=True)
class Facts:
    """The messages found under one name. Lists are oldest first."""

    asked: str
    now_ms: int
    topic: str | None = None
    unique_id: str | None = None
    copies: list[MessageExt] = field(default_factory=list)
    """In the topic itself: more than one when it was sent again."""
    delayed: list[Delayed] = field(default_factory=list)
    half: HalfRecord | None = None
    half_messages: list[MessageExt] = field(default_factory=list)
    given_up: list[MessageExt] = field(default_factory=list)
    retries: list[MessageExt] = field(default_factory=list)
    """In retry topics."""
    retries_passed: dict[str, bool | None] = field(default_factory=dict)
    """Group -> whether it has passed the last of its retries; None when that is not known."""
    dead: list[MessageExt] = field(default_factory=list)
    tracks: list[Track] = field(default_factory=list)
    trace: Trace | None = None
    expired: str | None = None
    """Why it must have expired, as a clause."""
    searched: list[str] = field(default_factory=list)
    is_partial: bool = False
    """Some nodes did not respond: a record that was not found may exist there."""
    is_topic_missing: bool = False
    """No broker has its topic (any more), so its absence from the topic proves nothing."""


class Event(Struct, frozen=True, rename="camel", kw_only=True):
    """One moment of the timeline."""

    at_ms: int | None
    """None: not known when."""
    kind: str
    """born, delayed, due, prepared, checked, committed, rolledBack, givenUp, stored, retry, dead, sent, consuming,
    consumed, failed, decided."""
    text: str
    source: str
    """store or trace: the clocks of clients may differ from those of brokers."""
    group: str | None = None
    place: str | None = None
    """topic/broker/queue@offset of the record."""
    offset_msg_id: str | None = None


class GroupHistory(Struct, frozen=True, rename="camel", kw_only=True):
    """The state of the message in one group."""

    group: str
    state: GroupState
    text: str
    """A clause: `waits for retry 2 of 16 …`."""
    retries: int
    """Number of retries so far."""
    next_level: int | None = None
    """Delay level of the retry it waits for."""
    next_at_ms: int | None = None
    consumer_offset: int | None = None
    clients: int | None = None


class MessageHistory(Struct, frozen=True, rename="camel", kw_only=True):
    """The state of one message and its history."""

    asked: str
    state: MessageState
    sentence: str
    topic: str | None
    msg_id: str | None
    message: StoredMessage | None
    """The record it is now, without its body."""
    timeline: list[Event]
    groups: list[GroupHistory]
    trace_note: str | None
    """Why there is nothing of a trace in the timeline."""
    searched: list[str]


def history_of(facts: Facts) -> MessageHistory:
    """The whole history."""
    groups = group_histories(facts)
    state = _state(facts)
    now = _now(facts, state)
    return MessageHistory(
        asked=facts.asked,
        state=state,
        sentence=_sentence(facts, state, groups),
        topic=facts.topic,
        msg_id=facts.unique_id or (now.msg_id if now else None),
        message=shown(now, None) if now else None,
        timeline=timeline(facts),
        groups=groups,
        trace_note=facts.trace.why if facts.trace else None,
        searched=facts.searched,
    )


# ---------------------------------------------------------------------------------------------------------- the state


def _state(facts: Facts) -> MessageState:
    if facts.copies:
        return MessageState.STORED
    if _waiting_delay(facts):
        return MessageState.DELAYED
    if facts.half and facts.half.state is not HalfState.DECIDED and not _is_abandoned(facts):
        return MessageState.PENDING
    if facts.retries or facts.dead or any(_group(facts, one.message) for one in facts.delayed):
        return MessageState.COPIES
    if facts.given_up:
        return MessageState.GIVEN_UP
    if facts.half:
        return _decided_state(facts)
    if facts.expired:
        return MessageState.EXPIRED
    if facts.delayed or _sending(facts):
        return MessageState.UNKNOWN if facts.is_partial else MessageState.EXPIRED
    return MessageState.NOT_FOUND


def _decided_state(facts: Facts) -> MessageState:
    """The decision about a half message that is in no topic: conclusive once every node has responded."""
    decision = _traced_decision(facts)
    if decision == "COMMIT_MESSAGE":
        return MessageState.COMMITTED
    if decision == "ROLLBACK_MESSAGE" or not (facts.is_partial or facts.is_topic_missing):
        return MessageState.ROLLED_BACK
    return MessageState.DECIDED


def _sending(facts: Facts) -> Traced | None:
    """What its producer wrote down of sending it."""
    return next((one for one in facts.trace.records if one.kind == "Pub"), None) if facts.trace else None


def _is_abandoned(facts: Facts) -> bool:
    """One whose checks were abandoned and then resumed is in the half topic again."""
    half_ms = facts.half.message.store_timestamp if facts.half else 0
    return any(one.store_timestamp >= half_ms for one in facts.given_up)


def _waiting_delay(facts: Facts) -> Delayed | None:
    own = [one for one in facts.delayed if not _group(facts, one.message)]
    return next((one for one in reversed(own) if one.is_delivered is not True), None)


def _traced_decision(facts: Facts) -> str | None:
    records = facts.trace.records if facts.trace else []
    return next((one.state for one in reversed(records) if one.kind == "EndTransaction"), None)


def _now(facts: Facts, state: MessageState) -> MessageExt | None:
    """The record that the message is now."""
    waiting = _waiting_delay(facts)
    choices: dict[MessageState, MessageExt | None] = {
        MessageState.STORED: facts.copies[-1] if facts.copies else None,
        MessageState.DELAYED: waiting.message if waiting else None,
        MessageState.GIVEN_UP: facts.given_up[-1] if facts.given_up else None,
        MessageState.COPIES: _newest(
            [*facts.retries, *facts.dead, *(one.message for one in facts.delayed if _group(facts, one.message))]
        ),
    }
    return choices.get(state, facts.half.message if facts.half else None)


def _newest(messages: Sequence[MessageExt]) -> MessageExt | None:
    return max(messages, key=lambda one: one.store_timestamp, default=None)


# ------------------------------------------------------------------------------------------------------------- groups


def _group(facts: Facts, message: MessageExt) -> str | None:
    """The group whose retry or dead letter a record is."""
    if message.topic.startswith(RETRY_PREFIX):
        return retry_group(message, facts.topic)
    topic = message.properties.get(REAL_TOPIC, "") if message.topic in (SCHEDULE_TOPIC, TIMER_TOPIC) else message.topic
    prefix = next((one for one in (RETRY_PREFIX, DLQ_PREFIX) if topic.startswith(one)), None)
    return topic.removeprefix(prefix) if prefix else None


def group_histories(facts: Facts) -> list[GroupHistory]:
    """The state of the message in each group, in the order of their names."""
    tracks = {track.group: track for track in facts.tracks}
    records = [*facts.retries, *facts.dead, *(one.message for one in facts.delayed)]
    names = {*tracks, *(name for one in records if (name := _group(facts, one)))}
    return [_group_history(facts, name, tracks.get(name)) for name in sorted(names)]


def _group_history(facts: Facts, group: str, track: Track | None) -> GroupHistory:
    retries = [one for one in facts.retries if _group(facts, one) == group]
    dead = _newest([one for one in facts.dead if _group(facts, one) == group])
    delayed = [one for one in facts.delayed if _group(facts, one.message) == group]
    waiting = next((one for one in reversed(delayed) if one.is_delivered is not True), None)
    tries = [*retries, *(one.message for one in delayed)]
    times = max((one.reconsume_times for one in tries), default=0)
    state, text = _track_state(track)
    level = next_ms = None
    if dead is not None and dead.store_timestamp >= max((one.store_timestamp for one in tries), default=0):
        times = max(times, dead.reconsume_times - 1)
        state, text = GroupState.DEAD, _dead_text(group, times, dead)
    elif waiting is not None:
        level, next_ms = _number(waiting.message.properties.get(DELAY)), waiting.due_ms
        when = f"level {level or 'unknown'}, {_due(next_ms, facts.now_ms)}"
        text = f"{group} has failed to consume it {_times(times, 'time')} and waits for retry {times} ({when})"
        state = GroupState.RETRYING
    elif (newest := _newest(tries)) is not None:
        # A record that was delivered just now may not be found in its topic yet.
        passed = facts.retries_passed.get(group) if newest in retries else None
        state, text = _delivered(group, newest.reconsume_times, passed=passed)
    return GroupHistory(
        group=group,
        state=state,
        text=text,
        retries=times,
        next_level=level,
        next_at_ms=next_ms,
        consumer_offset=track.consumer_offset if track else None,
        clients=track.clients if track else None,
    )


def _dead_text(group: str, retries: int, dead: MessageExt) -> str:
    attempts = _times(retries + 1, "attempt")
    return f"{group} gave it up after {attempts}: a dead letter in {dead.topic} since {_at(dead.store_timestamp)}"


def _delivered(group: str, retry: int, *, passed: bool | None) -> tuple[GroupState, str]:
    """How it stands when the last retry was delivered; one that an administrator sent again begins with 0."""
    if passed:
        return GroupState.CONSUMED, f"consumed by {group} " + (f"with retry {retry}" if retry else "when it came again")
    known = "waits to be consumed" if passed is False else "was delivered"
    return GroupState.RETRYING, (f"retry {retry} of {group} " if retry else f"what was retried for {group} ") + known


def _before(ahead: int | None) -> str:
    if ahead == 1:
        return " (1 message of the queue before it)"
    return f" ({ahead} messages of the queue before it)" if ahead else ""


def _track_state(track: Track | None) -> tuple[GroupState, str]:
    if track is None:
        return GroupState.UNKNOWN, "nothing more is known"
    group, ahead = track.group, track.lag_messages
    not_yet = f"not yet consumed by {group}{_before(ahead)}"
    match track.track:
        case TrackKind.CONSUMED:
            return GroupState.CONSUMED, f"consumed by {group}"
        case TrackKind.CONSUMED_BUT_FILTERED:
            return GroupState.FILTERED, f"left out by {group}, which subscribes {track.expression}"
        case TrackKind.NOT_CONSUME_YET:
            if track.filtered:
                return GroupState.FILTERED, f"to be left out by {group}, which subscribes {track.expression}"
            return GroupState.WAITING, not_yet + (f": {track.note}" if track.note else "")
        case TrackKind.NOT_ONLINE:
            if track.passed:
                return GroupState.CONSUMED, f"passed by {group}, which is offline now"
            return GroupState.OFFLINE, f"{not_yet}, which is offline"
        case TrackKind.IN_FLIGHT:
            again = "" if track.redelivered_at_ms is None else f", to be redelivered at {_at(track.redelivered_at_ms)}"
            return GroupState.IN_FLIGHT, f"delivered to {group}, not acknowledged yet{again}"
        case TrackKind.PULL:
            passed = "has passed it" if track.passed else "has not passed it"
            return GroupState.PULLED, f"{group} pulls by itself, and its offset {passed}"
        case TrackKind.UNKNOWN:
            return GroupState.UNKNOWN, f"the progress of {group} is unknown ({track.note})"


# ----------------------------------------------------------------------------------------------------------- sentence


def _sentence(facts: Facts, state: MessageState, groups: Sequence[GroupHistory]) -> str:
    sentence = {
        MessageState.STORED: _stored,
        MessageState.DELAYED: _delayed,
        MessageState.PENDING: _pending,
        MessageState.COMMITTED: _committed,
        MessageState.ROLLED_BACK: lambda facts: f"It was rolled back, so {facts.topic} never got it",
        MessageState.DECIDED: _decided,
        MessageState.GIVEN_UP: _abandoned,
        MessageState.COPIES: _copies,
        MessageState.EXPIRED: _expired,
        MessageState.UNKNOWN: _unknown,
        MessageState.NOT_FOUND: _not_found,
    }[state](facts)
    clauses = [one.text for one in groups]
    if state is MessageState.STORED and not groups:
        clauses.append(
            "no group that is known consumes its topic" if facts.is_partial else "no group consumes its topic"
        )
    if facts.is_partial and state is not MessageState.NOT_FOUND:  # which has a sentence of its own
        clauses.append("some nodes did not respond, so this may be incomplete")
    return "; ".join([sentence, *clauses]) + "."


def _stored(facts: Facts) -> str:
    found = facts.copies[-1]
    times = f", sent {_times(len(facts.copies), 'time')}" if len(facts.copies) > 1 else ""
    return f"It is in {_where(found)} since {_at(found.store_timestamp)}{times}"


def _delayed(facts: Facts) -> str:
    one = _waiting_delay(facts)
    assert one is not None, "the state says so"
    due = _due(one.due_ms, facts.now_ms)
    if one.message.topic == TIMER_TOPIC:
        return f"It waits for the time its sender named ({due}) and is delivered to {facts.topic} then"
    level = one.message.properties.get(DELAY, "unknown")
    return f"It waits for its delay (level {level}, {due}) and is delivered to {facts.topic} then"


def _pending(facts: Facts) -> str:
    half = facts.half
    assert half is not None, "the state says so"
    if half.state is HalfState.UNKNOWN:
        return f"It is a half message of {facts.topic}, and whether its producer has decided is not known"
    checks = f"checked {_times(half.checks, 'time')}" if half.checks else "not checked yet"
    following = f", next at {_at(half.next_check_ms)}" if half.next_check_ms else ""
    since = _at(half.message.born_timestamp)
    return f"It is a half message of {facts.topic} whose producer has not decided since {since} ({checks}{following})"


def _committed(facts: Facts) -> str:
    found = "is not known to have it" if facts.is_partial else "does not have it any more"
    return f"It was committed, and {facts.topic} {found}"


def _decided(facts: Facts) -> str:
    reason = f": {facts.topic} is not there (any more)" if facts.is_topic_missing else ""
    return f"It is a half message of {facts.topic} whose producer has decided, and whether for it is not known{reason}"


def _abandoned(facts: Facts) -> str:
    found = facts.given_up[-1]
    return (
        f"It is a half message of {facts.topic} that was given up at {_at(found.store_timestamp)}: "
        f"its producer never decided (orbitmq msg resume {found.offset_msg_id} restarts its checks)"
    )


def _copies(facts: Facts) -> str:
    found = "is not known to have it" if facts.is_partial else "does not have it any more"
    return f"{facts.topic} {found}, and copies are left"


def _expired(facts: Facts) -> str:
    reason = facts.expired or "its topic does not have it any more"
    sent = _sending(facts)
    if sent is None:
        return f"It has expired: {reason}"
    return f"{sent.group} sent it to {sent.topic} at {_at(sent.at_ms)}, and it has expired: {reason}"


def _unknown(facts: Facts) -> str:
    sent = _sending(facts)
    if sent is None:
        return f"It was due in {facts.topic} after its delay, and is not found there"
    return f"{sent.group} sent it to {sent.topic} at {_at(sent.at_ms)}, and it is not found"


def _not_found(facts: Facts) -> str:
    searched = ", ".join(facts.searched) or "nothing"
    doubt = " (some nodes did not respond)" if facts.is_partial else ""
    return f"There is no message {facts.asked}{doubt}: searched {searched}"


# ----------------------------------------------------------------------------------------------------------- timeline


def timeline(facts: Facts) -> list[Event]:
    """All known events, in order; those without a time are at the end."""
    events = [*_born(facts), *_store_events(facts), *_trace_events(facts)]
    return sorted(events, key=lambda one: (one.at_ms is None, one.at_ms or 0))


def _born(facts: Facts) -> list[Event]:
    records = [
        *facts.half_messages,
        *(one.message for one in facts.delayed),
        *facts.copies,
        *facts.retries,
        *facts.dead,
    ]
    if not records:
        return []
    first = min(records, key=lambda one: one.born_timestamp)
    text = f"made by a producer at {first.born_host}"
    return [Event(at_ms=first.born_timestamp, kind="born", text=text, source="store")]


def _store_events(facts: Facts) -> Iterable[Event]:
    for half in facts.half_messages[:1]:
        yield _stored_event(facts, half, "prepared", f"prepared as a half message {_where(half)}")
    for half in facts.half_messages[1:]:
        yield _stored_event(facts, half, "checked", f"its producer was sent a transaction check {_where(half)}")
    if facts.half and _state(facts) is MessageState.ROLLED_BACK:
        yield Event(at_ms=None, kind="rolledBack", text="rolled back", source="store")
    for given_up in facts.given_up:
        yield _stored_event(facts, given_up, "givenUp", f"given up: its producer never decided {_where(given_up)}")
    for one in facts.delayed:
        yield from _delay_events(facts, one)
    for copy in facts.copies:
        if copy.prepared_transaction_offset:
            yield _stored_event(facts, copy, "committed", f"committed into {_where(copy)}")
        else:
            yield _stored_event(facts, copy, "stored", f"stored in {_where(copy)}")
    for retry in facts.retries:
        yield _stored_event(facts, retry, "retry", _retry_text(_group(facts, retry), retry))
    for dead in facts.dead:
        text = f"given up by {_group(facts, dead)}: dead letter in {_where(dead)}"
        yield _stored_event(facts, dead, "dead", text)


def _retry_text(group: str | None, retry: MessageExt) -> str:
    if not retry.reconsume_times:  # one that an administrator sent again
        return f"sent again to {group} in {_where(retry)}"
    return f"retry {retry.reconsume_times} was delivered to {group} in {_where(retry)}"


def _delay_events(facts: Facts, one: Delayed) -> Iterable[Event]:
    group = _group(facts, one.message)
    what = f"{group} sent it back, retry {one.message.reconsume_times}" if group else "delayed"
    if one.message.topic != TIMER_TOPIC:
        what = f"{what} (level {one.message.properties.get(DELAY, 'unknown')})"
    yield _stored_event(facts, one.message, "delayed", what)
    if one.is_delivered is not True:
        text = f"due: retry of {group}" if group else "due: delivered to its topic"
        yield Event(at_ms=one.due_ms, kind="due", text=text, source="store", group=group)


def _stored_event(facts: Facts, message: MessageExt, kind: str, text: str) -> Event:
    return Event(
        at_ms=message.store_timestamp,
        kind=kind,
        text=text,
        source="store",
        group=_group(facts, message),
        place=f"{message.topic}/{message.broker_name}/{message.queue_id}@{message.queue_offset}",
        offset_msg_id=message.offset_msg_id,
    )


def _trace_events(facts: Facts) -> Iterable[Event]:
    begun = {one.request_id: one for one in (facts.trace.records if facts.trace else []) if one.kind == "SubBefore"}
    for one in facts.trace.records if facts.trace else []:
        yield _trace_event(one, begun.get(one.request_id))


def _trace_event(one: Traced, begun: Traced | None) -> Event:
    group, at_ms = one.group, one.at_ms
    match one.kind:
        case "Pub":
            result = "" if one.success else ", not confirmed as safe"
            kind, text = "sent", f"{group} at {one.client_host} sent it to {one.store_host} in {one.cost_ms} ms{result}"
        case "SubBefore":
            kind, text = (
                "consuming",
                f"{group} at {one.client_host} began to consume it (attempt {(one.retries or 0) + 1})",
            )
        case "SubAfter":
            group = group or (begun.group if begun else None)
            at_ms = at_ms or (begun.at_ms + (one.cost_ms or 0) if begun and begun.at_ms else None)
            kind, result = ("consumed", "was done with") if one.success else ("failed", "failed to consume")
            text = f"{group or 'a group'} at {one.client_host} {result} it after {one.cost_ms} ms"
        case _:
            asked = ", after a transaction check" if one.from_check else ""
            kind, text = "decided", f"{group} at {one.client_host} decided {one.state}{asked}"
    return Event(at_ms=at_ms, kind=kind, text=text, source="trace", group=group, offset_msg_id=one.offset_msg_id)


# -------------------------------------------------------------------------------------------------------------- words


def _where(message: MessageExt) -> str:
    return f"{message.topic} ({message.broker_name}, queue {message.queue_id}, offset {message.queue_offset})"


def _at(at_ms: int | None) -> str:
    return (rfc3339(at_ms) if at_ms is not None else None) or "an unknown time"


def _due(due_ms: int | None, now_ms: int) -> str:
    if due_ms is None:
        return "due at an unknown time"
    return f"due at {_at(due_ms)}" if due_ms > now_ms else f"overdue since {_at(due_ms)}"


def _times(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
