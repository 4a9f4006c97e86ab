"""Which files go, by time and by the disk. Pure decisions; what is done about them is in test_cleaning.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.store.options import StoreOptions
from orbitmq.store.retention import HOUR_MS, DiskUse, Rules, decide

NOW = 1_700_000_000_000
OLD, NEW = NOW - 72 * HOUR_MS, NOW - 72 * HOUR_MS + 1
RULES = Rules.of(StoreOptions())
EMPTY = DiskUse(0.1, 0.1, 0.1)


def used(log: float, queues: float = 0.1) -> DiskUse:
    return DiskUse(log, queues, 0.1)


def test_rules_are_the_options(tmp_path: Path) -> None:
    options = StoreOptions.parse(
        {
            "deleteWhen": "4; 16;", "fileReservedTime": "2", "diskMaxUsedSpaceRatio": "99",
            "cleanFileForciblyEnable": "false", "rocketmq.broker.diskSpaceCleanForciblyRatio": "0.5",
            "rocketmq.broker.diskSpaceWarningLevelRatio": "0.6", "cleanUnreadFileForciblyEnable": "true",
        }
    )  # fmt: skip
    assert Rules.of(options) == Rules(2 * HOUR_MS, frozenset((4, 16)), 0.95, 0.5, 0.6, force=False, force_unread=True)
    assert Rules(72 * HOUR_MS, frozenset((4,)), 0.75, 0.85, 0.90, force=True, force_unread=False) == RULES


def test_expired_files_go_in_their_hour_only() -> None:
    files = [OLD, OLD, NEW, OLD, NEW]
    assert decide(RULES, NOW, 4, EMPTY, files).count == 2, "up to the first that has not expired"
    assert decide(RULES, NOW, 5, EMPTY, files).count == 0
    assert decide(RULES, NOW, 5, EMPTY, files, requested=True).count == 2


def test_the_last_file_stays() -> None:
    assert decide(RULES, NOW, 4, EMPTY, [OLD, OLD, OLD]).count == 2
    assert decide(RULES, NOW, 4, used(0.99), [OLD]).count == 0
    assert decide(RULES, NOW, 4, used(0.99), []).count == 0


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (used(0.75), (0, "")),
        (used(0.76), (1, "disk_full")),
        (used(0.1, 0.76), (1, "disk_full")),
        (used(-1), (1, "disk_full")),
        (used(0.85), (1, "disk_full")),
        (used(0.86), (3, "disk_nearly_full")),
        (used(0.1, 0.86), (3, "disk_nearly_full")),
    ],
)
def test_a_full_disk_does_not_wait(use: DiskUse, expected: tuple[int, str]) -> None:
    decision = decide(RULES, NOW, 5, use, [OLD, NEW, NEW, NEW])
    assert (decision.count, decision.reason) == expected


def test_nothing_is_forced_where_that_is_switched_off() -> None:
    rules = Rules.of(StoreOptions(clean_file_forcibly_enable=False))
    assert decide(rules, NOW, 5, used(0.99), [OLD, NEW, NEW]).count == 1


def test_a_file_that_has_not_expired_goes_by_force_only() -> None:
    assert decide(RULES, NOW, 5, used(0.86), [NEW, NEW]).is_forced
    assert not decide(RULES, NOW, 5, used(0.86), [OLD, NEW, NEW]).is_forced
    assert not decide(RULES, NOW, 4, EMPTY, [OLD, NEW]).is_forced


def test_messages_are_refused_above_the_warning_level() -> None:
    assert [RULES.refuses(used(ratio)) for ratio in (-1, 0.89, 0.90, 0.91)] == [False, False, False, True]
    assert RULES.refuses(used(0.1, 0.91))


def test_disk_use_reads_as_rocketmqs() -> None:
    assert str(DiskUse(0.91, 0.5, -1)) == "CL:  0.91 CQ:  0.50 INDEX: -1.00"
