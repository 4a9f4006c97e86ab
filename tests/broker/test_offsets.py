"""Offsets are taken as they come, kept by topic, group and queue, and written in Java's text."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitmq.broker import offsets as offsets_module
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.options import BrokerOptions
from orbitmq.message.javajson import dumps_pretty, loads
from orbitmq.message.topics import HALF_TOPIC, TRANSACTION_GROUP
from orbitmq.wire.bodies import ConsumerOffsetTable
from orbitmq.wire.objects import plain
from tests.support.golden import GOLDEN


def test_the_last_commit_holds_also_a_smaller_one(tmp_path: Path) -> None:
    offsets = ConsumerOffsets(tmp_path)
    assert offsets.query("g", "Orders", 0) is None
    offsets.commit("g", "Orders", 0, 10)
    offsets.commit("g", "Orders", 0, 4)
    offsets.commit("g", "Orders", 1, 7)
    offsets.commit("h", "Orders", 0, 1)
    assert [offsets.query("g", "Orders", queue) for queue in (0, 1, 2)] == [4, 7, None]
    assert offsets.query("h", "Orders", 0) == 1


def test_a_deleted_group_or_topic_takes_its_offsets_along(tmp_path: Path) -> None:
    offsets = ConsumerOffsets(tmp_path)
    for group in ("g", "h"):
        for topic in ("Orders", "Bills", "g"):
            offsets.commit(group, topic, 0, 1)
    offsets.forget_group("g")
    assert set(offsets.table) == {"Orders@h", "Bills@h", "g@h"}
    offsets.forget_topic("Orders")
    assert set(offsets.table) == {"Bills@h", "g@h"}


def test_topics_of_a_group_and_groups_of_a_topic_follow_every_change(tmp_path: Path) -> None:
    offsets = ConsumerOffsets(tmp_path)
    for topic, group in (("Orders", "g"), ("Bills", "g"), ("Orders", "h")):
        offsets.commit(group, topic, 0, 1)
    offsets.replace("Bills@h", {0: 1})
    offsets.copy("g", "i", "Orders")
    assert (offsets.topics_of("g"), offsets.topics_of("h")) == (["Orders", "Bills"], ["Orders", "Bills"])
    assert offsets.groups_of("Orders") == ["g", "h", "i"]
    offsets.forget_group("g")
    assert (offsets.topics_of("g"), offsets.groups_of("Orders"), offsets.groups_of("Bills")) == ([], ["h", "i"], ["h"])
    offsets.forget_topic("Orders")
    assert (offsets.groups_of("Orders"), offsets.topics_of("i"), offsets.topics_of("h")) == ([], [], ["Bills"])
    assert list(offsets.pairs()) == [("Bills", "h")]


def test_offsets_have_a_limit_that_known_ones_do_not_meet(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Queues that do not exist count as well: nothing checks what a client commits."""
    offsets = ConsumerOffsets(tmp_path, options=BrokerOptions(consumer_offsets_max=3))
    for queue in range(5):
        offsets.commit("g", "Orders", queue, 1)
    offsets.commit("g", "Bills", 0, 1)
    assert offsets.table == {"Orders@g": {0: 1, 1: 1, 2: 1}}
    assert "key=Orders@g offsets=3 limit=3 refused=1" in caplog.text
    offsets.commit("g", "Orders", 2, 9)
    assert offsets.query("g", "Orders", 2) == 9
    offsets.forget_topic("Orders")
    offsets.commit("g", "Bills", 0, 1)
    assert offsets.table == {"Bills@g": {0: 1}}


def test_offsets_of_what_nobody_made_leave_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that its topic does not have counts like a topic or a group that is not there."""
    monkeypatch.setattr(offsets_module, "STRANGERS_MAX", 3)
    offsets = ConsumerOffsets(tmp_path, queues=lambda topic, group: 2 if (topic, group) == ("Orders", "g") else 0)
    for queue in range(5):
        offsets.commit("a", "Orders", queue, 1)
    for queue in range(-1, 5):
        offsets.commit("g", "Orders", queue, 1)
    assert offsets.table == {"Orders@a": {0: 1, 1: 1, 2: 1}, "Orders@g": {0: 1, 1: 1}}
    offsets.commit("a", "Orders", 1, 5)
    assert offsets.query("a", "Orders", 1) == 5
    offsets.forget_group("a")
    for queue in (-1, 2, 3, 4):
        offsets.commit("g", "Orders", queue, 1)
    assert offsets.table == {"Orders@g": {0: 1, 1: 1, -1: 1, 2: 1, 3: 1}}
    offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, 0, 1)
    assert offsets.query(TRANSACTION_GROUP, HALF_TOPIC, 0) == 1, "the broker's own"


async def test_what_was_unknown_is_looked_at_again_once_between_two_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what a file brought: all of it is kept, and counts."""
    monkeypatch.setattr(offsets_module, "STRANGERS_MAX", 2)
    before = ConsumerOffsets(tmp_path)
    for queue in range(3):
        before.commit("g", "Orders", queue, 1)
    before.save_soon()
    await before.file.flush()
    made = {"Bills": 1}
    asked: list[str] = []
    offsets = ConsumerOffsets(tmp_path, queues=lambda topic, _group: asked.append(topic) or made.get(topic, 0))
    offsets.load()
    assert offsets.table == before.table
    offsets.commit("g", "New", 0, 1)
    assert offsets.query("g", "New", 0) is None
    offsets.save_soon()
    asked.clear()
    for _ in range(10):
        offsets.commit("g", "New", 0, 1)
    assert asked.count("Orders") == 3, "once each"
    made["Orders"] = 3
    offsets.save_soon()
    offsets.commit("g", "New", 0, 1)
    assert offsets.query("g", "New", 0) == 1


async def test_after_a_crash_no_offset_lies_beyond_its_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each is reported, up to a limit, and the corrected ones are saved."""
    monkeypatch.setattr(offsets_module, "CORRECTIONS_TOLD", 1)
    offsets = ConsumerOffsets(tmp_path)
    for queue, offset in enumerate((9, 10, 11, 12)):
        offsets.commit("g", "Orders", queue, offset)
    offsets.commit("g", "Gone", 0, 1)
    offsets.save_soon()
    await offsets.file.flush()
    offsets.correct(lambda topic, _queue: 10 if topic == "Orders" else 0)
    assert offsets.table == {"Orders@g": {0: 9, 1: 10, 2: 10, 3: 10}, "Gone@g": {0: 0}}
    assert "event=offset_corrected key=Orders@g queue=2 from=11 to=10" in caplog.messages
    assert caplog.text.count("event=offset_corrected") == 1
    assert "event=offsets_corrected count=3" in caplog.messages
    offsets.save_soon()
    await offsets.file.flush()
    again = ConsumerOffsets(tmp_path)
    again.load()
    assert again.table == offsets.table


async def test_the_file_is_written_only_after_a_change_and_read_at_a_restart(tmp_path: Path) -> None:
    offsets = ConsumerOffsets(tmp_path)
    offsets.save_soon()
    await offsets.file.flush()
    assert not offsets.file.path.exists()
    offsets.commit("g", "Orders", 0, 10)
    offsets.commit("g", "%RETRY%g", 3, 2)
    offsets.save_soon()
    await offsets.file.flush()
    text = '{\n\t"offsetTable":{\n\t\t"Orders@g":{0:10\n\t\t},\n\t\t"%RETRY%g@g":{3:2\n\t\t}\n\t}\n}'
    assert offsets.file.path.read_text() == text
    again = ConsumerOffsets(tmp_path)
    again.load()
    assert again.table == offsets.table


async def test_a_file_of_rocketmq_comes_out_byte_for_byte(tmp_path: Path) -> None:
    text = (GOLDEN / "configs/broker_consumerOffset.json").read_text(encoding="utf-8")
    offsets = ConsumerOffsets(tmp_path)
    offsets.file.path.write_text(text, encoding="utf-8")
    offsets.load()
    assert offsets.table == loads(text)["offsetTable"]
    assert offsets.query("gct_1", "GoldC_1", 3) == 7
    offsets.file.mark()
    await offsets.file.flush()
    assert offsets.file.path.read_text(encoding="utf-8") == text


async def test_thousands_of_changes_are_written_in_turns_of_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what changed is written anew, and only so much of it before others get their turn."""
    monkeypatch.setattr(offsets_module, "TURN_ENTRIES", 10)
    written: list[str] = []
    entry = offsets_module._entry
    monkeypatch.setattr(offsets_module, "_entry", lambda key, found: written.append(key) or entry(key, found))
    offsets = ConsumerOffsets(tmp_path)
    for number in range(95):
        offsets.commit(f"g{number}", "Orders", 0, number)
    offsets.save_soon()
    turns = []
    while not offsets.file.path.exists():
        before = len(written)
        await asyncio.sleep(0)
        turns.append(len(written) - before)
    await offsets.file.flush()
    assert max(turns) <= 10
    assert sorted(written) == sorted(f"Orders@g{number}" for number in range(95))
    written.clear()
    offsets.commit("g7", "Orders", 0, 100)
    offsets.forget_group("g8")
    offsets.save_soon()
    await offsets.file.flush()
    assert written == ["Orders@g7"]
    again = ConsumerOffsets(tmp_path)
    again.load()
    assert again.table == offsets.table
    assert offsets._text()() == dumps_pretty(plain(ConsumerOffsetTable(offset_table=offsets.table)))


async def test_a_topic_of_many_queues_takes_several_shares_of_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets_module, "TURN_ENTRIES", 10)
    written: list[str] = []
    entry = offsets_module._entry
    monkeypatch.setattr(offsets_module, "_entry", lambda key, found: written.append(key) or entry(key, found))
    offsets = ConsumerOffsets(tmp_path)
    for number in range(9):
        for queue in range(16 * 4):
            offsets.commit(f"g{number}", "Orders", queue, 1)
    offsets.save_soon()
    for turns in range(1, 5):
        await asyncio.sleep(0)
        assert len(written) == 2 * turns
    await asyncio.sleep(0)
    await offsets.file.flush()
    assert len(written) == 9


async def test_an_empty_table_and_an_empty_entry_are_written_as_java_does(tmp_path: Path) -> None:
    offsets = ConsumerOffsets(tmp_path)
    for table in ({}, {"Orders@g": {}}, {'a"@b': {1: 2, 0: 5}, "Orders@g": {}}):
        offsets._take(table)
        assert offsets._text()() == dumps_pretty(plain(ConsumerOffsetTable(offset_table=table)))
