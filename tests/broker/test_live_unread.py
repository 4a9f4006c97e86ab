"""A disk that is nearly full takes no file that is fresh and holds what a known group has not read."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from orbitmq.broker.archive_guard import LOOK_SECONDS
from orbitmq.broker.broker import Broker
from orbitmq.message.config import SubscriptionData
from orbitmq.runtime.refusals import Limit
from orbitmq.store.cleaner import FIRST_ROUND_MS
from orbitmq.store.options import SLAVE
from orbitmq.store.retention import HOUR_MS
from orbitmq.wire.bodies import MessageModel
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers_admin import DeleteSubscriptionGroupHeader
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.settings import encode_settings
from tests.support.cleaning import PER_FILE, SMALL, clean, runtime_table
from tests.support.disk import FaultyDisk
from tests.support.live import Client, Time, client_of, consumer, made_broker, running
from tests.support.loops import LoopFactory

GROUP = "billing"
FILES = 4
ALL = FILES * 4096  # where the log begins when all but the last file are gone
Situation = Callable[[Broker, Client], Awaitable[None]]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FaultyDisk:
    disk = FaultyDisk()
    monkeypatch.setattr("orbitmq.store.engine.Files", lambda: disk)
    return disk


async def filled(broker: Broker, client: Client, time: Time, topic: str = "Orders", **fields: object) -> None:
    """Four whole files of three messages each and one in use, all fresh."""
    broker.store._clean_worker.stop()  # the test makes its steps
    for _ in range(FILES * PER_FILE + 1):
        assert (await client.send(topic, bytes(1000), **fields)).code == ResponseCode.SUCCESS
    await time.pass_by(FIRST_ROUND_MS / 1000)
    written(broker, time, 0)


def written(broker: Broker, time: Time, hours_ago: int) -> None:
    at_ns = (time.clock.now_ms() - hours_ago * HOUR_MS) * 1_000_000
    for file in broker.store.commit_log.files.files:
        os.utime(file.path, ns=(at_ns, at_ns))


async def test_a_full_disk_refuses_messages_until_groups_have_read_the_old_ones(
    tmp_path: Path, turned_clock: LoopFactory, disk: FaultyDisk, caplog: pytest.LogCaptureFixture
) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, **SMALL)
    async with running(broker), client_of(broker) as client:
        await filled(broker, client, time)
        broker.offsets.commit(GROUP, "Orders", 0, 4)  # in the second file
        broker.offsets.commit("faster", "Orders", 0, 9)
        disk.used = 0.91
        assert await clean(broker, time) == 4096, "what everybody has read goes"
        for _ in range(2):
            answer = await client.send("Orders")
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert broker.refusals.counts[Limit.DISK] == 2
        table = await runtime_table(client)
        text = f"{GROUP} has not read message 4 of Orders, queue 0"
        assert (table["diskRefusesMessages"], table["diskHeldFor"]) == ("true", text)
        assert caplog.text.count("event=unread_log_file_kept") == 1, "once a file"
        assert caplog.text.count("event=message_refused") == 1
        assert f"held_for='{text}'" in caplog.text
        broker.offsets.commit(GROUP, "Orders", 0, FILES * PER_FILE)
        assert await clean(broker, time) == 3 * 4096, "as far as the other group"
        disk.used = 0.5
        await clean(broker, time)
        assert (await client.send("Orders")).code == ResponseCode.SUCCESS
        table = await runtime_table(client)
        assert (table["diskRefusesMessages"], table["diskHeldFor"]) == ("false", "")


async def test_on_the_operators_word_a_full_disk_takes_what_nobody_has_read(
    tmp_path: Path, turned_clock: LoopFactory, disk: FaultyDisk, caplog: pytest.LogCaptureFixture
) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, **SMALL)
    async with running(broker), client_of(broker) as client:
        await filled(broker, client, time)
        broker.offsets.commit(GROUP, "Orders", 0, 4)
        disk.used = 0.89
        assert await clean(broker, time) == 4096
        body = encode_settings({"cleanUnreadFileForciblyEnable": "true"})
        assert (await client.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body)).code == ResponseCode.SUCCESS
        assert await clean(broker, time) == ALL
        assert caplog.text.count("event=unread_log_file_removed") == 3
        assert (await runtime_table(client))["diskHeldFor"] == ""


async def no_group(_broker: Broker, _client: Client) -> None:
    """Nobody has ever read the topic."""


async def behind(broker: Broker, _client: Client) -> None:
    broker.offsets.commit(GROUP, "Orders", 0, 1)


async def without_an_offset_of_this_queue(broker: Broker, _client: Client) -> None:
    broker.offsets.commit(GROUP, "Orders", 1, 1)


async def expired(broker: Broker, client: Client) -> None:
    """A group that is long dead holds nothing for ever."""
    await behind(broker, client)
    at_ns = (broker.store._clock.now_ms() - 73 * HOUR_MS) * 1_000_000
    for file in broker.store.commit_log.files.files:
        os.utime(file.path, ns=(at_ns, at_ns))


async def deleted(broker: Broker, client: Client) -> None:
    await behind(broker, client)
    header = DeleteSubscriptionGroupHeader(GROUP, remove_offset=True)
    assert (await client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)).code == ResponseCode.SUCCESS


async def online(_broker: Broker, client: Client) -> None:
    await client.heartbeat(consumer(GROUP, SubscriptionData("Orders")))


async def broadcasting(_broker: Broker, client: Client) -> None:
    data = consumer(GROUP, SubscriptionData("Orders"), message_model=MessageModel.BROADCASTING)
    await client.heartbeat(data)


async def tools(broker: Broker, _client: Client) -> None:
    broker.offsets.commit("TOOLS_CONSUMER", "Orders", 0, 1)


@pytest.mark.parametrize(
    ("situation", "begin"),
    [
        (no_group, ALL), (behind, 0), (without_an_offset_of_this_queue, 0), (expired, ALL), (deleted, ALL),
        (online, 0), (broadcasting, ALL), (tools, ALL),
    ],
)  # fmt: skip
async def test_whose_messages_a_full_disk_spares(
    tmp_path: Path, turned_clock: LoopFactory, disk: FaultyDisk, situation: Situation, begin: int
) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, **SMALL)
    async with running(broker), client_of(broker) as client:
        await filled(broker, client, time)
        await situation(broker, client)
        disk.used = 0.89
        assert await clean(broker, time) == begin


@pytest.mark.parametrize(
    ("topic", "properties", "begin"),
    [
        (f"%RETRY%{GROUP}", {}, 0),
        (f"%DLQ%{GROUP}", {}, ALL),
        ("Later", {"DELAY": "3"}, 0),
        ("Open", {"TRAN_MSG": "true", "PGROUP": "sellers"}, 0),
    ],
)
async def test_what_the_broker_itself_has_to_hand_out_is_spared(
    tmp_path: Path, turned_clock: LoopFactory, disk: FaultyDisk, topic: str, properties: dict[str, str], begin: int
) -> None:
    """Messages to try again, delayed ones and open transactions are promised to somebody; nobody reads dead letters."""
    time = Time()
    broker = made_broker(
        tmp_path, time.clock, transactionCheckInterval="3600000", messageDelayLevel="1s 1m 1d", **SMALL
    )
    async with running(broker), client_of(broker) as client:
        await client.heartbeat(consumer(GROUP))
        broker.topics.create_for_system(topic, 1)
        fields = {"sys_flag": 4} if "TRAN_MSG" in properties else {}
        await filled(broker, client, time, topic, properties=properties, **fields)
        disk.used = 0.89
        assert await clean(broker, time) == begin


async def test_what_is_not_archived_is_spared(tmp_path: Path, turned_clock: LoopFactory, disk: FaultyDisk) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, archiveGuard="true", **SMALL)
    async with running(broker), client_of(broker) as client:
        await filled(broker, client, time)
        await time.pass_by(LOOK_SECONDS)
        disk.used = 0.89
        assert await clean(broker, time) == 0
        broker.offsets.commit("ORBITMQ_ARCHIVE", "Orders", 0, FILES * PER_FILE)
        await time.pass_by(LOOK_SECONDS)
        assert await clean(broker, time) == ALL


async def test_a_slave_spares_what_groups_have_not_read(
    tmp_path: Path, turned_clock: LoopFactory, disk: FaultyDisk
) -> None:
    """It cleans its own disk, by the offsets its master told: it may be the master tomorrow."""
    time = Time()
    broker = made_broker(tmp_path, time.clock, **SMALL)
    async with running(broker), client_of(broker) as client:
        await filled(broker, client, time)
    slave = made_broker(tmp_path, time.clock, brokerRole=SLAVE, brokerId="1", **SMALL)
    async with running(slave):
        slave.store._clean_worker.stop()
        written(slave, time, 0)
        await time.pass_by(FIRST_ROUND_MS / 1000)
        slave.offsets.commit(GROUP, "Orders", 0, 4)
        disk.used = 0.89
        assert await clean(slave, time) == 4096


RECOVERY = (Path(__file__).parents[2] / "docs/recovery.md").read_text(encoding="utf-8")
PAGE = re.search(r"## When the disk is full\n(.*?)\n## ", RECOVERY, re.DOTALL)


@pytest.mark.parametrize("setting", ["false", "true"])
@pytest.mark.parametrize("has_read", [True, False])
async def test_the_page_says_what_a_full_disk_does(
    tmp_path: Path,
    turned_clock: LoopFactory,
    disk: FaultyDisk,
    caplog: pytest.LogCaptureFixture,
    setting: str,
    has_read: bool,
) -> None:
    """Each cell of the table in docs/recovery.md, for both settings."""
    assert PAGE is not None
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE[1].splitlines() if line.startswith("|")]
    head, _, read, unread, crowded = rows
    column = next(number for number, cell in enumerate(head) if f"cleanUnreadFileForciblyEnable={setting}" in cell)
    time = Time()
    broker = made_broker(tmp_path, time.clock, cleanUnreadFileForciblyEnable=setting, **SMALL)
    async with running(broker), client_of(broker) as client:
        await filled(broker, client, time)
        broker.offsets.commit(GROUP, "Orders", 0, FILES * PER_FILE if has_read else 1)
        disk.used = 0.85
        assert await clean(broker, time) == 0, "from one percent above it on"
        disk.used = 0.86
        removed = await clean(broker, time) == ALL
        assert removed == (read if has_read else unread)[column].startswith("it is removed")
        assert (await client.send("Orders")).code == ResponseCode.SUCCESS
        lost = "unread_log_file_removed" in (read if has_read else unread)[column]
        assert ("event=unread_log_file_removed" in caplog.text) == lost
        disk.used = 0.91
        await clean(broker, time)
        assert "SERVICE_NOT_AVAILABLE" in crowded[1]
        assert (await client.send("Orders")).code == ResponseCode.SERVICE_NOT_AVAILABLE
