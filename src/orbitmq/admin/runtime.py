"""The runtime table of a broker as values with units. Pure: reads the texts of RocketMQ 4.9, 5.x and orbitmq.

A missing or unreadable value is None, never 0: a broker younger than ten minutes has no mean over ten minutes, and an
empty store has no oldest message.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from msgspec import Struct

Table = Mapping[str, str]

_SIZE = re.compile(r"([\d.]+)\s*([KMGTPE]?)i?B")
_CAPACITY = re.compile(r"Total : (.+), Free : (.+?)\.?$")
_UPTIME = re.compile(r"\[ (\d+) days, (\d+) hours, (\d+) minutes, (\d+) seconds \]")
_BUCKET = re.compile(r"\[([^\]]+)\]:(\d+)")
_DELAYS = "scheduleMessageOffset_"
_DISKS = "commitLogDiskRatio_"
_POWERS = " KMGTPE"
NO_POOL = 2_147_483_647
"""Free off-heap buffers of a broker that uses none."""


class MeanRates(Struct, frozen=True, rename="camel"):
    """Means per second up to now."""

    last_10_s: float | None = None
    last_60_s: float | None = None
    last_600_s: float | None = None


class RequestQueue(Struct, frozen=True, rename="camel"):
    """Requests of one kind that wait for a thread."""

    size: int | None = None
    capacity: int | None = None
    oldest_ms: int | None = None
    """How long the first of them has been waiting."""


class DailyCount(Struct, frozen=True, rename="camel"):
    """Messages of a day; the broker's clock says when one begins."""

    today: int | None = None
    yesterday: int | None = None


class DelayLevel(Struct, frozen=True, rename="camel"):
    """One level of delayed messages."""

    level: int
    delivered_offset: int
    end_offset: int

    @property
    def waiting_messages(self) -> int:
        return max(0, self.end_offset - self.delivered_offset)


class Replication(Struct, frozen=True, rename="camel"):
    """What an orbitmq broker says of its slaves, or of its master; RocketMQ 4.9 says nothing."""

    slaves: list[str] = []
    """Addresses of slaves that are connected."""
    slave_behind_bytes: int | None = None
    """What the nearest of them lacks."""
    master: str | None = None
    connected: bool | None = None
    master_end_offset: int | None = None
    refusal: str | None = None
    """Why a slave does not follow; None when it does."""
    not_serving: str | None = None
    """Why a slave serves no reads; None when it does."""
    epoch: int | None = None
    """Of a master: the time of its last promotion in milliseconds since 1970, 0 when it was never promoted."""
    superseded_by: str | None = None
    """Of a former master that has stopped its work: whose."""
    other_masters: str | None = None
    """Of a master: others of its name, and what they do."""
    other_masters_serving: int | None = None
    """Of these, how many take messages."""
    refused_slaves: str | None = None
    """Of a master: slaves that do not follow because their log differs, and why."""


class Election(Struct, frozen=True, rename="camel"):
    """What a broker says that elects its master."""

    member: str
    """The name of its store in the agreement."""
    role: str
    """`master`, `following`, `halting` or `halted`."""
    epoch: int
    """The number of the last election."""
    master: str
    """The member that was elected."""
    in_sync: list[str] = []
    """Members that have every acknowledged message."""
    maintenance: bool = False
    """Whether no replica but the last master is elected."""
    lease_left_ms: int | None = None
    """Of a master: how long it may serve without a renewal."""
    confirmed_offset: int | None = None
    """What ends before is on every member in sync."""
    failure: str | None = None
    """Why the agreement store could not be read."""
    refusal: str | None = None
    """Of a master: why it accepts no messages."""


class Runtime(Struct, frozen=True, rename="camel"):
    """The metrics of one broker."""

    version: str | None = None
    """As the broker writes it: `V4_9_7`."""
    form: str | None = None
    """`compiled` or `interpreted`; only orbitmq brokers report it."""
    booted_at_ms: int | None = None
    uptime_ms: int | None = None
    """Whole seconds."""
    clock_ahead_ms: int | None = None
    """How much later it was at the broker than here when it responded, to a second; negative if it was earlier."""
    active: bool | None = None
    """False if its disk has failed; RocketMQ 4.9 does not report this."""
    put_per_s: MeanRates = MeanRates()
    found_per_s: MeanRates = MeanRates()
    """Pulls that found messages."""
    missed_per_s: MeanRates = MeanRates()
    """Pulls that found none."""
    transferred_per_s: MeanRates = MeanRates()
    """Messages delivered."""
    put_messages: DailyCount = DailyCount()
    got_messages: DailyCount = DailyCount()
    put_total: int | None = None
    """Messages since the start; RocketMQ says 1 when there was none."""
    put_total_bytes: int | None = None
    put_average_bytes: float | None = None
    put_failures: int | None = None
    put_longest_ms: int | None = None
    get_longest_ms: int | None = None
    put_99_ms: float | None = None
    """99 of 100 puts of the last whole minute took less."""
    put_999_ms: float | None = None
    put_times: dict[str, int] = {}
    """Puts of the last whole minute by how long they took; empty in the first minute."""
    send_queue: RequestQueue = RequestQueue()
    pull_queue: RequestQueue = RequestQueue()
    query_queue: RequestQueue = RequestQueue()
    transaction_queue: RequestQueue = RequestQueue()
    loop_delay_ms: int | None = None
    """Longest delay of requests by the event loop in the last minute; only orbitmq brokers report it."""
    log_begin_offset: int | None = None
    log_end_offset: int | None = None
    unflushed_bytes: int | None = None
    """Rounded by the broker, such as `3.4 MiB`."""
    uncommitted_bytes: int | None = None
    """Only with off-heap buffers."""
    undispatched_bytes: int | None = None
    """Bytes of the log that are not in the queues yet."""
    page_cache_lock_ms: int | None = None
    free_buffers: int | None = None
    """Off-heap buffers; None where they are not used."""
    oldest_message_at_ms: int | None = None
    accepts_sends_from_ms: int | None = None
    log_disk_ratio: float | None = None
    """In use, 0 to 1, of the disk of the log that has most room."""
    log_disk_ratios: dict[str, float] = {}
    queue_disk_ratio: float | None = None
    disk_total_bytes: int | None = None
    disk_free_bytes: int | None = None
    disk_refuses_messages: bool | None = None
    """Whether messages are refused because the disk is too full; RocketMQ does not report this."""
    damaged_state: str | None = None
    """State files that could not be read and are kept under another name, and what was used instead."""
    disk_held_for: str | None = None
    """Whose unread messages keep a nearly full disk from being cleaned; None while nothing does."""
    delays: list[DelayLevel] = []
    replication: Replication = Replication()
    election: Election | None = None
    """Only of brokers that elect their master."""


def parse(table: Table, now_ms: int | None = None) -> Runtime:
    """Never fails: what cannot be read is unknown. `now_ms` is when the table came."""
    booted_at_ms, uptime_ms = _number(table.get("bootTimestamp")), _uptime(table.get("runtime", ""))
    ahead_ms = None
    if booted_at_ms is not None and uptime_ms is not None and now_ms is not None:
        ahead_ms = booted_at_ms + uptime_ms - now_ms
    total, free = _capacity(table.get("commitLogDirCapacity", ""))
    buffers = _number(table.get("remainTransientStoreBufferNumbs"))
    return Runtime(
        version=table.get("brokerVersionDesc") or None,
        form=table.get("buildForm") or None,
        booted_at_ms=booted_at_ms,
        uptime_ms=uptime_ms,
        clock_ahead_ms=ahead_ms,
        active=_truth(table.get("brokerActive")),
        put_per_s=_rates(table.get("putTps")),
        found_per_s=_rates(table.get("getFoundTps")),
        missed_per_s=_rates(table.get("getMissTps")),
        transferred_per_s=_rates(table.get("getTransferedTps") or table.get("getTransferredTps")),
        put_messages=_daily(table, "msgPutTotal"),
        got_messages=_daily(table, "msgGetTotal"),
        put_total=_number(table.get("putMessageTimesTotal")),
        put_total_bytes=_number(table.get("putMessageSizeTotal")),
        put_average_bytes=_fraction(table.get("putMessageAverageSize")),
        put_failures=_number(table.get("putMessageFailedTimes")),
        put_longest_ms=_number(table.get("putMessageEntireTimeMax")),
        get_longest_ms=_number(table.get("getMessageEntireTimeMax")),
        put_99_ms=_fraction(table.get("putLatency99")),
        put_999_ms=_fraction(table.get("putLatency999")),
        put_times={name: int(count) for name, count in _BUCKET.findall(table.get("putMessageDistributeTime", ""))},
        send_queue=_waiting(table, "sendThreadPoolQueue"),
        pull_queue=_waiting(table, "pullThreadPoolQueue"),
        query_queue=_waiting(table, "queryThreadPoolQueue"),
        transaction_queue=RequestQueue(
            _number(table.get("EndTransactionQueueSize")),
            _number(table.get("EndTransactionThreadPoolQueueCapacity")),
        ),
        loop_delay_ms=_number(table.get("eventLoopDelayMax")),
        log_begin_offset=_number(table.get("commitLogMinOffset")),
        log_end_offset=_number(table.get("commitLogMaxOffset")),
        unflushed_bytes=size_of(table.get("remainHowManyDataToFlush", "")),
        uncommitted_bytes=size_of(table.get("remainHowManyDataToCommit", "")),
        undispatched_bytes=_number(table.get("dispatchBehindBytes")),
        page_cache_lock_ms=_number(table.get("pageCacheLockTimeMills")),
        free_buffers=None if buffers == NO_POOL else buffers,
        oldest_message_at_ms=_number(table.get("earliestMessageTimeStamp")) or None,
        accepts_sends_from_ms=_number(table.get("startAcceptSendRequestTimeStamp")) or None,
        log_disk_ratio=_fraction(table.get("commitLogDiskRatio")),
        log_disk_ratios=_by_suffix(table, _DISKS),
        queue_disk_ratio=_fraction(table.get("consumeQueueDiskRatio")),
        disk_total_bytes=total,
        disk_free_bytes=free,
        disk_refuses_messages=_truth(table.get("diskRefusesMessages")),
        damaged_state=table.get("damagedState") or None,
        disk_held_for=table.get("diskHeldFor") or None,
        delays=_delays(table),
        replication=_replication(table),
        election=_election(table),
    )


def size_of(text: str) -> int | None:
    """Bytes of `0 B`, `3.4 MiB`; None for other text."""
    found = _SIZE.fullmatch(text.strip())
    return None if found is None else round(float(found[1]) * 1024 ** _POWERS.index(found[2] or " "))


def _number(text: str | None) -> int | None:
    """None below 0: the table says -1 for what it does not know."""
    try:
        number = int(text or "")
    except ValueError:
        return None
    return number if number >= 0 else None


def _fraction(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _uptime(text: str) -> int | None:
    found = _UPTIME.fullmatch(text.strip())
    if found is None:
        return None
    days, hours, minutes, seconds = map(int, found.groups())
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000


def _truth(text: str | None) -> bool | None:
    return None if text is None else text.strip().lower() == "true"


def _rates(text: str | None) -> MeanRates:
    """`12.0 3.5 ` with nothing where the broker is too young."""
    parts = [_fraction(part) for part in (text or "").split(" ")]
    return MeanRates(*(parts + [None] * 3)[:3])


def _daily(table: Table, name: str) -> DailyCount:
    before, morning, now = (
        _number(table.get(name + moment)) for moment in ("YesterdayMorning", "TodayMorning", "TodayNow")
    )
    return DailyCount(_difference(now, morning), _difference(morning, before))


def _difference(later: int | None, earlier: int | None) -> int | None:
    return None if later is None or earlier is None else later - earlier


def _waiting(table: Table, name: str) -> RequestQueue:
    return RequestQueue(*(_number(table.get(name + part)) for part in ("Size", "Capacity", "HeadWaitTimeMills")))


def _capacity(text: str) -> tuple[int | None, int | None]:
    found = _CAPACITY.fullmatch(text.strip())
    return (None, None) if found is None else (size_of(found[1]), size_of(found[2]))


def _by_suffix(table: Table, prefix: str) -> dict[str, float]:
    found = {key.removeprefix(prefix): _fraction(text) for key, text in table.items() if key.startswith(prefix)}
    return {name: ratio for name, ratio in sorted(found.items()) if ratio is not None}


def _delays(table: Table) -> list[DelayLevel]:
    levels = []
    for key, text in table.items():
        level, (delivered, _, end) = key.removeprefix(_DELAYS), text.partition(",")
        if key.startswith(_DELAYS) and all(part.isdecimal() for part in (level, delivered, end)):
            levels.append(DelayLevel(int(level), int(delivered), int(end)))
    return sorted(levels, key=lambda delay: delay.level)


def _replication(table: Table) -> Replication:
    slaves = table.get("replicationSlaves", "")
    return Replication(
        slaves.split(",") if slaves else [],
        _number(table.get("replicationSlaveBytesBehind")),
        table.get("replicationMaster") or None,
        _truth(table.get("replicationConnected")),
        _number(table.get("replicationMasterEnd")),
        table.get("replicationRefusal") or None,
        table.get("replicationNotServing") or None,
        _number(table.get("replicationEpoch")),
        table.get("replicationSupersededBy") or None,
        table.get("replicationOtherMasters") or None,
        _number(table.get("replicationOtherMastersServing")),
        table.get("replicationRefusedSlaves") or None,
    )


def _election(table: Table) -> Election | None:
    if (member := table.get("electionMember")) is None:
        return None
    in_sync = table.get("electionInSync", "")
    return Election(
        member,
        table.get("electionRole", ""),
        _number(table.get("electionEpoch")) or 0,
        table.get("electionMaster", ""),
        in_sync.split(",") if in_sync else [],
        _truth(table.get("electionMaintenance")) or False,
        _number(table.get("electionLeaseLeftMs")),
        _number(table.get("electionConfirmedOffset")),
        table.get("electionFailure") or None,
        table.get("electionRefusal") or None,
    )
