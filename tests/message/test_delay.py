"""Where a message goes that waited."""

from __future__ import annotations

import pytest

from orbitmq.message.delay import real_place


@pytest.mark.parametrize(
    ("topic", "queue", "place"),
    [
        ("T", "3", ("T", 3)),
        ("T", "2147483647", ("T", 2147483647)),
        ("T", "2147483648", None),
        ("T", "1" * 5000, None),
        ("T", "-1", None),
        ("T", None, None),
        (None, "0", None),
        ("", "0", None),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "0", None),
        ("rmq_sys_wheel_timer", "0", None),
    ],
)
def test_a_message_goes_where_its_properties_say_unless_no_message_may(
    topic: str | None, queue: str | None, place: tuple[str, int] | None
) -> None:
    assert real_place({"REAL_TOPIC": topic, "REAL_QID": queue}.get) == place
