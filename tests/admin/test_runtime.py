"""The runtime table of a broker is read as it is; what is not told is unknown, never a number."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.admin.runtime import DailyCount, DelayLevel, MeanRates, Replication, RequestQueue, Runtime, parse, size_of
from orbitmq.operations.statistics import runtime_info
from orbitmq.wire.requests import RequestCode
from tests.support.recorded import ADDRESS, exchange


def test_nothing_is_known_of_an_empty_table() -> None:
    assert parse({}) == Runtime()


def test_the_table_of_rocketmq() -> None:
    found = exchange(RequestCode.GET_BROKER_RUNTIME_INFO)
    runtime = parse(asyncio.run(runtime_info(found.remoting, ADDRESS)))
    assert runtime.version == "V4_9_7"
    assert runtime.booted_at_ms
    assert runtime.active is None
    assert runtime.free_buffers is None
    assert runtime.disk_total_bytes
    assert runtime.disk_free_bytes is not None
    assert 0 < runtime.disk_free_bytes < runtime.disk_total_bytes
    assert runtime.log_disk_ratio is not None
    assert 0 < runtime.log_disk_ratio < 1
    assert runtime.send_queue.capacity == 10_000
    assert runtime.unflushed_bytes is not None


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("12.5 3.0 1.0", MeanRates(12.5, 3.0, 1.0)),
        ("12.5  ", MeanRates(12.5, None, None)),
        ("  ", MeanRates()),
        ("", MeanRates()),
        ("NaN 0.0 x", MeanRates(None, 0.0, None)),
    ],
)
def test_a_young_broker_has_no_mean_over_ten_minutes(text: str, rates: MeanRates) -> None:
    assert parse({"putTps": text}).put_per_s == rates


def test_both_spellings_of_transferred() -> None:
    assert parse({"getTransferedTps": "1.0 2.0 3.0"}).transferred_per_s == MeanRates(1.0, 2.0, 3.0)
    assert parse({"getTransferredTps": "1.0 2.0 3.0"}).transferred_per_s == MeanRates(1.0, 2.0, 3.0)


def test_days_are_differences_of_totals() -> None:
    table = {"msgPutTotalYesterdayMorning": "10", "msgPutTotalTodayMorning": "25", "msgPutTotalTodayNow": "75"}
    assert parse(table).put_messages == DailyCount(50, 15)
    assert parse({"msgPutTotalTodayNow": "75"}).put_messages == DailyCount(None, None)


def test_how_long_a_broker_runs() -> None:
    assert parse({"runtime": "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"}).uptime_ms == 93_784_000
    assert parse({"runtime": "long"}).uptime_ms is None


def test_minus_one_is_unknown() -> None:
    runtime = parse({"earliestMessageTimeStamp": "-1", "commitLogDiskRatio": "-1.0", "dispatchBehindBytes": "x"})
    assert (runtime.oldest_message_at_ms, runtime.log_disk_ratio, runtime.undispatched_bytes) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "size"),
    [("0 B", 0), ("512 B", 512), ("1.0 KiB", 1024), ("3.5 MiB", 3_670_016), ("98.5 GiB", 105_763_569_664), ("?", None)],
)
def test_sizes_for_readers_are_bytes_again(text: str, size: int | None) -> None:
    assert size_of(text) == size


def test_disks_delays_and_queues() -> None:
    runtime = parse(
        {
            "commitLogDirCapacity": "Total : 2.0 GiB, Free : 1.0 GiB.",
            "commitLogDiskRatio_/data/b": "0.5",
            "commitLogDiskRatio_/data/a": "0.25",
            "scheduleMessageOffset_10": "3,5",
            "scheduleMessageOffset_2": "7,7",
            "putMessageDistributeTime": "[<=0ms]:4 [0~10ms]:1 ",
            "EndTransactionQueueSize": "1",
            "EndTransactionThreadPoolQueueCapacity": "100000",
        }
    )
    assert (runtime.disk_total_bytes, runtime.disk_free_bytes) == (2 << 30, 1 << 30)
    assert runtime.log_disk_ratios == {"/data/a": 0.25, "/data/b": 0.5}
    assert runtime.delays == [DelayLevel(2, 7, 7), DelayLevel(10, 3, 5)]
    assert [delay.waiting_messages for delay in runtime.delays] == [0, 2]
    assert runtime.put_times == {"<=0ms": 4, "0~10ms": 1}
    assert runtime.transaction_queue == RequestQueue(1, 100_000, None)


def test_what_orbitmq_says_of_its_slaves() -> None:
    master = parse({"replicationSlaves": "10.0.0.2:5,10.0.0.3:5", "replicationSlaveBytesBehind": "7"})
    assert master.replication == Replication(["10.0.0.2:5", "10.0.0.3:5"], 7)
    slave = parse({"replicationMaster": "10.0.0.1:10912", "replicationConnected": "false", "replicationRefusal": "no"})
    assert slave.replication == Replication(master="10.0.0.1:10912", connected=False, refusal="no")
