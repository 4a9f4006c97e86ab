"""Messages as applications see them."""

from __future__ import annotations

import pytest

from orbitmq.errors import MessageIllegal
from orbitmq.message.model import Message, MessageExt, MessageQueue


def test_everything_that_travels_as_a_property_is_one() -> None:
    message = Message("T", b"x", tags="A", keys=["k1", "k2"], wait_store_ok=False, delay_level=3, properties={"a": "1"})
    assert message.properties == {"TAGS": "A", "KEYS": "k1 k2", "WAIT": "false", "DELAY": "3", "a": "1"}
    assert (message.tags, message.keys, message.wait_store_ok, message.delay_level) == ("A", "k1 k2", False, 3)
    assert message.get_property("a") == "1"


def test_a_plain_message_waits_and_is_not_delayed() -> None:
    message = Message("T", b"x")
    assert (message.tags, message.keys, message.wait_store_ok, message.delay_level) == (None, "", True, 0)


@pytest.mark.parametrize(("name", "value"), [("a\x01", "v"), ("a", "v\x02"), ("\x02", "v"), ("TAGS", "v")])
def test_properties_that_cannot_travel_are_refused(name: str, value: str) -> None:
    with pytest.raises(MessageIllegal):
        Message("T", b"x", properties={name: value})


def test_a_delay_that_is_no_number_is_none() -> None:
    assert MessageExt("T", b"x", properties={"DELAY": "soon"}).delay_level == 0


def test_queues_are_ordered_by_topic_then_broker_then_number() -> None:
    queues = [
        MessageQueue("T", "b", 10),
        MessageQueue("T", "b", 2),
        MessageQueue("T", "a", 11),
        MessageQueue("S", "z", 9),
    ]
    assert sorted(queues) == [queues[3], queues[2], queues[1], queues[0]]
