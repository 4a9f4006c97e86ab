"""Order within a queue outlives the consumer that kept it."""

from __future__ import annotations

from collections.abc import Sequence

from tests.interop.conftest import System
from tests.support.delivery import Row, by_queue, messages
from tests.support.java_rocketmq import Driver, run_driver
from tests.support.messages import index_of

BEFORE, AFTER = 400, 400


def _holds_half(driver: Driver) -> None:
    """Until the only consumer of this process has shared the four queues with another."""

    def is_half() -> bool:
        assigned = [row["queues"] for row in driver.rows() if row["event"] == "assigned"]
        return bool(assigned) and assigned[-1] in ([0, 1], [2, 3])

    driver.process.wait_for(is_half, 60, "half of the queues")


def _rises_without_gap(rows: Sequence[Row]) -> None:
    offsets = [row["queueOffset"] for row in rows]
    assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))


def test_the_queues_of_a_killed_orderly_consumer_go_on_in_order(system: System, label: str) -> None:
    client = ("--namesrv", system.namesrv_address, "--topic", label)
    run_driver("admin", "--do", "create", *client, "--queues", 4, "--broker", system.address)
    consume = ("consume", *client, "--group", label, "--orderly", "true")
    with Driver(*consume) as victim, Driver(*consume) as heir:
        _holds_half(victim)
        _holds_half(heir)
        run_driver("send", *client, "--count", BEFORE, "--run", label)

        def delivers_both() -> bool:
            # A queue that the heir had first is locked again, and pulled, some seconds after the other one.
            given = messages(victim.rows())
            return len(given) >= 100 and len(by_queue(given)) == 2

        victim.process.wait_for(delivers_both, 60, "some deliveries of both queues")
        victim.process.kill()
        run_driver("send", *client, "--first", BEFORE, "--count", AFTER, "--run", label)

        def everything() -> bool:
            seen = {index_of(row) for driver in (victim, heir) for row in messages(driver.rows())}
            return len(seen) == BEFORE + AFTER

        heir.process.wait_for(everything, 90, "the rest of the messages")
        before, after = by_queue(messages(victim.rows())), by_queue(messages(heir.rows()))

    assert sorted(before) in ([0, 1], [2, 3])
    assert sorted(after) == [0, 1, 2, 3]
    for queue, rows in after.items():
        _rises_without_gap(rows)
        assert rows[-1]["queueOffset"] == (BEFORE + AFTER) // 4 - 1
        if queue in before:
            _rises_without_gap(before[queue])
            assert before[queue][0]["queueOffset"] == 0
            assert rows[0]["queueOffset"] <= before[queue][-1]["queueOffset"] + 1, "nothing between the two is left out"
        else:
            assert rows[0]["queueOffset"] == 0
