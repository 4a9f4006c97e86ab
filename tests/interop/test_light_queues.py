"""Multi-dispatch: a message enters the light queues it names, and Java's pull consumer reads them."""

from __future__ import annotations

from tests.interop.conftest import System
from tests.support.delivery import assert_content, messages
from tests.support.java_rocketmq import run_driver
from tests.support.messages import index_of

COUNT = 90
NAMES = ("anna", "bert")


def test_messages_enter_light_queues_besides_their_own(extended_system: System, label: str) -> None:
    place = ("--namesrv", extended_system.namesrv_address, "--topic", label)
    light = ("--names", ",".join(NAMES), "--broker", "broker-a", "--count", COUNT, "--run", label)
    rows = run_driver("lightqueues", *place, *light)
    for position, name in enumerate(NAMES):
        wanted = [index for index in range(COUNT) if index % (len(NAMES) + 1) > position]
        received = [row for row in messages(rows) if row["light"] == name]
        assert [index_of(row) for row in received] == wanted, "in the order they were sent, whatever queue they are of"
        assert_content(received, label)
        for offset, row in enumerate(received):
            assert row["topic"] == label
            assert row["properties"]["INNER_MULTI_QUEUE_OFFSET"].split(",")[position] == str(offset)
        (bounds,) = [row for row in rows if row["event"] == "queue" and row["light"] == name]
        assert (bounds["minOffset"], bounds["maxOffset"], bounds["stored"]) == (0, len(wanted), len(wanted))

    own = messages(run_driver("pull", *place))
    assert sorted(map(index_of, own)) == list(range(COUNT))
