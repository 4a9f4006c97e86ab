"""Each kind of story: its sentence, its state, and its timeline, from facts of stores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orbitmq.admin.message_history import (
    Delayed,
    Facts,
    GroupState,
    HalfRecord,
    HalfState,
    MessageHistory,
    MessageState,
    history_of,
)
from orbitmq.admin.traces import NoTrace, Trace, Traced
from orbitmq.admin.tracks import Track, TrackKind
from orbitmq.message.model import MessageExt

T0 = 1_700_000_000_000  # 2023-11-14T22:13:20Z
AT = "2023-11-14T22:13:20.000Z"
ID = "7F000001126718B4AAC2000000010000"
HALF_TOPIC, SCHEDULE = "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"


def message(topic: str = "Orders", at_ms: int = T0, **fields: Any) -> MessageExt:
    properties = {"UNIQ_KEY": ID, **fields.pop("properties", {})}
    known: dict[str, Any] = {
        "broker_name": "broker-a", "queue_id": 3, "queue_offset": 17, "born_timestamp": T0 - 10,
        "born_host": "10.0.0.9:5000", "store_timestamp": at_ms, "msg_id": ID, "offset_msg_id": "0A",
        "commit_log_offset": at_ms - T0,
    }  # fmt: skip
    return MessageExt(topic, b"x", 0, properties, **(known | fields))


def track(group: str, kind: TrackKind, **fields: Any) -> Track:
    known: dict[str, Any] = {
        "passed": None, "consumer_offset": None, "lag_messages": None, "clients": 1, "expression": "*",
        "filtered": False,
    }  # fmt: skip
    return Track(group=group, track=kind, **(known | fields))


def told(**facts: Any) -> MessageHistory:
    return history_of(Facts(**({"asked": ID, "now_ms": T0 + 60_000, "topic": "Orders", "unique_id": ID} | facts)))


STORED = f"It is in Orders (broker-a, queue 3, offset 17) since {AT}"


def kinds(found: MessageHistory) -> list[str]:
    return [event.kind for event in found.timeline]


def test_a_plain_message_that_nobody_consumes() -> None:
    found = told(copies=[message()])
    assert (found.state, found.sentence) == (MessageState.STORED, f"{STORED}; no group consumes its topic.")
    assert kinds(found) == ["born", "stored"]
    assert [event.text for event in found.timeline] == [
        "made by a producer at 10.0.0.9:5000",
        "stored in Orders (broker-a, queue 3, offset 17)",
    ]
    assert found.timeline[1].place == "Orders/broker-a/3@17"
    assert found.message
    assert found.message.offset_msg_id == "0A"


@pytest.mark.parametrize(
    ("given", "state", "clause"),
    [
        (track("g", TrackKind.CONSUMED), GroupState.CONSUMED, "consumed by g"),
        (
            track("g", TrackKind.CONSUMED_BUT_FILTERED, expression="blue", filtered=True),
            GroupState.FILTERED,
            "left out by g, which subscribes blue",
        ),
        (
            track("g", TrackKind.NOT_CONSUME_YET, lag_messages=3),
            GroupState.WAITING,
            "not yet consumed by g (3 messages of the queue before it)",
        ),
        (track("g", TrackKind.NOT_CONSUME_YET, lag_messages=0), GroupState.WAITING, "not yet consumed by g"),
        (
            track("g", TrackKind.NOT_CONSUME_YET, expression="blue", filtered=True),
            GroupState.FILTERED,
            "to be left out by g, which subscribes blue",
        ),
        (
            track("g", TrackKind.NOT_ONLINE, passed=False, lag_messages=1),
            GroupState.OFFLINE,
            "not yet consumed by g (1 message of the queue before it), which is offline",
        ),
        (track("g", TrackKind.NOT_ONLINE, passed=True), GroupState.CONSUMED, "passed by g, which is offline now"),
        (track("g", TrackKind.PULL, passed=True), GroupState.PULLED, "g pulls by itself, and its offset has passed it"),
        (
            track("g", TrackKind.UNKNOWN, note="no answer"),
            GroupState.UNKNOWN,
            "the progress of g is unknown (no answer)",
        ),
    ],
)
def test_how_it_stands_in_a_group(given: Track, state: GroupState, clause: str) -> None:
    found = told(copies=[message()], tracks=[given])
    assert (found.groups[0].state, found.groups[0].text) == (state, clause)
    assert found.sentence == f"{STORED}; {clause}."


def test_one_sentence_has_all_groups_and_says_how_often_it_was_sent() -> None:
    tracks = [track("b", TrackKind.NOT_CONSUME_YET), track("a", TrackKind.CONSUMED)]
    found = told(copies=[message(at_ms=T0 - 5), message()], tracks=tracks)
    assert found.sentence == f"{STORED}, sent 2 times; consumed by a; not yet consumed by b."


def waiting_retry(times: int, at_ms: int, *, is_delivered: bool = False) -> Delayed:
    late = message(
        SCHEDULE, at_ms, reconsume_times=times, properties={"REAL_TOPIC": "%RETRY%g", "DELAY": str(2 + times)}
    )
    return Delayed(late, T0 + 100_000, is_delivered)


def retry(times: int, at_ms: int) -> MessageExt:
    return message("%RETRY%g", at_ms, reconsume_times=times, properties={"RETRY_TOPIC": "Orders"})


RETRIED: dict[str, Any] = {
    "copies": [message()],
    "tracks": [track("g", TrackKind.CONSUMED)],
    "delayed": [waiting_retry(1, T0 + 10, is_delivered=True), waiting_retry(2, T0 + 20)],
    "retries": [retry(1, T0 + 15)],
}


def test_a_message_that_waits_for_a_retry() -> None:
    found = told(**RETRIED)
    (group,) = found.groups
    assert (group.state, group.retries, group.next_level, group.next_at_ms) == (GroupState.RETRYING, 2, 4, T0 + 100_000)
    assert found.sentence == (
        f"{STORED}; g has failed to consume it 2 times and waits for retry 2 "
        "(level 4, due at 2023-11-14T22:15:00.000Z)."
    )
    assert kinds(found) == ["born", "stored", "delayed", "retry", "delayed", "due"]
    assert found.timeline[2].text == "g sent it back, retry 1 (level 3)"
    assert {event.group for event in found.timeline[2:]} == {"g"}


@pytest.mark.parametrize(
    ("passed", "state", "clause"),
    [
        (True, GroupState.CONSUMED, "consumed by g with retry 1"),
        (False, GroupState.RETRYING, "retry 1 of g waits to be consumed"),
        (None, GroupState.RETRYING, "retry 1 of g was delivered"),
    ],
)
def test_a_retry_that_was_delivered(passed: bool | None, state: GroupState, clause: str) -> None:
    found = told(
        **RETRIED | {"delayed": [waiting_retry(1, T0 + 10, is_delivered=True)], "retries_passed": {"g": passed}}
    )
    assert (found.groups[0].state, found.groups[0].text) == (state, clause)


def test_a_retry_whose_record_is_not_found_yet_is_not_taken_for_consumed() -> None:
    both = [waiting_retry(1, T0 + 10, is_delivered=True), waiting_retry(2, T0 + 20, is_delivered=True)]
    found = told(**RETRIED | {"delayed": both, "retries_passed": {"g": True}})
    assert (found.groups[0].state, found.groups[0].text) == (GroupState.RETRYING, "retry 2 of g was delivered")


def test_a_dead_letter() -> None:
    dead = message("%DLQ%g", T0 + 30, reconsume_times=3)
    found = told(**RETRIED | {"dead": [dead]})
    (group,) = found.groups
    assert (group.state, group.retries, group.next_at_ms) == (GroupState.DEAD, 2, None)
    assert group.text == "g gave it up after 3 attempts: a dead letter in %DLQ%g since 2023-11-14T22:13:20.030Z"
    assert kinds(found)[-2:] == ["dead", "due"]


def test_a_dead_letter_that_was_sent_again_is_as_far_as_its_newest_record() -> None:
    found = told(**RETRIED | {"dead": [message("%DLQ%g", T0 + 5, reconsume_times=1)]})
    assert found.groups[0].state is GroupState.RETRYING


def test_a_dead_letter_that_an_administrator_had_come_again() -> None:
    facts = RETRIED | {"dead": [message("%DLQ%g", T0 + 30, reconsume_times=3)], "delayed": []}
    facts["retries"] = [retry(1, T0 + 15), retry(0, T0 + 90)]
    found = told(**facts | {"retries_passed": {"g": True}})
    assert (found.groups[0].state, found.groups[0].text) == (GroupState.CONSUMED, "consumed by g when it came again")
    assert told(**facts).groups[0].text == "what was retried for g was delivered"


def delayed(due_ms: int | None, *, is_delivered: bool | None = False) -> Delayed:
    return Delayed(message(SCHEDULE, properties={"REAL_TOPIC": "Orders", "DELAY": "5"}), due_ms, is_delivered)


def test_a_delayed_message() -> None:
    found = told(delayed=[delayed(T0 + 100_000)])
    assert (found.state, found.sentence) == (
        MessageState.DELAYED,
        "It waits for its delay (level 5, due at 2023-11-14T22:15:00.000Z) and is delivered to Orders then.",
    )
    assert kinds(found) == ["born", "delayed", "due"]
    assert found.message
    assert found.message.real_topic == "Orders"
    assert "overdue since 2023-11-14T22:13:20.000Z" in told(delayed=[delayed(T0)]).sentence
    assert "due at an unknown time" in told(delayed=[delayed(None)]).sentence


def test_a_delay_that_is_over_is_part_of_the_timeline_only() -> None:
    found = told(delayed=[delayed(T0, is_delivered=True)], copies=[message(at_ms=T0 + 5)])
    assert found.state is MessageState.STORED
    assert kinds(found) == ["born", "delayed", "stored"]


HALF = HalfRecord(message(HALF_TOPIC, properties={"REAL_TOPIC": "Orders"}), HalfState.PENDING, 2, T0 + 90_000)


def test_a_pending_transaction() -> None:
    found = told(half=HALF, half_messages=[message(HALF_TOPIC), message(HALF_TOPIC, T0 + 5)])
    assert found.state is MessageState.PENDING
    assert found.sentence == (
        "It is a half message of Orders whose producer has not decided since 2023-11-14T22:13:19.990Z "
        "(checked 2 times, next at 2023-11-14T22:14:50.000Z)."
    )
    assert kinds(found) == ["born", "prepared", "checked"]
    unknown = told(half=replace(HALF, state=HalfState.UNKNOWN), half_messages=[HALF.message])
    assert unknown.sentence == "It is a half message of Orders, and whether its producer has decided is not known."


def test_a_committed_transaction() -> None:
    half = replace(HALF, state=HalfState.DECIDED)
    found = told(half=half, half_messages=[half.message], copies=[message(at_ms=T0 + 5, prepared_transaction_offset=7)])
    assert found.state is MessageState.STORED
    assert kinds(found) == ["born", "prepared", "committed"]


def test_a_transaction_that_was_rolled_back() -> None:
    half = replace(HALF, state=HalfState.DECIDED)
    found = told(half=half, half_messages=[half.message])
    assert (found.state, found.sentence) == (MessageState.ROLLED_BACK, "It was rolled back, so Orders never got it.")
    assert kinds(found) == ["born", "prepared", "rolledBack"]
    decided = Traced(kind="EndTransaction", at_ms=T0 + 5, msg_id=ID, group="p", client_host="c", state="COMMIT_MESSAGE")
    committed = told(half=half, half_messages=[half.message], trace=Trace(ID, "T", [decided], []))
    assert committed.state is MessageState.COMMITTED, "its topic has lost it"


def test_a_transaction_that_was_given_up() -> None:
    half = replace(HALF, state=HalfState.DECIDED)
    given_up = message("TRANS_CHECK_MAX_TIME_TOPIC", T0 + 50, offset_msg_id="0B")
    found = told(half=half, half_messages=[half.message], given_up=[given_up])
    assert found.state is MessageState.GIVEN_UP
    assert found.sentence == (
        "It is a half message of Orders that was given up at 2023-11-14T22:13:20.050Z: its producer never decided "
        "(orbitmq msg resume 0B restarts its checks)."
    )
    assert kinds(found) == ["born", "prepared", "givenUp"]


def test_copies_of_a_message_that_its_topic_has_lost() -> None:
    found = told(dead=[message("%DLQ%g", T0 + 30, reconsume_times=3)])
    assert found.state is MessageState.COPIES
    assert found.sentence.startswith(
        "Orders does not have it any more, and copies are left; g gave it up after 3 attempts"
    )


SENT = Traced(
    kind="Pub", at_ms=T0, msg_id=ID, group="producers", topic="Orders", client_host="10.0.0.9:5000",
    store_host="10.0.0.1:10911", cost_ms=3, success=True,
)  # fmt: skip


def test_a_message_that_has_expired() -> None:
    found = told(trace=Trace(ID, "T", [SENT], []), expired="the log begins behind it")
    assert (found.state, found.sentence) == (
        MessageState.EXPIRED,
        f"producers sent it to Orders at {AT}, and it has expired: the log begins behind it.",
    )
    assert told(expired="the log begins behind it").sentence == "It has expired: the log begins behind it."


def test_a_message_that_is_not_found_says_where_it_was_looked_for() -> None:
    found = told(searched=["topic Orders", "half messages"], trace=Trace(ID, "T", [], [], NoTrace.NO_TOPIC))
    assert (found.state, found.message, found.timeline) == (MessageState.NOT_FOUND, None, [])
    assert found.sentence == f"There is no message {ID}: searched topic Orders, half messages."
    assert found.trace_note == "there is no trace topic T: brokers make it with traceTopicEnable=true"
    assert "(some nodes did not respond)" in told(is_partial=True).sentence


def test_a_trace_is_woven_into_the_timeline() -> None:
    begun = Traced(kind="SubBefore", at_ms=T0 + 40, msg_id=ID, group="g", client_host="c", request_id="q", retries=0)
    ended = Traced(
        kind="SubAfter", at_ms=None, msg_id=ID, group=None, client_host="c", request_id="q", cost_ms=5, success=False
    )
    decided = Traced(
        kind="EndTransaction",
        at_ms=T0 + 1,
        msg_id=ID,
        group="p",
        client_host="c",
        state="COMMIT_MESSAGE",
        from_check=True,
    )
    found = told(copies=[message(at_ms=T0 + 2)], trace=Trace(ID, "T", [SENT, decided, begun, ended], []))
    assert kinds(found) == ["born", "sent", "decided", "stored", "consuming", "failed"]
    texts = {event.kind: event.text for event in found.timeline}
    assert texts["sent"] == "producers at 10.0.0.9:5000 sent it to 10.0.0.1:10911 in 3 ms"
    assert texts["decided"] == "p at c decided COMMIT_MESSAGE, after a transaction check"
    assert texts["consuming"] == "g at c began to consume it (attempt 1)"
    assert texts["failed"] == "g at c failed to consume it after 5 ms"
    assert [event.at_ms for event in found.timeline][-1] == T0 + 45
    assert {event.source for event in found.timeline} == {"store", "trace"}


MORE = "some nodes did not respond, so this may be incomplete."


def test_a_plain_message_whose_groups_not_everybody_has_told() -> None:
    found = told(copies=[message()], is_partial=True)
    assert (found.state, found.sentence) == (
        MessageState.STORED, f"{STORED}; no group that is known consumes its topic; {MORE}",
    )  # fmt: skip
    consumed = told(copies=[message()], tracks=[track("g", TrackKind.CONSUMED)], is_partial=True)
    assert consumed.sentence == f"{STORED}; consumed by g; {MORE}"


def test_a_message_that_was_sent_has_not_expired_while_a_broker_is_silent() -> None:
    sent = Trace(ID, "T", [SENT], [])
    found = told(trace=sent, is_partial=True)
    assert (found.state, found.sentence) == (
        MessageState.UNKNOWN, f"producers sent it to Orders at {AT}, and it is not found; {MORE}",
    )  # fmt: skip
    assert told(trace=sent, is_partial=True, expired="the log begins behind it").state is MessageState.EXPIRED
    waited = told(delayed=[delayed(T0, is_delivered=True)], is_partial=True)
    assert waited.state is MessageState.UNKNOWN
    assert waited.sentence == f"It was due in Orders after its delay, and is not found there; {MORE}"
    lost = told(dead=[message("%DLQ%g", T0 + 30, reconsume_times=3)], is_partial=True)
    assert lost.sentence.startswith("Orders is not known to have it, and copies are left")


def test_a_transaction_is_not_taken_for_rolled_back_while_its_topic_was_not_looked_into() -> None:
    half = replace(HALF, state=HalfState.DECIDED)
    found = told(half=half, half_messages=[half.message], is_partial=True)
    known = "It is a half message of Orders whose producer has decided, and whether for it is not known"
    assert (found.state, found.sentence) == (MessageState.DECIDED, f"{known}; {MORE}")
    assert kinds(found) == ["born", "prepared"]
    gone = told(half=half, half_messages=[half.message], is_topic_missing=True)
    assert gone.sentence == f"{known}: Orders is not there (any more)."

    def decided(how: str) -> MessageHistory:
        record = Traced(kind="EndTransaction", at_ms=T0 + 5, msg_id=ID, group="p", client_host="c", state=how)
        return told(half=half, half_messages=[half.message], is_partial=True, trace=Trace(ID, "T", [record], []))

    assert decided("ROLLBACK_MESSAGE").state is MessageState.ROLLED_BACK
    assert decided("COMMIT_MESSAGE").sentence == f"It was committed, and Orders is not known to have it; {MORE}"
