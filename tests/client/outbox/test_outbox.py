"""What cannot be sent waits on disk and is sent later, in order; or its loss is told, with the reason."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import lmdb
import pytest

from orbitmq.client import Message, MessageQueue, Producer, SendStatus, sync
from orbitmq.client.outbox import Outbox, OutboxEntry, OutboxLimits
from orbitmq.client.outbox.file import NUMBER, OutboxFile, _Write
from orbitmq.client.outbox.record import Loss, LossReason
from orbitmq.client.outbox.sync import Outbox as SyncOutbox
from orbitmq.errors import BrokerError, ClientError, ConfigurationError, OrbitMQError, StoreError, StoreLocked
from orbitmq.net.connection import Connection
from orbitmq.runtime.clock import ManualClock
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers import SendMessageResponseHeader
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import BROKER, FakeSystem, fake_system, refuse, silence
from tests.support.loops import TurnedLoop, run, settle, turned_loop, until

SEND = RequestCode.SEND_MESSAGE_V2
UNAVAILABLE = ResponseCode.SERVICE_NOT_AVAILABLE
DEADLINE_SECONDS = 20


class Scene:
    """A system, a producer with an outbox, and the losses that were told."""

    def __init__(self, system: FakeSystem, producer: Producer, outbox: Outbox, clock: ManualClock, losses: list[Loss]):
        self.system, self.producer, self.outbox, self.clock, self.losses = system, producer, outbox, clock, losses

    async def keep(self, body: bytes, **where: str) -> OrbitMQError:
        """Send while the broker refuses; the error."""
        with pytest.raises(OrbitMQError) as raised:
            await self.producer.send(Message("T", body, keys="k" + body.decode()), **where)  # type: ignore[arg-type]
        return raised.value

    def down(self, code: int = UNAVAILABLE) -> None:
        self.system.answers[SEND] = refuse(code, "down")

    def up(self) -> None:
        del self.system.answers[SEND]

    def bodies(self) -> list[bytes]:
        return [unit.body for units in self.system.messages.values() for unit in units]

    async def turn(self, seconds: float) -> None:
        """Both clocks at once: a send that began between them would have no time left."""
        await settle()
        self.clock.advance(int(seconds * 1000))
        turned_loop()._turned_seconds += seconds
        await settle()


@asynccontextmanager
async def scene(path: Path, **options: object) -> AsyncIterator[Scene]:
    clock, losses = ManualClock(), list[Loss]()
    options.setdefault("on_loss", losses.append)
    outbox = Outbox(path / "outbox", clock=clock, **options)  # type: ignore[arg-type]
    async with fake_system() as system, Producer("g", system.address, outbox=outbox, retry_times=0) as producer:
        yield Scene(system, producer, outbox, clock, losses)


def test_a_kept_message_is_sent_when_its_time_comes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path) as at:
            at.down()
            error = await at.keep(b"1")
            assert error.stored_locally
            (entry,) = at.outbox.entries()
            assert (entry.topic, entry.attempts, len(at.outbox)) == ("T", 0, 1)
            at.up()
            await at.turn(0.5)
            assert at.bodies() == []
            await at.turn(1)
            await until(lambda: at.outbox.delivered == 1)
            assert at.bodies() == [b"1"]
            (unit,) = [unit for units in at.system.messages.values() for unit in units]
            assert entry.msg_id in unit.properties, "the unique id stays, so that consumers know it again"
            assert not at.outbox
            assert not at.losses

    run(scenario(), TurnedLoop)


def test_pauses_grow_while_the_broker_is_away(tmp_path: Path) -> None:
    async def scenario() -> None:
        seen: list[int] = []

        def pause(entry: OutboxEntry) -> float:
            seen.append(entry.attempts)
            return 10.0 * entry.attempts

        async with scene(tmp_path, next_pause=pause) as at:
            at.down()
            await at.keep(b"1")
            for attempts, pause_s in enumerate((1, 10, 20), 1):
                await at.turn(pause_s - 0.5)
                assert at.outbox.entries()[0].attempts == attempts - 1
                await at.turn(1)
                await until(lambda n=attempts: at.outbox.entries()[0].attempts == n)  # type: ignore[misc]
            assert seen == [1, 2, 3]
            assert "DESC: down" in at.outbox.entries()[0].error

    run(scenario(), TurnedLoop)


def test_a_broker_that_takes_a_message_gets_the_others_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path, next_pause=lambda _: 3600.0) as at:
            at.down()
            for number in range(5):
                await at.keep(b"%d" % number, sharding_key=str(number))
            await at.turn(2)
            await until(lambda: sum(entry.attempts for entry in at.outbox.entries()) == 5)
            at.up()
            await at.producer.send(Message("T", b"new"))
            await until(lambda: at.outbox.delivered == 5)
            assert sorted(at.bodies()) == [b"0", b"1", b"2", b"3", b"4", b"new"]

    run(scenario(), TurnedLoop)


def test_messages_of_one_key_keep_their_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path, raises=False) as at:
            at.down()
            assert (await at.producer.send(Message("T", b"0"), sharding_key="k")).status is SendStatus.STORED_LOCALLY
            at.up()
            for number in range(1, 20):
                result = await at.producer.send(Message("T", b"%d" % number), sharding_key="k")
                assert result.status is SendStatus.STORED_LOCALLY, "it must not overtake those that wait"
            assert (await at.producer.send(Message("T", b"x"), sharding_key="z")).status is SendStatus.SEND_OK
            await until(lambda: at.outbox.delivered == 20)
            assert [body for body in at.bodies() if body != b"x"] == [b"%d" % number for number in range(20)]
            assert (await at.producer.send(Message("T", b"y"), sharding_key="k")).status is SendStatus.SEND_OK

    run(scenario(), TurnedLoop)


def test_every_way_of_sending_is_kept(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path) as at:
            at.down()
            at.system.answers[RequestCode.SEND_BATCH_MESSAGE] = refuse(UNAVAILABLE)
            queue = (await at.producer.fetch_publish_queues("TBW102"))[2]
            chosen = type(queue)("T", queue.broker_name, queue.queue_id)
            at.system.topics["T"] = 4
            for send in (
                at.producer.send_async(Message("T", b"async")),
                at.producer.send_batch([Message("T", b"b1"), Message("T", b"b2")]),
                at.producer.send(Message("T", b"chosen"), queue=chosen),
            ):
                with pytest.raises(OrbitMQError) as raised:
                    await send
                assert raised.value.stored_locally
            at.up()
            del at.system.answers[RequestCode.SEND_BATCH_MESSAGE]
            await at.turn(2)
            await until(lambda: at.outbox.delivered == 3)
            assert sorted(at.bodies()) == [b"async", b"b1", b"b2", b"chosen"]
            assert b"chosen" in [unit.body for unit in at.system.messages["T", 2]]

    run(scenario(), TurnedLoop)


def test_what_waits_is_there_after_the_next_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path) as at:
            at.down()
            for number in range(3):
                await at.keep(b"%d" % number, sharding_key="k")
            await at.turn(1)
            await until(lambda: at.outbox.entries()[0].attempts == 1)
        async with scene(tmp_path) as at:
            assert [entry.attempts for entry in at.outbox.entries()] == [1, 0, 0]
            await at.turn(10)
            await until(lambda: at.outbox.delivered == 3)
            assert at.bodies() == [b"0", b"1", b"2"]
            assert not at.losses
        async with scene(tmp_path) as at:
            assert not at.outbox

    run(scenario(), TurnedLoop)


def test_an_outbox_may_have_one_producer_after_another(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox", raises=False)

    async def scenario(body: bytes, status: SendStatus, found: int) -> None:
        async with fake_system() as system, Producer("g", system.address, outbox=outbox, retry_times=0) as producer:
            assert (len(outbox), outbox.stored) == (found, 0)
            if status is SendStatus.STORED_LOCALLY:
                system.answers[SEND] = refuse(UNAVAILABLE)
            await until(lambda: outbox.delivered == found)
            assert (await producer.send(Message("T", body), sharding_key="k")).status is status
            stored = [unit.body for units in system.messages.values() for unit in units]
            assert stored == ([] if status is SendStatus.STORED_LOCALLY else [b"kept", body])

    run(scenario(b"kept", SendStatus.STORED_LOCALLY, 0))
    run(scenario(b"sent", SendStatus.SEND_OK, 1))
    assert not outbox


def test_one_outbox_has_one_producer(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path):
            with pytest.raises(StoreLocked, match="belongs to another producer"):
                async with scene(tmp_path):
                    pass
        async with scene(tmp_path):
            pass

    run(scenario())


async def _resend(*_: object) -> None:
    raise AssertionError("nothing waits")


@pytest.mark.parametrize("step", ["__init__", "read_all"])
async def test_an_opening_that_is_cancelled_unlocks_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    begun, disk, usual, close = threading.Event(), threading.Event(), getattr(OutboxFile, step), OutboxFile.close
    closed: list[OutboxFile] = []

    def slow(*args: Any, **kwargs: Any) -> Any:
        begun.set()
        disk.wait(DEADLINE_SECONDS)
        return usual(*args, **kwargs)

    def close_and_note(file: OutboxFile) -> int:
        left = close(file)
        closed.append(file)
        return left

    outbox = Outbox(tmp_path)
    monkeypatch.setattr(OutboxFile, step, slow)
    monkeypatch.setattr(OutboxFile, "close", close_and_note)
    opening = asyncio.create_task(outbox.open(_resend))
    await until(begun.is_set)
    opening.cancel()
    await settle()
    disk.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await until(lambda: closed)
    monkeypatch.undo()
    await outbox.open(_resend)
    await outbox.close()


async def test_an_opening_that_fails_unlocks_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise StoreError("a broken disk")

    outbox = Outbox(tmp_path)
    monkeypatch.setattr(OutboxFile, "read_all", fail)
    with pytest.raises(StoreError, match="a broken disk"):
        await outbox.open(_resend)
    monkeypatch.undo()
    await outbox.open(_resend)
    await outbox.close()


async def test_a_shutdown_that_is_cancelled_unlocks_the_directory(tmp_path: Path) -> None:
    async with fake_system() as system:
        outbox = Outbox(tmp_path)
        producer = Producer("g", system.address, outbox=outbox)
        await producer.start()
        await producer.send(Message("T", b"first"))
        system.answers[SEND] = silence()
        send = producer.send_async(Message("T", b"silent"))
        closing = asyncio.create_task(producer.shutdown())
        await settle()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        send.cancel()
        async with Producer("g", system.address, outbox=Outbox(tmp_path)):
            pass


# ------------------------------------------------------------------------------------------------------------- losses


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (OutboxLimits(messages_max=2), LossReason.LIMIT_COUNT),
        (OutboxLimits(bytes_max=1300), LossReason.LIMIT_BYTES),
        (OutboxLimits(writes_bytes_max=1300), LossReason.ASYNC_QUEUE_FULL),
        (OutboxLimits(writes_max=2), LossReason.ASYNC_QUEUE_FULL),
    ],
)
def test_a_full_outbox_takes_no_more_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: OutboxLimits, reason: LossReason
) -> None:
    disk, commit = threading.Event(), OutboxFile._commit

    def slow(*args: Any) -> None:
        disk.wait(DEADLINE_SECONDS)
        commit(*args)

    async def scenario() -> None:
        async with scene(tmp_path, limits=limits) as at:
            at.down()
            monkeypatch.setattr(OutboxFile, "_commit", slow)
            errors = await asyncio.gather(*(at.keep(b"%d" % number) for number in range(4)))
            disk.set()
            kept = [error.stored_locally for error in errors]
            assert kept.count(True) == len(at.outbox) == 2
            await until(lambda: len(at.losses) == 2)
            assert {loss.reason for loss in at.losses} == {reason}
            assert {loss.keys for loss in at.losses} <= {"k0", "k1", "k2", "k3"}
            assert at.outbox.lost[reason] == 2

    run(scenario())


def test_a_message_larger_than_the_outbox_takes_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path, limits=OutboxLimits(message_bytes_max=200)) as at:
            at.down()
            assert not (await at.keep(b"1" * 300)).stored_locally
            await until(lambda: at.losses)
            assert at.losses[0].reason is LossReason.LIMIT_MESSAGE_SIZE

    run(scenario())


def test_the_oldest_goes_for_the_newest_when_asked_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path, limits=OutboxLimits(messages_max=2), drop_oldest=True) as at:
            at.down()
            for number in range(4):
                assert (await at.keep(b"%d" % number, sharding_key=str(number))).stored_locally
            await until(lambda: len(at.losses) == 2)
            assert [(loss.reason, loss.body) for loss in at.losses] == [
                (LossReason.EVICTED, b"0"),
                (LossReason.EVICTED, b"1"),
            ]
            at.up()
            await at.turn(2)
            await until(lambda: at.outbox.delivered == 2)
            assert sorted(at.bodies()) == [b"2", b"3"]

    run(scenario(), TurnedLoop)


def test_rules_decide_what_is_kept_and_what_is_given_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        def wants(message: object, error: OrbitMQError) -> bool:
            if b"broken rule" in message.body:  # type: ignore[attr-defined]
                raise RuntimeError("a bug")
            return b"no" not in message.body  # type: ignore[attr-defined]

        def twice(entry: OutboxEntry) -> float | None:
            return 1.0 if entry.attempts < 2 else None

        async with scene(tmp_path, should_store=wants, next_pause=twice) as at:
            at.down()
            assert not (await at.keep(b"no")).stored_locally
            assert (await at.keep(b"broken rule")).stored_locally, "a rule that fails loses nothing"
            while len(at.losses) < 2:  # an attempt needs the network, so its pause may begin after a turn
                await at.turn(2)
                await asyncio.sleep(0.01)
            assert [loss.reason for loss in at.losses] == [LossReason.RULE_REJECTED, LossReason.GAVE_UP]
            assert not at.outbox

    run(scenario(), TurnedLoop)


def test_what_is_refused_for_good_and_what_is_too_old_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path, limits=OutboxLimits(age_max_s=60)) as at:
            at.down(ResponseCode.NO_PERMISSION)
            assert not (await at.keep(b"0")).stored_locally
            at.down()
            await at.keep(b"1")
            at.down(ResponseCode.NO_PERMISSION)
            await at.turn(2)
            await until(lambda: len(at.losses) == 2)
            at.down()
            await at.keep(b"2")
            await at.turn(61)
            await until(lambda: len(at.losses) == 3)
            reasons = [loss.reason for loss in at.losses]
            assert reasons == [LossReason.RULE_REJECTED, LossReason.NON_RETRYABLE, LossReason.EXPIRED]
            assert at.losses[2].first_failed_ms == at.clock.now_ms() - 61_000

    run(scenario(), TurnedLoop)


def test_a_damaged_message_is_told_and_the_others_go(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path) as at:
            at.down()
            for number in range(3):
                await at.keep(b"%d" % number)
        _damage(tmp_path / "outbox", 2)
        async with scene(tmp_path) as at:
            await until(lambda: at.losses)
            assert [loss.reason for loss in at.losses] == [LossReason.CORRUPT_RECORD]
            await until(lambda: at.outbox.delivered == 2)  # a start tries at once
            assert at.bodies() == [b"0", b"2"]
        async with scene(tmp_path) as at:
            assert not at.outbox
            assert not at.losses

    run(scenario(), TurnedLoop)


def _damage(path: Path, number: int) -> None:
    with lmdb.open(str(path), max_dbs=2) as env, env.begin(db=env.open_db(b"messages"), write=True) as transaction:
        data = bytearray(transaction.get(NUMBER.pack(number)))
        data[-1] ^= 1
        transaction.put(NUMBER.pack(number), bytes(data))


def test_a_disk_that_takes_nothing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise lmdb.MapFullError("full")

    async def scenario() -> None:
        async with scene(tmp_path, durable=True) as at:
            at.down()
            monkeypatch.setattr(OutboxFile, "_commit", full)
            assert not (await at.keep(b"1")).stored_locally
            assert not at.outbox
            monkeypatch.undo()
            assert (await at.keep(b"2")).stored_locally
            await until(lambda: at.losses)
            assert [(loss.reason, loss.keys) for loss in at.losses] == [(LossReason.WRITE_ERROR, "k1")]

    run(scenario())


async def test_a_send_that_is_cancelled_holds_up_no_other_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, commit = threading.Event(), OutboxFile._commit

    def slow(*args: Any) -> None:
        disk.wait(DEADLINE_SECONDS)
        commit(*args)

    async with scene(tmp_path, durable=True) as at:
        at.down()
        monkeypatch.setattr(OutboxFile, "_commit", slow)
        sends = [asyncio.create_task(at.keep(b"0"))]
        await until(lambda: len(at.outbox) == 1)  # its write is the first transaction, the others share the second
        sends += [asyncio.create_task(at.keep(b"%d" % number)) for number in range(1, 3)]
        await until(lambda: len(at.outbox) == 3)
        purge = asyncio.create_task(at.outbox.purge("other"))
        sends.append(asyncio.create_task(at.keep(b"3")))
        await until(lambda: len(at.outbox) == 4)
        sends[1].cancel()
        purge.cancel()
        disk.set()
        async with asyncio.timeout(DEADLINE_SECONDS):
            results = await asyncio.gather(*sends, purge, return_exceptions=True)
        cancelled = [isinstance(result, asyncio.CancelledError) for result in results]
        assert cancelled == [False, True, False, False, True]
        assert len(at.outbox) == 4, "a cancelled send is kept all the same"


def test_a_write_whose_callback_fails_holds_up_no_other(tmp_path: Path) -> None:
    called: list[Exception | None] = []

    def fail(_: Exception | None) -> None:
        raise RuntimeError("a bug")

    file = OutboxFile(tmp_path, bytes_max=1 << 20, deliver=lambda tell: tell())
    file._call_back([_Write(0, None, None, 0, done) for done in (fail, called.append)], None)
    assert called == [None]
    file.close()


def test_what_was_accepted_is_written_although_the_loop_is_closed(tmp_path: Path) -> None:
    def closed(_: Callable[[], None]) -> None:
        raise RuntimeError("Event loop is closed")

    file = OutboxFile(tmp_path, bytes_max=1 << 20, deliver=closed)
    for number in (1, 2):
        file._write([_Write(number, b"x", None, 1, lambda _: None)])
    assert file.close() == 0
    file = OutboxFile(tmp_path, bytes_max=1 << 20, deliver=closed)
    assert [number for number, _, _ in file.read_all()] == [1, 2]
    file.close()


def test_a_callback_that_fails_or_hangs_holds_up_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        release, seen = threading.Event(), list[str]()

        def slow(loss: Loss) -> None:
            seen.append(loss.keys)
            if len(seen) == 1:
                raise RuntimeError("a bug")
            release.wait(DEADLINE_SECONDS)

        async with scene(tmp_path, should_store=lambda *_: False, on_loss=slow) as at:
            at.down()
            for number in range(3):
                await at.keep(b"%d" % number)
            await until(lambda: seen == ["k0", "k1"])
            at.up()
            await at.producer.send(Message("T", b"fine"))
            release.set()
            await until(lambda: seen == ["k0", "k1", "k2"])

    run(scenario())


def test_a_coroutine_may_take_the_losses(tmp_path: Path) -> None:
    async def scenario() -> None:
        seen: list[LossReason] = []

        async def note(loss: Loss) -> None:
            await asyncio.sleep(0)
            seen.append(loss.reason)

        async with scene(tmp_path, should_store=lambda *_: False, on_loss=note) as at:
            at.down()
            await at.keep(b"1")
        assert seen == [LossReason.RULE_REJECTED], "what was not told yet is told at shutdown"

    run(scenario())


def test_limits_that_leave_no_room_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="messages_max of an outbox: 0 is not allowed"):
        Outbox(tmp_path, limits=OutboxLimits(messages_max=0))


# ------------------------------------------------------------------------------------------------------ looking inside


def test_what_waits_can_be_purged(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path, next_pause=lambda _: 3600.0) as at:
            at.down()
            await at.keep(b"old")
            at.clock.advance(500)  # the first of its attempts comes after a second
            await at.keep(b"new")
            assert await at.outbox.purge("other") == 0
            assert await at.outbox.purge(before_ms=at.clock.now_ms()) == 1
            assert len(at.outbox) == 1
        async with scene(tmp_path, next_pause=lambda _: 3600.0) as at:
            assert len(at.outbox) == 1
            assert await at.outbox.purge() == 1
            assert at.outbox.size == 0
            assert not at.losses, "somebody wanted it"

    run(scenario())


def test_threads_have_the_outbox_too(tmp_path: Path) -> None:
    losses: list[Loss] = []
    outbox = SyncOutbox(tmp_path / "outbox", raises=False, on_loss=losses.append)
    with sync.Producer("g", "127.0.0.1:1", outbox=outbox, retry_times=0) as producer:
        result = producer.send(Message("T", b"x"))
        assert result.status is SendStatus.STORED_LOCALLY
        assert [entry.topic for entry in outbox.entries()] == ["T"]
        assert (len(outbox), outbox.stored, outbox.delivered) == (1, 1, 0)
        assert outbox.purge() == 1
        assert outbox.size == 0


# ------------------------------------------------------------------------------------------------------------- kill -9

VICTIM = """
import sys
from orbitmq.client import Message
from orbitmq.client.sync import Producer
from orbitmq.client.outbox.sync import Outbox
outbox = Outbox(sys.argv[1], raises=False, durable=sys.argv[2] == "durable")
with Producer("g", "127.0.0.1:1", outbox=outbox, retry_times=0) as producer:
    for number in range(100_000):
        result = producer.send(Message("T", b"%d" % number))
        print(result.status.name, number, flush=True)
"""


@pytest.mark.parametrize("mode", ["durable", "asynchronous"])
def test_kill_9_loses_nothing_that_was_written_and_counts_the_rest(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "outbox"
    victim = subprocess.Popen(
        [sys.executable, "-c", VICTIM, str(path), mode], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert victim.stdout is not None
    told = list(islice(victim.stdout, 200))
    victim.send_signal(signal.SIGKILL)
    told += victim.stdout.readlines()
    victim.wait(DEADLINE_SECONDS)
    kept = sum(line.startswith("STORED_LOCALLY") and line.endswith("\n") for line in told)

    async def scenario() -> tuple[int, int]:
        losses: list[Loss] = []
        outbox = Outbox(path, on_loss=losses.append)
        async with Producer("g", "127.0.0.1:1", outbox=outbox):
            await settle()
            return len(outbox), outbox.lost[LossReason.UNCLEAN_SHUTDOWN]

    found, lost = run(scenario())
    print(f"{mode}: {kept} kept, {found} found, {lost} told as lost")
    assert kept >= 200
    assert kept <= found + lost <= kept + 1
    if mode == "durable":
        assert found >= kept


def test_errors_tell_whether_the_message_was_kept() -> None:
    assert not ClientError(1, "x").stored_locally
    assert not BrokerError(1, "x", "a").stored_locally


def test_what_a_selector_chose_in_a_namespace_is_kept_with_its_queue(tmp_path: Path) -> None:
    async def scenario() -> None:
        outbox = Outbox(tmp_path / "outbox", raises=False)
        async with (
            fake_system() as system,
            Producer("g", system.address, outbox=outbox, retry_times=0, namespace="NS") as producer,
        ):
            await producer.send(Message("T", b"first"))
            system.answers[SEND] = refuse(UNAVAILABLE, "down")
            result = await producer.send(Message("T", b"x"), selector=lambda queues, _message, _arg: queues[2])
            assert result.status is SendStatus.STORED_LOCALLY
            assert result.queue == MessageQueue("T", BROKER, 2)
            (entry,) = outbox.entries()
            assert entry.topic == "NS%T"

    run(scenario())


def test_an_asynchronous_send_whose_turn_never_came_is_kept(tmp_path: Path) -> None:
    async def scenario() -> None:
        outbox = Outbox(tmp_path / "outbox", raises=False)
        async with (
            fake_system() as system,
            Producer("g", system.address, outbox=outbox, async_in_flight_max=1) as producer,
        ):
            await producer.send(Message("T", b"first"))
            system.answers[SEND] = silence()
            first = producer.send_async(Message("T", b"silent"), timeout=30)
            second = producer.send_async(Message("T", b"waits"), timeout=0.05)
            assert (await second).status is SendStatus.STORED_LOCALLY
            assert [entry.attempts for entry in outbox.entries()] == [0]
            first.cancel()

    run(scenario())


def test_what_gets_through_while_the_outbox_closes_is_not_sent_once_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        arrived, gate = asyncio.Event(), asyncio.Event()

        async def late(_connection: Connection, command: Command) -> Command:
            arrived.set()
            await gate.wait()
            return command.response(0, header=SendMessageResponseHeader("stored", 0, 0))

        async with scene(tmp_path) as at:
            at.down()
            await at.keep(b"1")
            at.system.answers[SEND] = late
            await at.turn(1)
            await arrived.wait()
            closing = asyncio.create_task(at.producer.shutdown())
            await settle()
            gate.set()
            await closing
            assert at.outbox.delivered == 1
        async with scene(tmp_path) as at:
            assert not at.outbox

    run(scenario(), TurnedLoop)


def test_the_former_module_of_the_sync_outbox_warns() -> None:
    with pytest.warns(DeprecationWarning, match=r"is now orbitmq\.client\.outbox\.sync"):
        former = importlib.reload(importlib.import_module("orbitmq.client.sync_outbox"))
    assert former.Outbox is importlib.import_module("orbitmq.client.outbox.sync").Outbox
