"""A broker's status: the runtime table of `brokerStatus`, and RocketMQ's statistics by name and key.

Keys, misspelled ones included, are those that tools and exporters read; all values are strings. Counts nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from orbitmq.broker.archive_guard import ArchiveGuard
from orbitmq.broker.clients import Consumers
from orbitmq.broker.delay import DelayedDelivery
from orbitmq.broker.held_pulls import HELD_MAX
from orbitmq.broker.in_flight import InFlight
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.progress import Fall, fall_behind
from orbitmq.broker.statistics import Daily, Statistics
from orbitmq.broker.timers.delivery import TimerDelivery
from orbitmq.errors import RequestRejected
from orbitmq.message.topics import SCHEDULE_TOPIC
from orbitmq.net.connection import Connection
from orbitmq.net.flow import OPEN_REQUESTS_MAX
from orbitmq.net.lateness import Lateness
from orbitmq.net.routing import Router
from orbitmq.runtime.clock import Clock
from orbitmq.runtime.form import form
from orbitmq.runtime.rates import Durations, Rate
from orbitmq.store.engine import MessageStore
from orbitmq.store.files import Files
from orbitmq.store.retention import HOUR_MS
from orbitmq.wire.bodies import BrokerStatsData, KVTable, StatsItem
from orbitmq.wire.codes import VERSION, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers_admin import ViewBrokerStatsDataHeader
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode

VERSION_NAME = "V4_9_7"
NO_POOL = (1 << 31) - 1  # RocketMQ's number of free buffers while there are none
PUT, FOUND, MISSED, TRANSFERRED = range(4)  # the counters of `Statistics.store_rates`

# RuntimeInfo of the moment: RocketMQ's name -> which.
FALLS: dict[str, Callable[[Fall], int]] = {
    "GROUP_GET_FALL_SIZE": lambda fall: fall.bytes,
    "GROUP_GET_FALL_TIME": lambda fall: fall.milliseconds,
}
Table = dict[str, str]


class RuntimeInfo:
    """Handlers over the statistics and the store. `queries` are the searches for messages."""

    def __init__(
        self,
        statistics: Statistics,
        store: MessageStore,
        offsets: ConsumerOffsets,
        consumers: Consumers,
        options: BrokerOptions,
        queries: InFlight,
        clock: Clock,
        *,
        delayed: DelayedDelivery,
        timers: TimerDelivery,
        lateness: Lateness,
        damage: Callable[[], Iterable[str]],
        guard: ArchiveGuard,
        replication: Callable[[], Table],
        files: Files | None = None,
    ) -> None:
        self._statistics = statistics
        self._store = store
        self._offsets = offsets
        self._consumers = consumers
        self._options = options
        self._delivery = delayed
        self._timers = timers
        self._lateness = lateness
        self._damage = damage
        self._guard = guard
        self._replication = replication
        self._queries = queries
        self._clock = clock
        self._files = files or Files()

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.GET_BROKER_RUNTIME_INFO, self.runtime_info)
        router.add(RequestCode.VIEW_BROKER_STATS_DATA, self.statistic)

    async def runtime_info(self, _connection: Connection, command: Command) -> Command:
        table = {
            **self._broker(),
            **self._puts_and_gets(),
            **self._log(),
            **self._delayed(),
            **self._queues(),
            **self._replication(),
            **await asyncio.to_thread(self._disks),  # the system may query a server
        }
        return command.response(ResponseCode.SUCCESS, body=encode(KVTable(table)))

    def statistic(self, _connection: Connection, command: Command) -> Command:
        """One statistic over the last minute, hour and day."""
        header = command.header(ViewBrokerStatsDataHeader)
        found = self._statistics.find(header.stats_name, header.stats_key) or self._fall(header)
        if found is None:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, remark)
        minute, hour, day = map(_stats_item, found)
        return command.response(ResponseCode.SUCCESS, body=encode(BrokerStatsData(day, hour, minute)))

    def _fall(self, header: ViewBrokerStatsDataHeader) -> tuple[Rate, Rate, Rate] | None:
        """The lag of a group in one queue, now. RocketMQ has this statistic and only logs it."""
        queue_id, _, rest = header.stats_key.partition("@")
        topic, _, group = rest.partition("@")
        if header.stats_name not in FALLS or not queue_id.isdecimal():
            return None
        fall = fall_behind(self._store, self._offsets, group, topic, int(queue_id), self._clock.now_ms())
        if fall is None:
            return None
        rate = Rate(FALLS[header.stats_name](fall))
        return rate, rate, rate

    # ------------------------------------------------------------------------------------- parts of the runtime table

    def _broker(self) -> Table:
        statistics = self._statistics
        return {
            "brokerVersionDesc": VERSION_NAME,
            "brokerVersion": str(VERSION),
            "buildForm": form(),  # orbitmq's own
            "brokerActive": str(not self._store.is_poisoned).lower(),  # for `orbitmq health`
            "bootTimestamp": str(statistics.started_ms),
            "runtime": _duration(self._clock.now_ms() - statistics.started_ms),
            "startAcceptSendRequestTimeStamp": str(self._options.start_accept_send_timestamp),
            "differingGroups": str(len(self._consumers.differing)),
            "differingGroupsTotal": str(self._consumers.differences),
            **_daily("msgPutTotal", statistics.put_total),
            **_daily("msgGetTotal", statistics.got_total),
        }

    def _puts_and_gets(self) -> Table:
        statistics, store = self._statistics, self._store
        put, found, missed, transferred = (statistics.store_rates.rates(counter) for counter in range(4))
        put_count = max(1, store.put_count)  # as RocketMQ, which divides by it
        return {
            "putMessageTimesTotal": str(put_count),
            "putMessageSizeTotal": str(store.put_bytes),
            "putMessageAverageSize": str(store.put_bytes / put_count),
            "putMessageFailedTimes": str(statistics.totals.put_failures),
            "putMessageEntireTimeMax": str(statistics.put_times.longest_ms),
            "getMessageEntireTimeMax": str(statistics.get_times.longest_ms),
            "putMessageDistributeTime": _distribution(statistics.put_times),
            "putLatency99": f"{statistics.put_times.percentile(0.99):.2f}",
            "putLatency999": f"{statistics.put_times.percentile(0.999):.2f}",
            "putTps": _rates(put),
            "getFoundTps": _rates(found),
            "getMissTps": _rates(missed),
            "getTotalTps": _rates(tuple((a or 0.0) + (b or 0.0) for a, b in zip(found, missed, strict=True))),
            "getTransferedTps": _rates(transferred),
            "getTransferredTps": _rates(transferred),  # the name 5.x tools read
        }

    def _log(self) -> Table:
        store, log = self._store, self._store.commit_log
        staging = log.staging
        table = {
            "commitLogMinOffset": str(log.min_offset),
            "commitLogMaxOffset": str(log.end),
            "earliestMessageTimeStamp": str(store.earliest_message_time),
            "dispatchBehindBytes": "0",  # a message is in its queue in the turn it is stored in
            "dispatchMaxBuffer": "0",
            "pageCacheLockTimeMills": "0",  # no put runs while this request is handled
            "remainHowManyDataToFlush": human_size(log.end - log.flushed),
            "remainTransientStoreBufferNumbs": str(NO_POOL if staging is None else staging.available_buffers),
        }
        if staging is not None:
            table["remainHowManyDataToCommit"] = human_size(log.end - log.written)
        return table

    def _delayed(self) -> Table:
        timers = {
            "timerReadBehind": str(self._timers.late_ms // 1000),
            "timerCongestNum": str(len(self._timers.pending)),
        }
        # RocketMQ 4.9 has no such keys.
        return (timers if self._timers.is_ready and self._timers.progress is not None else {}) | {
            f"scheduleMessageOffset_{level}": f"{offset},{self._store.max_offset(SCHEDULE_TOPIC, level - 1)}"
            for level, offset in sorted(self._delivery.offsets.items())
        }

    def _queues(self) -> Table:
        """The queues of RocketMQ's thread pools. Here requests wait for a busy event loop, in the kernel's buffers; a
        send for its flush, too, and a query for a thread."""
        waits, late_ms = self._store.flush_waits, int(self._lateness.waited_ms())
        return {
            **_queue("sendThreadPoolQueue", len(waits), max(waits.oldest_ms, late_ms), OPEN_REQUESTS_MAX),
            **_queue("pullThreadPoolQueue", 0, late_ms, HELD_MAX),
            **_queue("queryThreadPoolQueue", len(self._queries), self._queries.oldest_ms, OPEN_REQUESTS_MAX),
            "EndTransactionQueueSize": "0",
            "EndTransactionThreadPoolQueueCapacity": str(OPEN_REQUESTS_MAX),
            "eventLoopDelayMax": str(round(self._lateness.longest_ms)),  # orbitmq's own, of the last minute
        }

    def _archive(self) -> Table:
        """orbitmq's own, and only with the archive guard: the archive's lag, and the messages removed unarchived."""
        if not self._options.archive_guard:
            return {}
        log, guard = self._store.commit_log, self._guard
        return {
            "archiveGuardOffset": str(guard.archived),
            "archiveGuardBytesBehind": str(log.end - guard.archived),
            "archiveGuardMillisecondsLeft": str(self._milliseconds_left()),
            "archiveGuardMessagesLost": str(guard.lost),
        }

    def _milliseconds_left(self) -> int:
        """Until the first file with unarchived messages expires; the guard keeps it longer, a full disk does not."""
        file = self._store.commit_log.files.find(max(self._guard.archived, self._store.commit_log_min_offset))
        written_ms = file.modified_ms() if file is not None else self._clock.now_ms()
        return written_ms + self._store.options.file_reserved_time_hours * HOUR_MS - self._clock.now_ms()

    def _disks(self) -> Table:
        options = self._store.options
        logs = options.commit_log_directories
        ratios = {path: self._files.used_ratio(path) for path in logs}
        held = self._store.held_for
        total, free = (sum(sizes) for sizes in zip(*map(self._files.space, logs), strict=True))
        return {
            "commitLogDiskRatio": str(min(ratios.values())),
            **{f"commitLogDiskRatio_{path}": str(ratio) for path, ratio in ratios.items()},
            "consumeQueueDiskRatio": str(self._files.used_ratio(options.root / "consumequeue")),
            "diskRefusesMessages": str(self._store.refuses_for_disk).lower(),
            "damagedState": "; ".join(dict.fromkeys(self._damage())),
            "diskHeldFor": "" if held is None else held.text,
            "commitLogDirCapacity": f"Total : {human_size(total)}, Free : {human_size(free)}.",
            **self._archive(),
        }


def _stats_item(rate: Rate) -> StatsItem:
    return StatsItem(rate.average, rate.sum, rate.tps)


def _daily(name: str, total: Daily) -> Table:
    return {
        f"{name}YesterdayMorning": str(total.yesterday_morning),
        f"{name}TodayMorning": str(total.today_morning),
        f"{name}TodayNow": str(total.now),
    }


def _queue(name: str, size: int, oldest_ms: int, capacity: int) -> Table:
    return {
        f"{name}Size": str(size),
        f"{name}Capacity": str(capacity),
        f"{name}HeadWaitTimeMills": str(oldest_ms),
    }


def _rates(rates: tuple[float | None, ...]) -> str:
    """The means over 10, 60 and 600 seconds; empty while the broker is too young."""
    return " ".join("" if rate is None else str(rate) for rate in rates)


def _distribution(durations: Durations) -> str:
    table = durations.table()
    return "null" if table is None else "".join(f"{name}:{count} " for name, count in table.items())


def _duration(milliseconds: int) -> str:
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def human_size(size: int) -> str:
    """Bytes for a reader: `512 B`, `3.4 MiB`."""
    if size < 1024:
        return f"{size} B"
    exponent = min((size.bit_length() - 1) // 10, 6)
    return f"{size / 1024**exponent:.1f} {' KMGTPE'[exponent]}iB"
