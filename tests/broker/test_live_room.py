"""Files of queues are not made on the event loop: a message that needs them waits, and others do not."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from orbitmq.runtime.refusals import Limit
from orbitmq.store.files import Files, MappedFile
from orbitmq.store.records import PutResult
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers import SendMessageResponseHeader
from tests.support.live import Time, client_of, made_broker, running
from tests.support.loops import LoopFactory, until


class SlowDisk(Files):
    """Makes files of queues when it is let, and remembers which threads made them."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.makers: list[threading.Thread] = []
        self.asked = 0
        self.refusal: OSError | None = None

    def create(self, path: Path, size: int) -> MappedFile:
        if "consumequeue" in path.parts:
            self.asked += 1
            self.makers.append(threading.current_thread())
            assert threading.current_thread() is not threading.main_thread() or self.may_go_on.is_set()
            self.may_go_on.wait(60)
            if self.refusal is not None:
                raise self.refusal
        return super().create(path, size)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    disk = SlowDisk()
    monkeypatch.setattr("orbitmq.store.engine.Files", lambda: disk)
    return disk


@pytest.mark.parametrize("kind", ["single", "batch", "delayed"])
async def test_the_first_messages_of_a_queue_wait_for_its_files_in_their_order_and_others_do_not(
    tmp_path: Path, disk: SlowDisk, kind: str
) -> None:
    broker = made_broker(tmp_path)
    properties = {"DELAY": "18"} if kind == "delayed" else {}
    async with running(broker), client_of(broker) as client, client_of(broker, "other") as other:
        await client.send("Orders", queue_id=1)
        disk.may_go_on.clear()
        if kind == "batch":
            sends = [client.send_batch("Orders", [b"%d" % n, b"+"], queue_id=0) for n in range(3)]
        else:
            sends = [client.send("Orders", b"%d" % n, properties, queue_id=0) for n in range(3)]
        waiting = [asyncio.create_task(send) for send in sends]
        await until(lambda: disk.asked == 2, "a file that is made")
        assert (await other.send("Orders", queue_id=1)).code == 0, "others are served meanwhile"
        assert not any(one.done() for one in waiting)
        disk.may_go_on.set()
        await until(lambda: broker.store._room._waiting == {}, "those that waited are stored")
        late = await client.send("Orders", b"3", properties, queue_id=0)
        answers = [(await one).header(SendMessageResponseHeader).queue_offset for one in waiting]
        assert answers == ([0, 2, 4] if kind == "batch" else [0, 1, 2]), "dense and in order"
        assert late.header(SendMessageResponseHeader).queue_offset == (6 if kind == "batch" else 3)
        if kind == "single":
            assert [message.body for message in await client.read("Orders", 0)] == [b"0", b"1", b"2", b"3"]
        assert threading.main_thread() not in disk.makers


async def test_no_room_for_the_first_message_of_a_queue_is_a_refusal_and_the_next_one_may_find_some(
    tmp_path: Path, disk: SlowDisk, caplog: pytest.LogCaptureFixture
) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        disk.refusal = OSError(errno.ENOSPC, "the disk is full")
        answer = await client.send("Orders", queue_id=0)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert broker.store.put_count == 0
        assert broker.refusals.counts[Limit.DISK] == 1
        assert "event=message_refused reason=disk_full topic=Orders" in caplog.text
        assert broker.statistics.totals.put_failures == 1
        disk.refusal = None
        assert (await client.send("Orders", queue_id=0)).header(SendMessageResponseHeader).queue_offset == 0


async def test_an_error_that_nobody_foresaw_is_the_answer_of_a_message_that_waited(
    tmp_path: Path, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        put = broker.store.put

        def fail_later(*arguments: Any) -> PutResult:
            if disk.asked:
                raise ValueError("unforeseen")
            return put(*arguments)

        monkeypatch.setattr(broker.store, "put", fail_later)
        disk.may_go_on.clear()
        waiting = asyncio.create_task(client.send("Orders", queue_id=0))
        await until(lambda: disk.asked == 1)
        disk.may_go_on.set()
        answer = await waiting
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "ValueError: unforeseen")


async def test_a_message_waits_for_a_silent_disk_for_as_long_as_a_busy_page_cache_may_take(
    tmp_path: Path, disk: SlowDisk, turned_clock: LoopFactory
) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, osPageCacheBusyTimeOutMills="1000")
    async with running(broker), client_of(broker) as client:
        disk.may_go_on.clear()
        waiting = asyncio.create_task(client.send("Orders", queue_id=0))
        await until(lambda: disk.asked == 1)
        await time.pass_by(1.5)
        answer = await waiting
        assert (answer.code, "PC_SYNCHRONIZED" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        disk.may_go_on.set()
        await until(lambda: not broker.store._room._under_way)
        assert (await client.send("Orders", queue_id=0)).header(SendMessageResponseHeader).queue_offset == 0
