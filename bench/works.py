"""What is measured: the rows of the table, and how the brokers are set up for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

BACKLOG = 1_000_000  # messages of 1 KiB, 1.2 GB: far more than any client buffers, and two keys each in the index
PUSH_COUNT = 400_000  # of these a push consumer takes
DELAYED_COUNT = 160_000  # messages, each for a second
RARE_WARM_UP = 20  # seconds; of rare calls the load generator's own compiler takes as long, on cores that all share
ROLLING_FILE = 32 << 20  # bytes; a file of the log takes a second or two


@dataclass(frozen=True)
class Setting:
    """Configuration that both brokers get, and what they have to hold before they are measured."""

    config: Mapping[str, object] = field(default_factory=dict)
    backlog: int = 0  # messages in the topic `reads`
    loses_files: bool = False  # measured from the time on at which both have removed a file
    replicates: bool = False  # each has a slave of its own kind


SETTINGS = {
    "plain": Setting(),
    "backlog": Setting(backlog=BACKLOG),
    "flushed": Setting({"flushDiskType": "SYNC_FLUSH"}),
    "copied": Setting({"brokerRole": "ASYNC_MASTER"}, replicates=True),
    "replicated": Setting({"brokerRole": "SYNC_MASTER"}, replicates=True),
    "rolling": Setting(
        {
            "mappedFileSizeCommitLog": ROLLING_FILE,
            "mappedFileSizeConsumeQueue": 20 * 20_000,
            "fileReservedTime": 0,
            "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
            "cleanResourceInterval": 1000,
        },
        loses_files=True,
    ),
}


@dataclass(frozen=True)
class Bars:
    """What a row is to reach: the least of ours to the rival's rate, the most of CPU time and of times of a call."""

    rate: float | None = None
    cpu: float | None = None
    times: float | None = None


@dataclass(frozen=True)
class Work:
    """One row: arguments of the load generator; none for a row that is measured without it. `each` is what is counted,
    where that is no message. `warm_up` is seconds before a measurement, where the usual ones are too few. `floor` names
    one of `bench.floors`.
    """

    title: str
    arguments: tuple[object, ...] = ()
    setting: str = "plain"
    each: str = "messages"
    bars: Bars = Bars()
    warm_up: int = 0
    floor: str = ""


SENDS, OTHERS = Bars(1.6, 0.40), Bars(1.2, 1 / 1.5)
START_BAR, MEMORY_BAR = 0.2, 0.1

WORKS = {
    "sync16": Work("sync send, 16 threads", ("sync", "--threads", 16), bars=SENDS, floor="sync"),
    "sync64": Work("sync send, 64 threads", ("sync", "--threads", 64), bars=SENDS, floor="sync"),
    "async": Work(
        "async send, 512 in flight", ("async", "--threads", 4, "--in-flight", 512), bars=Bars(1.9, 0.33), floor="async"
    ),
    "oneway": Work("oneway send", ("oneway", "--threads", 2), bars=Bars(1.0, 0.30), floor="oneway"),
    "batch": Work(
        "batch send, 32 a batch", ("batch", "--threads", 4, "--batch", 32), bars=Bars(1.3, 0.70), floor="batch"
    ),
    "transaction": Work("transactions committed, 16 threads", ("transaction", "--threads", 16), bars=Bars(1.2, 0.60)),
    "delay": Work(
        "delayed and delivered, 16 threads", ("delay", "--threads", 16, "--count", DELAYED_COUNT), bars=OTHERS
    ),
    "latency": Work(
        "send to listener, 1 k/s", ("latency", "--rate", 1000), bars=Bars(cpu=1 / 3, times=0.5), warm_up=RARE_WARM_UP
    ),
    "pull": Work("pull, 32 a request", ("pull", "--threads", 8), "backlog", bars=OTHERS, floor="pull"),
    "push": Work("push consume", ("push", "--count", PUSH_COUNT), "backlog", bars=OTHERS),
    "orderly": Work("orderly push consume", ("orderly", "--count", PUSH_COUNT), "backlog", bars=OTHERS),
    "query": Work("query by key", ("query", "--threads", 8, "--count", BACKLOG), "backlog", "queries"),
    "recovery": Work("kill -9 to serving", setting="backlog", each="MiB of log"),
    "flushed64": Work("SYNC_FLUSH send, 64 threads", ("sync", "--threads", 64), "flushed", bars=Bars(1.2, 1 / 2)),
    "copied64": Work("send with a slave, 64 threads", ("sync", "--threads", 64), "copied"),
    "replicated64": Work("SYNC_MASTER send, 64 threads", ("sync", "--threads", 64), "replicated", bars=OTHERS),
    "rolling": Work("send while files go, 16 threads", ("sync", "--threads", 16), "rolling"),
}
