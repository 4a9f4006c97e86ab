"""A state file that is there and cannot be read is an error line, kept aside, recovered as far as can be, and told."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from orbitmq.admin.runtime import parse
from orbitmq.message.config import SQL92, SubscriptionData, SubscriptionGroup, TopicConfig
from orbitmq.namesrv.options import NamesrvOptions
from orbitmq.namesrv.server import NameServer
from orbitmq.store.options import SLAVE
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers import QueryConsumerOffsetHeader, QueryConsumerOffsetResponseHeader
from orbitmq.wire.requests import RequestCode
from tests.runtime.test_damaged_state import PARTS
from tests.support.cleaning import runtime_table
from tests.support.live import Client, client_of, consumer, made_broker, running
from tests.support.loops import until

MESSAGES = 80
FILES = {
    "topics.json": lambda broker: "Orders" in broker.topics.table and "Later" in broker.topics.table,
    "subscriptionGroup.json": lambda broker: {"billing", "shipping"} <= broker.groups.table.keys(),
    "consumerOffset.json": lambda broker: broker.offsets.query("billing", "Orders", 0) == 7,
    "delayOffset.json": lambda broker: broker.delay_offsets[1] == 1,
    "consumerFilter.json": lambda broker: broker._filters.find("Orders", "billing") is not None,
}
"""Each with what a broker knows by it."""
RECOVERED_WITHOUT_BACKUP = {"topics.json", "subscriptionGroup.json"}
"""Queue directories tell topics; retry topics and offsets tell groups."""


def damage(path: Path, kind: str) -> bytes:
    whole = path.read_bytes()
    damaged = b"" if kind == "empty" else whole[: len(whole) // 2]
    path.write_bytes(damaged)
    return damaged


async def filled(root: Path) -> None:
    """A broker that has something in each of its files, and a backup of it."""
    broker = made_broker(root, enablePropertyFilter="true", messageDelayLevel="0s 1h")
    async with running(broker), client_of(broker) as client:
        for number in range(MESSAGES):
            await client.send("Orders", b"%d" % number)
        await client.send("Later", properties={"DELAY": "1"})
        await until(lambda: broker.delay_offsets.get(1) == 1)
        wanted = SubscriptionData("Orders", "a > 1", expression_type=SQL92)
        await client.heartbeat(consumer("billing", wanted), consumer("shipping"))
        broker.offsets.commit("billing", "Orders", 0, 7)
        broker.offsets.commit("shipping", "Orders", 0, 70)
    async with running(made_broker(root, enablePropertyFilter="true", messageDelayLevel="0s 1h")):
        pass  # its end writes each file once more, and with it the backup


@pytest.mark.parametrize("kind", ["empty", "cut"])
@pytest.mark.parametrize("with_backup", [True, False])
@pytest.mark.parametrize("name", FILES)
async def test_a_damaged_table_is_told_kept_aside_and_recovered(
    tmp_path: Path, name: str, with_backup: bool, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    await filled(tmp_path)
    path = tmp_path / "config" / name
    damaged = damage(path, kind)
    if not with_backup:
        path.with_name(name + ".bak").unlink(missing_ok=True)
    caplog.clear()
    broker = made_broker(tmp_path, enablePropertyFilter="true", messageDelayLevel="0s 1h")
    async with running(broker), client_of(broker) as client:
        assert caplog.text.count(f"event=state_file_damaged path={path}") == 1
        kept = path.with_name(name + ".damaged-1")
        assert kept.read_bytes() == damaged
        told = parse(await runtime_table(client)).damaged_state or ""
        fault = "is empty" if kind == "empty" else "cannot be read"
        sources = (
            ["the backup"]
            if with_backup
            else ["nothing"]
            if kind == "empty"
            else ["nothing", "what stood before the damage"]
        )
        assert told.startswith(tuple(f"{name} {fault}, {source} is used" for source in sources))
        if with_backup or name in RECOVERED_WITHOUT_BACKUP:
            assert FILES[name](broker)
        assert path.exists(), "what was recovered is written at once"
        kept.unlink()
        assert parse(await runtime_table(client)).damaged_state is None, "the operator has seen it"
    assert kept.exists() is False


@pytest.mark.parametrize("kind", ["empty", "cut"])
async def test_a_topic_whose_table_is_damaged_is_read_again_and_no_clean_up_takes_it(tmp_path: Path, kind: str) -> None:
    await filled(tmp_path)
    path = tmp_path / "config/topics.json"
    damage(path, kind)
    path.with_name("topics.json.bak").unlink()
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        assert (await client.ask(RequestCode.CLEAN_UNUSED_TOPIC)).code == ResponseCode.SUCCESS
        found: list[bytes] = []
        while len(found) < MESSAGES:
            found += [message.body for message in await client.read("Orders", offset=len(found))]
        assert found == [b"%d" % number for number in range(MESSAGES)]
        assert (await client.send("Orders")).code == ResponseCode.SUCCESS
    async with running(made_broker(tmp_path)) as again:
        assert "Orders" in again.topics.table


async def progress(client: Client, group: str) -> int | None:
    header = QueryConsumerOffsetHeader(group, "Orders", 0)
    answer = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)
    return answer.header(QueryConsumerOffsetResponseHeader).offset if answer.code == ResponseCode.SUCCESS else None


async def test_a_group_whose_progress_is_lost_misses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins at the first message, whatever its clients would do as a new group; a new group does as ever."""
    await filled(tmp_path)
    path = tmp_path / "config/consumerOffset.json"
    damage(path, "empty")
    path.with_name(path.name + ".bak").unlink()
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        monkeypatch.setattr(broker.store, "is_on_disk", lambda *_: True)
        told = (await runtime_table(client))["damagedState"]
        assert told.endswith("known groups without an offset begin at the first message")
        assert (await progress(client, "billing"), await progress(client, "newcomers")) == (0, None)
        broker.offsets.commit("billing", "Orders", 0, 20)
        assert await progress(client, "billing") == 20
        unread = broker.unread.first()
        assert unread is not None, "nobody knows what is read"
        assert "cannot be read" in unread.text
    path.with_name(path.name + ".damaged-1").unlink()
    again = made_broker(tmp_path)
    async with running(again), client_of(again) as client:
        monkeypatch.setattr(again.store, "is_on_disk", lambda *_: True)
        assert (await progress(client, "billing"), await progress(client, "shipping")) == (20, None)


async def test_entries_before_a_cut_are_kept(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker):
        for number in range(100):
            broker.offsets.commit(f"group-{number:02}", "Orders", 0, number)
    path = tmp_path / "config/consumerOffset.json"
    path.write_text(path.read_text()[:-200])
    path.with_name(path.name + ".bak").unlink(missing_ok=True)
    async with running(made_broker(tmp_path)) as again:
        known = [again.offsets.query(f"group-{number:02}", "Orders", 0) for number in range(100)]
        count = next(number for number, offset in enumerate(known) if offset is None)
        assert count > 90
        assert known == [*range(count), *[None] * (100 - count)]


async def test_what_a_master_has_lost_its_slave_tells(tmp_path: Path) -> None:
    """Topics as they were, groups, and progress."""
    names = NameServer(NamesrvOptions(listen_port=0, kv_config_path=str(tmp_path / "kv.json")))
    await names.start()
    try:
        pairs = {"namesrvAddr": names.address}
        master = made_broker(tmp_path / "master", **pairs)
        slave = made_broker(tmp_path / "slave", brokerRole=SLAVE, brokerId="1", **pairs)
        await master.start()
        async with running(slave):
            master.topics.put(TopicConfig("Orders", 5, 5, 4))
            master.groups.put(SubscriptionGroup("billing", retry_max=3))
            async with client_of(master) as client:
                master.topics.put(TopicConfig("Bills", 1, 1))
                for _ in range(9):
                    await client.send("Bills")
            master.offsets.commit("billing", "Bills", 0, 7)
            await until(lambda: slave.offsets.query("billing", "Bills", 0) == 7, "the slave to copy")
            await master.stop()
            for name in ("topics.json", "subscriptionGroup.json", "consumerOffset.json"):
                path = tmp_path / "master/config" / name
                damage(path, "empty")
                path.with_name(name + ".bak").unlink(missing_ok=True)
            again = made_broker(tmp_path / "master", **pairs)
            async with running(again):
                assert again.topics.table["Orders"] == TopicConfig("Orders", 5, 5, 4)
                assert again.groups.table["billing"].retry_max == 3
                assert again.offsets.query("billing", "Bills", 0) == 7
    finally:
        await names.stop()


async def test_a_short_checkpoint_is_told_and_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(made_broker(tmp_path)) as broker, client_of(broker) as client:
        await client.send("Orders")
    for number, size in enumerate((0, 20), 1):
        path = tmp_path / "checkpoint"
        path.write_bytes(path.read_bytes()[:size])
        async with running(made_broker(tmp_path)) as again, client_of(again) as client:
            assert f"event=state_file_damaged path={path}" in caplog.text
            assert f"checkpoint.damaged-{number}" in (await runtime_table(client))["damagedState"]
            assert len(await client.read("Orders")) == 1


async def test_what_is_kept_of_a_file_has_a_limit(tmp_path: Path) -> None:
    config = tmp_path / "config"
    async with running(made_broker(tmp_path)):
        pass
    for number in range(8):
        (config / "topics.json").write_text(json.dumps(number))
        async with running(made_broker(tmp_path)):
            pass
    kept = sorted(config.glob("topics.json.damaged-*"))
    assert [path.read_text() for path in kept] == ["3", "4", "5", "6", "7"]


def test_the_page_names_every_file_that_is_shown_here() -> None:
    page = (Path(__file__).parents[2] / "docs/recovery.md").read_text(encoding="utf-8")
    section = page.split("## When a state file is damaged\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(?:config/)?([^`]+)` \|", section, re.MULTILINE)
    assert rows == [*FILES, "checkpoint"]
    named = re.findall(r"`(?:config/)?([\w.]+\.(?:json|toml|yml|mdb))`", section.split("Others use the backup")[1])
    assert sorted(named) == sorted(name for name in PARTS if " " not in name)
