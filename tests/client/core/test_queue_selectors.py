"""Ready-made selectors choose as they say, and as Java's do where Java has them."""

from __future__ import annotations

import pytest

from orbitmq.client.core.queue_selectors import RoomSelector, hash_selector, random_selector, room_of
from orbitmq.message.model import Message, MessageQueue

MESSAGE = Message("T", b"x")
QUEUES = [MessageQueue("T", "b", n) for n in range(8)]


@pytest.mark.parametrize(
    ("arg", "index"),
    [("TagA", 7), ("TagB", 0), ("order-10001", 3), ("polygenelubricants", 0), ("", 0), (-9, 1), (7, 7), (b"TagA", 7)],
)
def test_equal_arguments_share_the_queue_java_takes(arg: str | int | bytes, index: int) -> None:
    assert hash_selector(QUEUES, MESSAGE, arg).queue_id == index


def test_random_reaches_every_queue() -> None:
    assert {random_selector(QUEUES, MESSAGE) for _ in range(400)} == set(QUEUES)


def test_a_room_is_preferred_and_never_the_end() -> None:
    here = [MessageQueue("T", "north@a", n) for n in range(2)]
    there = [MessageQueue("T", "south@b", 0), MessageQueue("T", "plain", 0)]
    near: RoomSelector[object] = RoomSelector({"north"})
    assert {near([*here, *there], MESSAGE, None) for _ in range(100)} == set(here)
    assert {near(there, MESSAGE, None) for _ in range(100)} == set(there)
    keyed = RoomSelector(["north"], hash_selector)
    assert keyed([*there, *here], MESSAGE, "TagA") == here[1]
    assert (room_of(here[0]), room_of(there[1])) == ("north", "")
