"""Where an offset is to be, what that costs, and what shows that it was done."""

from __future__ import annotations

import pytest

from orbitmq.admin.targets import Target, Where, applied, counted, parsed_queues, target_of, wanted
from orbitmq.errors import AdminError, ConfigurationError


@pytest.mark.parametrize(
    ("target", "stored", "found", "force", "after"),
    [
        (Target(Where.BEGIN), 50, None, True, 10),
        (Target(Where.END), 50, None, True, 100),
        (Target(Where.END), 50, None, False, 50),
        (Target(Where.END), None, None, False, 100),
        (Target(Where.TIME, 1), 50, 30, True, 30),
        (Target(Where.TIME, 1), 20, 30, False, 20),
        (Target(Where.TIME, 1), 50, 3, True, 10),
        (Target(Where.OFFSET, 60), 50, None, True, 60),
        (Target(Where.OFFSET, 1), 50, None, True, 10),
        (Target(Where.OFFSET, 1000), 50, None, True, 100),
        (Target(Where.SHIFT, -15), 50, None, True, 35),
        (Target(Where.SHIFT, -100), 50, None, True, 10),
        (Target(Where.SHIFT, 25), 50, None, True, 75),
        (Target(Where.SHIFT, 25), 50, None, False, 50),
        (Target(Where.SHIFT, 25), None, None, True, None),
    ],
)
def test_where_a_queue_is_to_be(
    target: Target, stored: int | None, found: int | None, force: bool, after: int | None
) -> None:
    assert wanted(target, 10, 100, stored, found, force=force) == after


@pytest.mark.parametrize(
    ("before", "after", "replayed", "skipped"),
    [(50, 20, 30, 0), (50, 80, 0, 30), (50, 50, 0, 0), (None, 100, 0, 0), (3, 100, 0, 90), (500, 60, 40, 0)],
)
def test_messages_replayed_and_skipped_are_those_that_still_exist(
    before: int | None, after: int, replayed: int, skipped: int
) -> None:
    assert counted(10, 100, before, after) == (replayed, skipped)


@pytest.mark.parametrize(
    ("before", "after", "now", "is_applied"),
    [
        (50, 20, 20, True), (50, 20, 35, True), (50, 20, 50, False), (50, 20, None, False),
        (50, 80, 80, True), (50, 80, 95, True), (50, 80, 50, False), (None, 80, 80, True), (None, 80, None, False),
    ],
)  # fmt: skip
def test_what_shows_that_members_obeyed(before: int | None, after: int, now: int | None, is_applied: bool) -> None:
    assert applied(before, after, now) is is_applied


def test_queues_are_written_as_broker_and_number() -> None:
    assert parsed_queues(["broker-a/0", "b:12"]) == {("broker-a", 0), ("b", 12)}
    with pytest.raises(AdminError, match="is no queue"):
        parsed_queues(["3"])


@pytest.mark.parametrize(
    ("to", "offset", "shift", "target"),
    [
        ("begin", None, None, Target(Where.BEGIN)),
        ("earliest", None, None, Target(Where.BEGIN)),
        ("end", None, None, Target(Where.END)),
        ("now", None, None, Target(Where.END)),
        ("@1s", None, None, Target(Where.TIME, 4000)),
        ("1234", None, None, Target(Where.TIME, 1234)),
        (None, 0, None, Target(Where.OFFSET, 0)),
        (None, None, -5, Target(Where.SHIFT, -5)),
    ],
)
def test_one_of_three_says_where(to: str | None, offset: int | None, shift: int | None, target: Target) -> None:
    assert target_of(to, offset, shift, 5000) == target


@pytest.mark.parametrize("given", [(None, None, None), ("end", 1, None), (None, 1, 1), ("end", None, 1)])
def test_none_or_two_of_them_are_refused(given: tuple[str | None, int | None, int | None]) -> None:
    with pytest.raises(ConfigurationError, match="one of --to, --offset and --shift"):
        target_of(*given, 5000)


def test_targets_say_what_they_are_in_words() -> None:
    assert str(Target(Where.SHIFT, -3)) == "3 messages back"
    assert str(Target(Where.END)) == "the end of its queues"
    assert str(Target(Where.OFFSET, 7)) == "offset 7"
