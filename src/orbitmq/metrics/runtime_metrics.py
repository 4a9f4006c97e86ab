"""Reads `table_exporter.RUNTIME` from a broker's runtime table. Pure: a missing or invalid value is None."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from orbitmq.admin.runtime import MeanRates, Runtime

Table = Mapping[str, str]
Read = Callable[[Table, Runtime], float | None]

_PUT_TIMES = {
    "0ms": "<=0ms", "0to10ms": "0~10ms", "10to50ms": "10~50ms", "50to100ms": "50~100ms", "100to200ms": "100~200ms",
    "200to500ms": "200~500ms", "500to1s": "500ms~1s", "1to2s": "1~2s", "2to3s": "2~3s", "3to4s": "3~4s",
    "4to5s": "4~5s", "5to10s": "5~10s", "10stomore": "10s~",
}  # fmt: skip
_RATES: dict[str, Callable[[Runtime], MeanRates]] = {
    "put": lambda runtime: runtime.put_per_s,
    "getfound": lambda runtime: runtime.found_per_s,
    "getmiss": lambda runtime: runtime.missed_per_s,
    "gettransfered": lambda runtime: runtime.transferred_per_s,
}
_KEYS = {
    "commitlog_disk_ratio": "commitLogDiskRatio",
    "consumequeue_disk_ratio": "consumeQueueDiskRatio",
    "dispatch_behind_bytes": "dispatchBehindBytes",
    "send_threadpool_queue_size": "sendThreadPoolQueueSize",
    "send_threadpoolqueue_capacity": "sendThreadPoolQueueCapacity",
    "send_threadpoolqueue_headwait_timemills": "sendThreadPoolQueueHeadWaitTimeMills",
    "pull_threadpoolqueue_size": "pullThreadPoolQueueSize",
    "pull_threadpoolqueue_capacity": "pullThreadPoolQueueCapacity",
    "pull_threadpoolqueue_headwait_timemills": "pullThreadPoolQueueHeadWaitTimeMills",
    "query_threadpoolqueue_size": "queryThreadPoolQueueSize",
    "query_threadpool_queue_capacity": "queryThreadPoolQueueCapacity",
    "query_threadpoolqueue_headwait_timemills": "queryThreadPoolQueueHeadWaitTimeMills",
    "pagecache_lock_time_mills": "pageCacheLockTimeMills",
    "put_latency_99": "putLatency99",
    "put_latency_999": "putLatency999",
    "msg_put_total_today_now": "msgPutTotalTodayNow",
    "msg_gettotal_today_now": "msgGetTotalTodayNow",
    "msg_puttotal_todaymorning": "msgPutTotalTodayMorning",
    "msg_gettotal_todaymorning": "msgGetTotalTodayMorning",
    "msg_puttotal_yesterdaymorning": "msgPutTotalYesterdayMorning",
    "msg_gettotal_yesterdaymorning": "msgGetTotalYesterdayMorning",
    "put_message_size_total": "putMessageSizeTotal",
    "put_message_average_size": "putMessageAverageSize",
    "putmessage_times_total": "putMessageTimesTotal",
    "putmessage_entire_time_max": "putMessageEntireTimeMax",
    "getmessage_entire_time_max": "getMessageEntireTimeMax",
    "commitlog_maxoffset": "commitLogMaxOffset",
    "commitlog_minoffset": "commitLogMinOffset",
    "earliest_message_timestamp": "earliestMessageTimeStamp",
    "start_accept_sendrequest_time": "startAcceptSendRequestTimeStamp",
    "dispatch_maxbuffer": "dispatchMaxBuffer",
    "remain_transientstore_buffer_numbs": "remainTransientStoreBufferNumbs",
}


def number(key: str) -> Read:
    """The value of one key."""

    def read(table: Table, _runtime: Runtime) -> float | None:
        try:
            value = float(table.get(key, ""))
        except ValueError:
            return None
        return value if math.isfinite(value) else None

    return read


def _bucket(name: str) -> Read:
    """None in the first minute of a broker."""
    return lambda _, runtime: runtime.put_times.get(name)


def _total(table: Table, index: int) -> float | None:
    parts = table.get("getTotalTps", "").split(" ")
    try:
        return float(parts[index])
    except (ValueError, IndexError):
        return None


def _rate(rates: Callable[[Runtime], MeanRates], field: str) -> Read:
    return lambda _, runtime: getattr(rates(runtime), field)


def _total_rate(index: int) -> Read:
    return lambda table, _: _total(table, index)


_FIELDS = {10: "last_10_s", 60: "last_60_s", 600: "last_600_s"}

READ: dict[str, Read] = {
    f"rocketmq_brokeruntime_{name}": read
    for name, read in {
        **{name: number(key) for name, key in _KEYS.items()},
        **{f"pmdt_{name}": _bucket(bucket) for name, bucket in _PUT_TIMES.items()},
        **{
            f"{name}_tps{seconds}": _rate(rates, field)
            for name, rates in _RATES.items()
            for seconds, field in _FIELDS.items()
        },
        **{f"gettotal_tps{seconds}": _total_rate(index) for index, seconds in enumerate(_FIELDS)},
        "remain_howmanydata_toflush": lambda _, runtime: runtime.unflushed_bytes,
        "commitlogdir_capacity_total": lambda _, runtime: runtime.disk_total_bytes,
        "commitlogdir_capacity_free": lambda _, runtime: runtime.disk_free_bytes,
    }.items()
}
"""Name of a metric -> how it is read."""
