"""The judge of an even load sees a planted leak and a planted loss, and nothing where all is well."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from bench.soak.judge import MIB, Bounds, Sample, Told, Usage, judge
from bench.soak.seen import CHUNK, Seen
from bench.soak.steady import Settings, Watch, disk, usage
from bench.soak.steady_load import DELAYED, PLAIN, RETRIED, body, kind_of, read_body

HOUR = 3600
TOLD = Told(rate=1000.0, seconds=HOUR, acknowledged=3_599_000, failed=[], missing=[], retried=9, delayed=9)
BOUNDS = Bounds()


def sampled(*, leak: float = 0.0, opened: float = 0.0, begun: float = 0.0, filled: float = 0.0) -> list[Sample]:
    """An hour of a heap that breathes and of files that come and go; `leak` bytes and `opened` descriptors an hour come
    on top, `begun` threads and `filled` bytes of disk.
    """
    dice = random.Random(7)
    found = []
    for second in range(0, HOUR, 5):
        share, breath = second / HOUR, math.sin(second / 40)
        warm = 30 * MIB * (1 - math.exp(-second / 60))  # of the first minutes
        memory = 60 * MIB + warm + 6 * MIB * breath + dice.uniform(0, MIB) + leak * share
        own = Usage(round(memory), round(60 + 4 * breath + opened * share), round(12 + begun * share))
        store = round(700 * MIB + second % 20 * 3 * MIB + filled * share)
        found.append(
            Sample(second, {"broker": own, "consumer": Usage(20 * MIB, 15, 2)}, store, second // 20, second // 20 + 8)
        )
    return found


def violations(samples: list[Sample], told: Told = TOLD, bounds: Bounds = BOUNDS) -> list[str]:
    return [text.split(":")[0] for text in judge(samples, told, bounds).violations]


def test_an_hour_in_which_nothing_grew_is_well() -> None:
    judged = judge(sampled(), TOLD, BOUNDS)
    assert judged.violations == []
    assert len(judged.growths) == 7, "three lines of each process, and the disk"


@pytest.mark.parametrize(
    ("planted", "named"),
    [
        ({"leak": 40.0 * MIB}, "grows: broker memory by "),
        ({"opened": 40.0}, "grows: broker descriptors by "),
        ({"begun": 6.0}, "grows: broker threads by "),
        ({"filled": 1024.0 * MIB}, "grows: disk by "),
    ],
)
def test_a_planted_leak_is_seen(planted: dict[str, float], named: str) -> None:
    (text,) = judge(sampled(**planted), TOLD, BOUNDS).violations
    assert text.startswith(named)


def test_a_leak_of_a_client_is_seen_too() -> None:
    leaky = [
        replace(one, processes={**one.processes, "consumer": Usage(20 * MIB + round(one.at * 10_000), 15, 2)})
        for one in sampled()
    ]
    assert violations(leaky) == ["grows"]


def test_what_grows_in_the_warm_up_alone_is_none() -> None:
    early = [
        replace(one, processes={"broker": Usage(60 * MIB + round(min(one.at, 600) * 100_000), 60, 12)})
        for one in sampled()
    ]
    assert violations(early) == []


def test_a_lost_message_is_named() -> None:
    (text,) = judge(sampled(), replace(TOLD, missing=[17, 4711]), BOUNDS).violations
    assert text == "lost: 2 acknowledged messages came to no listener: 17, 4711"


@pytest.mark.parametrize(
    ("told", "named"),
    [
        (replace(TOLD, failed=[3]), "failed"),
        (replace(TOLD, acknowledged=3_000_000), "slow"),
        (replace(TOLD, retried=0), "idle"),
        (replace(TOLD, delayed=0), "idle"),
    ],
)
def test_a_load_that_was_none_proves_nothing(told: Told, named: str) -> None:
    assert violations(sampled(), told) == [named]


def test_a_log_that_stayed_in_one_file_proves_nothing() -> None:
    still = [replace(one, first=0, last=3) for one in sampled()]
    assert violations(still) == ["idle", "kept"]
    assert violations(still, bounds=replace(BOUNDS, removes_files=False)) == ["idle"]


def test_too_few_samples_are_no_verdict() -> None:
    assert "2 samples after the warm-up" in judge(sampled()[-2:], TOLD, BOUNDS).violations[0]
    assert judge([], TOLD, BOUNDS).violations


def came(numbers: Iterable[int]) -> Seen:
    seen = Seen()
    for number in numbers:
        seen.add(number)
    return seen


def test_what_did_not_come_is_known_whatever_the_order() -> None:
    end = 3 * CHUNK + 100
    numbers = [number for number in range(end) if number not in (5, CHUNK, 3 * CHUNK + 99)]
    random.Random(1).shuffle(numbers)
    seen = came([*numbers, 0, 0])
    assert list(seen.missing(end)) == [5, CHUNK, 3 * CHUNK + 99]
    assert (seen.count, seen.again) == (end - 3, 2)
    assert list(seen.missing(end + 2))[-2:] == [end, end + 1]


def test_memory_does_not_grow_with_what_came() -> None:
    seen = came(range(20 * CHUNK))
    assert list(seen.missing(20 * CHUNK)) == []
    assert not seen._open
    assert not seen._whole


def test_a_body_says_its_number_its_time_and_its_kind() -> None:
    assert read_body(body(4711, 12, DELAYED)) == (4711, 12, DELAYED)
    assert {kind_of(number) for number in range(98)} == {PLAIN, DELAYED, RETRIED}


def test_full_files_of_the_log_grow_old_and_the_last_two_do_not(tmp_path: Path) -> None:
    log = tmp_path / "commitlog"
    log.mkdir()
    now = time.time()
    files = [log / f"{number:020}" for number in range(4)]
    for path in files:
        path.write_bytes(b"x" * 5000)
        os.utime(path, (now - 60, now - 60))
    watch = Watch(tmp_path, {}, Settings(60, kept_s=30), tmp_path / "samples.csv")
    watch._age()
    assert [now - path.stat().st_mtime > HOUR for path in files] == [True, True, False, False]
    young = Watch(tmp_path, {}, Settings(60, kept_s=3 * HOUR), tmp_path / "samples.csv")
    os.utime(files[0], (now, now))
    young._age()
    assert now - files[0].stat().st_mtime < 1


def test_a_process_and_a_disk_are_read(tmp_path: Path) -> None:
    own = usage(os.getpid())
    assert own.memory > MIB
    assert own.threads >= 1
    with (tmp_path / "held").open("wb") as file:
        file.write(bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())
        copies = [os.dup(file.fileno()) for _ in range(200)]
        opened = usage(os.getpid()).descriptors - own.descriptors
        for number in copies:
            os.close(number)
    assert opened > 100, "what other tests in this process have left may open and close some meanwhile"
    assert disk(tmp_path) >= 1 << 20
