"""The checker of the fault campaign sees each promise broken when it is planted, and nothing where all is well."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from bench.soak.checker import (
    AGAIN,
    BEHIND_MS,
    EARLY,
    SAVED_MS,
    SECOND,
    SETTLED_MS,
    SLACK_MS,
    Log,
    Pair,
    Stored,
    Verdict,
    check,
    repeats,
    twice,
)
from bench.soak.disks import LogEnd, first_difference, read_log
from bench.soak.history import (
    ACKED,
    LEFT,
    TRIED,
    Copied,
    Delivered,
    Event,
    Fault,
    Journal,
    Moved,
    Popped,
    Posted,
    Probe,
    Progress,
    Promoted,
    Rang,
    Reading,
    Sent,
    Timed,
    Worked,
)  # fmt: skip
from bench.soak.plan import FILL, KILL, KINDS, PROMOTE, Step, plan
from orbitmq.runtime.clock import ManualClock
from orbitmq.store.replica import ReplicaStore
from tests.support.stores import CODES, open_store, record, small_options

T = "Soak"
PAIR = Pair("sync", "m", "s", is_sync=True)
LOOSE = replace(PAIR, is_sync=False)
ROLES = {PAIR: "SYNC_MASTER", LOOSE: "ASYNC_MASTER"}
COUNT = 12
FAR = 1000 * SECOND


def sends() -> list[Sent]:
    """One sender, two queues, a message a second."""
    return [
        Sent(f"a.{n}", "a", "sync", n % 2, n * SECOND, n * SECOND + 5, "SEND_OK", n // 2, n * 100) for n in range(COUNT)
    ]


def rows() -> list[Stored]:
    return [Stored(T, one.queue, one.offset, one.place, one.key) for one in sends()]


def seen() -> list[Event]:
    return [Delivered(one.key, "sync", one.queue, one.offset, one.ended + 5) for one in sends()]


def progress() -> list[Progress]:
    return [Progress("m", one.queue, one.offset + 1, one.ended + 9) for one in sends()]


def done() -> list[Worked]:
    return [Worked(one.key, "w", one.ended + 5) for one in sends()]


def judged(
    *events: Event,
    sent: list[Sent] | None = None,
    master: list[Stored] | None = None,
    slave: list[Stored] | None = None,
    delivered: list[Event] | None = None,
    told: list[Progress] | None = None,
    worked: list[Worked] | None = None,
    pair: Pair = PAIR,
) -> Verdict:
    first = rows() if master is None else master
    second = first if slave is None else slave
    history = [
        *(sends() if sent is None else sent),
        *(seen() if delivered is None else delivered),
        *(progress() if told is None else told),
        *(done() if worked is None else worked),
        *events,
    ]
    return check(history, [pair], {"m": Log(first, 1200), "s": Log(second, len(second) * 100)}, {"sync": None}, T)


def assert_only(verdict: Verdict, rule: str, *words: str) -> None:
    assert verdict.violations, f"nothing was found, {rule} was planted"
    assert all(text.startswith(f"{rule}: ") for text in verdict.violations), verdict.violations
    for word in words:
        assert any(word in text for text in verdict.violations), (word, verdict.violations)


# ------------------------------------------------------------------------------------------------ planted in a history


def test_a_campaign_without_a_fault_is_clean() -> None:
    assert judged(Copied("s", 1200, FAR)).violations == []


@pytest.mark.parametrize("status", ["SEND_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"])
def test_a_planted_loss_is_found_whatever_the_receipt_says(status: str) -> None:
    """The last message of a queue: no gap tells of it."""
    sent = [msgspec.structs.replace(one, status=status) for one in sends()]
    told = [Progress("m", 0, 6, FAR), Progress("m", 1, 5, FAR)]
    verdict = judged(sent=sent, master=rows()[:-1], delivered=seen()[:-1], told=told, pair=LOOSE)
    assert verdict.counts["lost"] == 1
    assert "a.11" in verdict.violations[0]


def test_a_message_that_only_the_slave_lost_is_found_with_sync_master_alone() -> None:
    assert_only(judged(slave=rows()[:-1]), "lost by the slave", "a.11")
    assert judged(slave=rows()[:-1], pair=LOOSE).violations == []
    timed_out = [*sends()[:-1], msgspec.structs.replace(sends()[-1], status="FLUSH_SLAVE_TIMEOUT")]
    assert judged(sent=timed_out, slave=rows()[:-1]).violations == [], "the receipt said that the slave lags"


def test_a_receipt_that_came_before_the_slave_had_the_message_is_found() -> None:
    early = sends()[5].ended + 1
    assert_only(judged(Copied("s", 500, early)), "not at the slave in time", "a.5")
    assert judged(Copied("s", 600, early)).violations == []
    assert judged(Copied("s", 500, early), pair=LOOSE).violations == []


def timed(status: str = "SEND_OK") -> list[Event]:
    return [Timed(f"t.{n}", "sync", 1000 * n, n * SECOND, n * SECOND + 5, status, n * 100 + 50) for n in range(4)]


def rang() -> list[Rang]:
    return [Rang(f"t.{n}", "sync", 0, n, 1000 * n) for n in range(4)]


def test_a_timer_message_that_nobody_got_is_found() -> None:
    assert judged(*timed(), *rang()).violations == []
    assert_only(judged(*timed(), *rang()[:3]), "timer lost", "t.3")
    assert judged(*timed(""), *rang()[:3]).violations == [], "it had no receipt"
    death = Promoted("sync", "s", "m", killed=FAR, log_end=300, ended=FAR, forced=False, emptied=False)
    lost = [msgspec.structs.replace(death, role=ROLES[LOOSE])]
    assert judged(*lost, *timed(), *rang()[:3], pair=LOOSE).counts["timer lost"] == 0, "it went with its master"
    assert judged(*lost, *timed(), *rang()[:2], pair=LOOSE).counts["timer lost"] == 1


def test_a_timer_message_before_its_time_is_found() -> None:
    early = msgspec.structs.replace(rang()[2], stored_ms=1999)
    assert_only(judged(*timed(), *rang(), early), "timer early", "t.2", "1 ms early")
    assert_only(judged(*timed(""), *rang(), early), "timer early", "t.2")


def test_timer_messages_that_came_twice_are_counted() -> None:
    again = rang()[1]
    assert twice([*rang(), again]) == 0, "one place was delivered again"
    assert twice([*rang(), msgspec.structs.replace(again, offset=9)]) == 1


def test_a_timer_message_that_came_once_more_than_there_were_promotions_is_found() -> None:
    again = [msgspec.structs.replace(rang()[1], offset=offset) for offset in (9, 10)]
    assert_only(judged(*timed(), *rang(), again[0]), "timer too often", "t.1 of sync was stored 2 times, with 0")
    death = lost_with_master(11, 12)
    assert judged(death, *timed(), *rang(), again[0], pair=LOOSE).counts["timer too often"] == 0
    assert judged(death, *timed(), *rang(), *again, pair=LOOSE).counts["timer too often"] == 1
    before = msgspec.structs.replace(death, killed=0, ended=SECOND - 1)
    assert judged(before, *timed(), *rang(), again[0], pair=LOOSE).counts["timer too often"] == 1


# ---------------------------------------------------------------------------------------------------- POP consumption


def posted(status: str = "SEND_OK") -> list[Event]:
    return [Posted(f"p.{n}", "sync", "gRPC", n * SECOND, n * SECOND + 5, status) for n in range(4)]


def popped(number: int, at: int, fate: str = ACKED, *, times: int = 0, copy: str = "", invisible_s: int = 3) -> Popped:
    """A delivery at second `at`, decided on half a second later."""
    begun = at * SECOND
    copy = copy or f"{min(times, 1)}/0/{number}"
    due, heard, decided = begun + invisible_s * SECOND, begun + 5, begun + SECOND // 2
    return Popped(f"p.{number}", "sync", "remoting", copy, times, begun, due, heard, decided, fate)


def pops() -> list[Event]:
    """The last one is left, and comes again when its time is over."""
    return [*(popped(n, 10 + n) for n in range(3)), popped(3, 13, LEFT), popped(3, 16, times=1)]


def lost_with_master(since: int, killed: int) -> Promoted:
    """The slave had what was sent until second `since`, when the master died in second `killed`."""
    return Promoted(
        "sync", "s", "m", killed * SECOND, since * 100 + 1, (killed + 1) * SECOND, forced=True, emptied=False,
        role="ASYNC_MASTER",
    )  # fmt: skip


def test_a_message_that_was_not_delivered_by_pop_is_found() -> None:
    assert judged(*posted(), *pops()).violations == []
    assert_only(judged(*posted(), *pops()[1:]), "never popped", "p.0 of sync, sent by gRPC")
    assert judged(*posted(""), *pops()[1:]).violations == [], "it had no receipt"


def test_a_message_that_was_left_and_not_redelivered_is_found() -> None:
    assert_only(judged(*posted(), *pops()[:-1]), "never redelivered", "p.3")
    tried = [*pops()[:3], popped(3, 13, TRIED)]
    assert judged(*posted(), *tried).violations == [], "it may be acknowledged"


@pytest.mark.parametrize(("copy", "times"), [("0/0/1", 0), ("1/0/7", 1)])
def test_a_delivery_after_the_acknowledgement_is_found(copy: str, times: int) -> None:
    again = popped(1, 30, times=times, copy=copy)
    near = Fault(KILL, "m", 9 * SECOND, 10 * SECOND)
    for events in ([again], [again, near]):
        assert_only(judged(*posted(), *pops(), *events), AGAIN, f"p.1 as {copy} of sync, 18500 ms after that of 0/0/1")
    late = [*pops()[:1], popped(1, 11, TRIED), *pops()[2:], again]
    assert judged(*posted(), *late).violations == [], "it was not acknowledged in time"


def test_a_second_copy_is_allowed_when_a_kill_came_before_the_first_was_delivered() -> None:
    again, kill = popped(3, 30, times=1, copy="1/0/9"), Fault(KILL, "m", 15 * SECOND, 16 * SECOND)
    assert_only(judged(*posted(), *pops(), again), AGAIN, "p.3 as 1/0/9")
    assert judged(*posted(), *pops(), again, kill).violations == []
    assert [one.excuse for one in repeats([*posted(), *pops(), again, kill], [PAIR])] == ["second copy"]
    later, elsewhere = Fault(KILL, "m", 20 * SECOND, 21 * SECOND), Fault(KILL, "another", 15 * SECOND, 16 * SECOND)
    assert_only(judged(*posted(), *pops(), again, later, elsewhere), AGAIN, "p.3 as 1/0/9")


def test_a_delivery_before_the_invisible_time_is_over_is_found() -> None:
    early = [*pops()[:-1], popped(3, 15, times=1)]
    assert_only(judged(*posted(), *early), EARLY, "p.3 as 1/0/3 of sync, 1000 ms before that of 0/0/3")
    twin = popped(1, 11)
    assert_only(judged(*posted(), *pops(), twin), EARLY, "p.1 as 0/0/1 of sync, 3000 ms before")


def test_what_pop_confirmed_in_doubt_may_go_with_a_master_and_nothing_before_it() -> None:
    """Sends of second 5 and before were with the slave, and p.1 is acknowledged in second 11 or in second 4."""
    history: list[Event] = [*sends(), *posted(), *pops(), popped(1, 30), lost_with_master(5, 12)]
    assert [(one.rule, one.excuse) for one in repeats(history, [LOOSE])] == [(AGAIN, "promotion")]
    before: list[Event] = [*sends(), *posted(), popped(1, 4), popped(1, 30), lost_with_master(5, 12)]
    assert [(one.rule, one.excuse) for one in repeats(before, [LOOSE])] == [(AGAIN, "")]
    follows: list[Event] = [*sends(), *posted(), popped(1, 20), popped(1, 30), lost_with_master(5, 12)]
    assert [(one.rule, one.excuse) for one in repeats(follows, [LOOSE])] == [(AGAIN, "")]
    early: list[Event] = [*sends(), *posted(), popped(1, 11, LEFT), popped(1, 13), lost_with_master(5, 12)]
    assert [(one.rule, one.excuse) for one in repeats(early, [LOOSE])] == [(EARLY, "promotion")]


def test_a_promotion_excuses_nothing_long_before_or_after_it() -> None:
    """The slave had nothing that is known, or the former master took long to come back."""
    bound_s = BEHIND_MS // 1000
    history: list[Event] = [*posted(), popped(1, 11), popped(1, 99)]
    for killed, excuse in ((12 + bound_s, ""), (11 + bound_s, "promotion"), (11, "promotion"), (10 - bound_s, "")):
        death = msgspec.structs.replace(lost_with_master(-1, killed), ended=90 * SECOND)
        assert [one.excuse for one in repeats([*history, death], [LOOSE])] == [excuse], killed


def test_what_was_posted_may_go_with_a_master_unless_it_was_confirmed_by_both() -> None:
    death = lost_with_master(2, 12)
    assert judged(death, *posted(), *pops()[:-2], pair=LOOSE).counts["never popped"] == 0
    assert judged(death, *posted(), *pops()[1:], pair=LOOSE).counts["never popped"] == 1, "the slave had it"
    assert judged(death, *posted(), *pops()[:-2]).counts["never popped"] == 1
    assert judged(death, *posted("SLAVE_NOT_AVAILABLE"), *pops()[:-2]).counts["never popped"] == 0


def test_a_planted_double_offset_is_found() -> None:
    doubled = rows()
    doubled[7] = doubled[7]._replace(offset=doubled[5].offset)
    verdict = judged(master=doubled)
    assert verdict.counts["doubled or missing offset"] == 4, "at both nodes: it is there, its own is not"
    assert any("a.7" in text for text in verdict.violations if text.startswith("lost"))


def test_a_message_that_is_stored_twice_is_found() -> None:
    again = [*rows(), rows()[3]._replace(offset=6, place=1200)]
    told = [*progress(), Progress("m", 1, 7, FAR)]
    assert_only(judged(master=again, slave=rows(), told=told), "stored twice", "m has a.3 2 times")


def test_a_planted_reorder_is_found() -> None:
    """Receipts, log and deliveries agree with one another, and two sends have changed places."""
    sent, log, came = sends(), rows(), list(seen())
    first, second = sent[4], sent[6]
    sent[4] = msgspec.structs.replace(first, offset=second.offset, place=second.place)
    sent[6] = msgspec.structs.replace(second, offset=first.offset, place=first.place)
    log[4], log[6] = log[4]._replace(key="a.6"), log[6]._replace(key="a.4")
    came[4] = Delivered("a.4", "sync", 0, second.offset, FAR)
    came[6] = Delivered("a.6", "sync", 0, first.offset, FAR)
    assert_only(judged(sent=sent, master=log, delivered=came), "out of order", "a.6 was sent after a.4")


def test_sends_that_overlap_may_stand_in_any_order() -> None:
    sent = sends()
    sent[0] = msgspec.structs.replace(sent[0], offset=1, place=200, ended=3 * SECOND)
    sent[2] = msgspec.structs.replace(sent[2], offset=0, place=0)
    log = rows()
    log[0], log[2] = log[0]._replace(key="a.2"), log[2]._replace(key="a.0")
    came = [Delivered("a.0", "sync", 0, 1, FAR), *seen()[1:2], Delivered("a.2", "sync", 0, 0, FAR), *seen()[3:]]
    assert judged(sent=sent, master=log, delivered=came).violations == []


def test_a_send_without_a_receipt_may_be_stored_or_not() -> None:
    unknown = [*sends()[:-1], msgspec.structs.replace(sends()[-1], status="", offset=-1, place=-1, error="Timeout")]
    assert judged(sent=unknown).violations == []
    told = [one for one in progress() if one.offset < 6 or not one.queue]
    assert judged(sent=unknown, master=rows()[:-1], delivered=seen()[:-1], told=told).violations == []


def test_what_a_listener_got_and_no_log_has_is_found() -> None:
    ghost = Delivered("a.ghost", "sync", 0, 99, FAR)
    other = Delivered("a.1", "sync", 0, 0, FAR)
    assert_only(judged(ghost, other), "delivered and not stored", "where nothing is", "where a.0 is")


def test_a_message_that_never_came_is_found() -> None:
    assert_only(judged(delivered=seen()[1:]), "never delivered", "a.0")


def test_a_message_that_no_worker_has_worked_on_is_found() -> None:
    assert_only(judged(worked=done()[:-1]), "never worked on", "a.11")
    assert judged(worked=[*done(), *done()]).violations == [], "at least once"


def test_what_was_served_by_a_former_master_or_a_refused_slave_is_found() -> None:
    probe = Probe("s", "former master that has thawed", "a message", served=False, at=FAR)
    assert judged(probe).violations == []
    served = msgspec.structs.replace(probe, served=True)
    assert_only(judged(served), "served by who may not", "s served a message: former master")


def test_a_promotion_to_another_role_is_found() -> None:
    assert after_a_death(pair=PAIR, kept=12, log_end=1200).violations == []
    death = Promoted("sync", "s", "m", -SECOND, 0, -1, forced=False, emptied=False, role="ASYNC_MASTER")
    assert judged(death).counts["another role"] == 1


def test_progress_that_is_short_of_the_end_is_found() -> None:
    assert_only(judged(told=progress()[:-1]), "progress not at the end", "m/1 is at 5 of 6")


# ------------------------------------------------------------------------------------------------- progress that falls

SAVED = (SAVED_MS + SLACK_MS) * SECOND // 1000
LATER = COUNT * SECOND
AFTER = [Progress("m", 0, 6, FAR), Progress("m", 1, 6, FAR)]


def fell_to(offset: int, *faults: Fault) -> Verdict:
    """Queue 0 was at 6 since second 10."""
    return judged(*faults, told=[*progress(), Progress("m", 0, offset, LATER), *AFTER])


def test_progress_that_falls_by_itself_is_found() -> None:
    assert_only(fell_to(5), "progress fell", "m/0 fell from 6 to 5 without a fault")
    elsewhere = Fault("kill -9", "another", LATER - 2, LATER - 1)
    assert_only(fell_to(5, elsewhere), "progress fell", "without a fault")
    over = Fault("kill -9", "m", -2 * SECOND, -SETTLED_MS * SECOND)
    assert_only(fell_to(5, over), "progress fell", "without a fault")


def test_progress_may_fall_to_what_was_saved_before_a_kill_and_no_further() -> None:
    """The first message of queue 0 was done in second 0, the second in second 2."""
    assert fell_to(1, Fault("kill -9", "m", SAVED + SECOND, LATER - 1)).violations == []
    assert fell_to(1, Fault("kill -9", "s", SAVED + SECOND, LATER - 1)).violations == []
    verdict = fell_to(0, Fault("kill -9", "m", SAVED + SECOND, LATER - 1))
    assert_only(verdict, "progress fell", "although 1 was there 10000 ms before the fault")


# ------------------------------------------------------------------------------------------------ a master that dies


def after_a_death(
    *, pair: Pair = LOOSE, status: str = "SEND_OK", log_end: int = 1000, kept: int = 10, looks: Sequence[Event] = ()
) -> Verdict:
    """The master dies behind the last send, and `kept` messages are in the log of its slave, that goes on."""
    death = Promoted("sync", "s", "m", FAR, log_end, FAR + SECOND, forced=False, emptied=True, role=ROLES[pair])
    sent = [msgspec.structs.replace(one, status=status) for one in sends()]
    later = Sent("a.later", "a", "sync", 0, FAR + 2 * SECOND, FAR + 3 * SECOND, "SEND_OK", kept // 2, log_end)
    log = [*rows()[:kept], Stored(T, 0, kept // 2, log_end, "a.later")]
    came: list[Event] = [Delivered(one.key, "sync", one.queue, one.offset, one.ended + 5, one.place) for one in sent]
    worked = [*done(), Worked("a.later", "w", FAR + 4 * SECOND)]
    came.append(Delivered("a.later", "sync", 0, kept // 2, FAR + 4 * SECOND, log_end))
    told = [Progress("s", 0, kept // 2 + 1, 2 * FAR), Progress("s", 1, kept // 2, 2 * FAR)]
    end = log_end + 100
    logs = {"m": Log(log, end), "s": Log(log, end)}
    return check([*sent, later, *came, *worked, *told, death, *looks], [pair], logs, {"sync": None}, T)


def test_what_only_the_dead_master_had_may_be_lost() -> None:
    assert after_a_death().violations == []
    assert after_a_death(pair=PAIR, status="SLAVE_NOT_AVAILABLE").violations == [], "the receipt said so"


def test_what_a_sync_master_had_confirmed_may_not_be_lost_with_it() -> None:
    verdict = after_a_death(pair=PAIR)
    assert verdict.counts["lost"] == 2
    assert "a.10 (SEND_OK)" in verdict.violations[0]


def test_what_the_promoted_slave_had_may_not_be_lost() -> None:
    """Its log went up to 1200, and then a.10 and a.11 were in it."""
    verdict = after_a_death(log_end=1200)
    assert (verdict.counts["lost"], verdict.counts["delivered and not stored"]) == (2, 2)


def test_what_came_after_the_death_may_not_be_lost() -> None:
    death = Promoted("sync", "s", "m", -SECOND, 0, -1, forced=False, emptied=False)
    told = [*[msgspec.structs.replace(one, node="s") for one in progress()[:-1]], Progress("s", 1, 5, FAR)]
    verdict = judged(death, master=rows()[:-1], slave=rows()[:-1], told=told)
    assert verdict.counts["lost"] == 1


def test_each_era_has_its_own_slave() -> None:
    """Before the death `s` has to have what is confirmed, behind it the former master has."""
    early, late = Copied("s", 500, sends()[5].ended + 1), Copied("m", 1000, FAR + 5 * SECOND)
    died = [Copied("m", 0, sends()[5].ended + 1), Copied("m", 0, FAR + SECOND // 2), Copied("s", 0, FAR + 5 * SECOND)]
    sync = after_a_death(pair=PAIR, kept=12, log_end=1200, looks=died)
    assert sync.violations == []
    found = after_a_death(pair=PAIR, kept=12, log_end=1200, looks=[early, late]).violations
    assert len(found) == 2
    assert "s ended at 500 when a.5" in found[0]
    assert "m ended at 1000 when a.later" in found[1]


@pytest.mark.parametrize(("fell_to", "is_promised"), [(5, False), (4, True)])
def test_progress_behind_what_went_with_a_master_falls_to_the_end_of_the_queue(
    fell_to: int, *, is_promised: bool
) -> None:
    """Of the six messages in queue 0 the slave had five when its master died."""
    death = Promoted("sync", "s", "m", FAR, 1000, FAR + SECOND, forced=True, emptied=True)
    told = [Progress("s", 0, 6, FAR - 2 * SAVED), Progress("s", 0, fell_to, FAR + 2), Progress("s", 0, 5, FAR + 3)]
    faults = [Fault(PROMOTE, "m", FAR - 5, FAR + SECOND), Fault("kill -9", "s", FAR - 5, FAR + SECOND)]
    again = Progress("s", 0, 4, FAR + SAVED + 9 * SECOND)
    later = Fault("kill -9", "s", FAR + SAVED + 8 * SECOND, FAR + SAVED + 9 * SECOND)
    logs = {"m": Log(rows()[:10], 1000), "s": Log(rows()[:10], 1000)}
    done = [Progress("s", 1, 5, 2 * FAR), Progress("s", 0, 5, 2 * FAR)]
    events: list[Event] = [*sends(), *seen(), *told, death, *faults]
    found = check([*events, *done], [LOOSE], logs, {"sync": None}, T).violations
    assert [text for text in found if text.startswith("progress fell")] == [
        f"progress fell: s/0 fell from 6 to {fell_to}, although 5 was there 10000 ms before the fault"
    ] * is_promised
    found = check([*events, again, later, *done], [LOOSE], logs, {"sync": None}, T).violations
    assert "progress fell: s/0 fell from 5 to 4, although 5 was there 10000 ms before the fault" in found


# ------------------------------------------------------------------------------------------------- planted on the disk


def test_damage_and_logs_that_differ_are_told() -> None:
    logs = {"m": Log(rows(), 1200, ["commitlog at 7: no message begins here"]), "s": Log(rows(), 1300)}
    found = check([*sends(), *seen(), *progress(), *done()], [PAIR], logs, {"sync": 44}, T).violations
    assert [text.partition(":")[0] for text in found] == ["damaged store", "logs differ", "logs differ"]
    assert "byte 44" in found[1]
    assert "ends at 1300" in found[2]


def filled(root: Path) -> Path:
    store = open_store(root)
    for n in range(60):
        body = f"a.{n}:".encode() + bytes(random.Random(n).randrange(200))
        store.put(record(body, topic=T, queue_id=n % 2, properties=b"KEYS\x01k"))
    store.close()
    return root


def test_a_store_is_read_with_every_message_at_its_place(tmp_path: Path) -> None:
    log = read_log(filled(tmp_path / "m"), T)
    assert [row.key for row in log.rows] == [f"a.{n}" for n in range(60)]
    assert [row.offset for row in log.rows] == [n // 2 for n in range(60)]
    assert log.end > 2 * 4096, "it goes over the ends of files"
    assert log.damage == []
    assert LogEnd(tmp_path / "m", 4096).look() == log.end


def test_a_message_that_is_taken_off_a_disk_is_found(tmp_path: Path) -> None:
    """The last one, with its entry: the store itself is sound, and the receipt is not kept."""
    root = filled(tmp_path / "m")
    log = read_log(root, T)
    sent = [
        Sent(row.key, "a", "sync", row.queue, n, n, "SEND_OK", row.offset, row.place) for n, row in enumerate(log.rows)
    ]
    last = log.rows[-1]
    path = root / "commitlog" / f"{last.place - last.place % 4096:020d}"
    data = bytearray(path.read_bytes())
    data[last.place % 4096 :] = bytes(4096 - last.place % 4096)
    path.write_bytes(data)
    shorter = read_log(root, T)
    assert len(shorter.rows) == 59
    assert shorter.damage, "a queue knows more than the log"
    verdict = check(sent, [PAIR], {"m": shorter, "s": log}, {"sync": None}, T)
    assert verdict.counts["lost"] == 1


def test_the_first_byte_that_differs_is_named(tmp_path: Path) -> None:
    master = filled(tmp_path / "m")
    slave = tmp_path / "s"
    shutil.copytree(master, slave)
    end = read_log(master, T).end
    assert first_difference(master, slave, end) is None
    path = slave / "commitlog" / f"{4096:020d}"
    data = bytearray(path.read_bytes())
    data[17] ^= 1
    path.write_bytes(data)
    assert first_difference(master, slave, end) == 4096 + 17
    assert first_difference(master, slave, 4096 + 17) is None, "behind the end nothing is promised"


def test_a_half_message_at_the_end_of_a_slaves_log_does_not_count(tmp_path: Path) -> None:
    master = open_store(tmp_path / "m")
    for n in range(30):
        master.put(record(f"a.{n}:".encode() + bytes(n * 7), topic=T, properties=b"KEYS\x01k"))
    slave = ReplicaStore(small_options(tmp_path / "s"), clock=ManualClock(), entry_codes=CODES)
    slave.open()
    log, looking = master.commit_log, LogEnd(tmp_path / "s", 4096)
    whole = 0
    while slave.copied_to < log.end:
        at = int(slave.copied_to)
        slave.copy(at, bytes(log.slice(at, min(61, log.end - at, 4096 - at % 4096)) or b""))
        found = looking.look()
        assert whole <= found <= max(slave.copied_to, looking.look() // 4096 * 4096)
        assert slave.copied_to - found < 500, "less than a message"
        whole = found
    assert whole == log.end
    for store in (master, slave):
        store.close()


# ---------------------------------------------------------------------------------------------- history and plan


def test_a_history_is_read_as_it_was_written_without_a_half_line(tmp_path: Path) -> None:
    events: list[Event] = [
        sends()[0], seen()[0], progress()[0], Copied("s", 1, 2), Fault(FILL, "m", 3, 4), Moved(1, True, 5, 6),
        posted()[0], popped(0, 10), Promoted("sync", "s", "m", 1, 2, 3, forced=True, emptied=False),
    ]  # fmt: skip
    path = tmp_path / "history.jsonl"
    reading = Reading(path)
    assert reading.more() == []
    journal = Journal(path)
    for event in events[:2]:
        journal.add(event)
    assert reading.more() == events[:2]
    for event in events[2:]:
        journal.add(event)
    journal.close()
    with path.open("ab") as file:
        file.write(b'{"event":"copied","no')
    assert reading.more() == events[2:]
    assert Reading(path).more() == events


def test_a_seed_gives_the_same_faults_and_all_kinds_of_them() -> None:
    def drawn(seed: int, *without: str) -> list[Step]:
        targets = {kind: ("m", "s") for kind in KINDS if kind not in without} | {PROMOTE: ("pair",)}
        steps = plan(seed, name_servers=("n",), targets=targets, hold_max=4.0, pause_max=1.0)
        return [next(steps) for _ in range(200)]

    assert drawn(1) == drawn(1) != drawn(2)
    kinds = {step.kind for step in drawn(1)}
    assert kinds == set(KINDS)
    assert kinds - {step.kind for step in drawn(1, FILL)} == {FILL}
    assert {step.target for step in drawn(1) if step.kind == PROMOTE} == {"pair"}
