"""`orbitmq group in-flight` and `msg find` tell of messages that were delivered and are not acknowledged."""

from __future__ import annotations

from orbitmq.client import Message
from orbitmq.client.sync import Producer, SimpleConsumer
from tests.interop.test_timer_commands import run
from tests.support.orbit_process import OrbitUp
from tests.support.process import wait_until


def test_what_is_in_flight_is_found() -> None:
    with (
        OrbitUp() as system,
        Producer("p", system.namesrv_address) as producer,
        SimpleConsumer("workers", system.namesrv_address) as consumer,
    ):
        producer.create_topic("Jobs", queues=1)
        sent = [producer.send(Message("Jobs", b"%d" % number, keys=[f"job-{number}"])).msg_id for number in range(3)]
        consumer.subscribe("Jobs")
        first, second, third = consumer.receive(3, invisible=600, timeout=10)
        consumer.ack(first)
        listed = run(system, "group", "in-flight", "workers", "-o", "json")["items"]
        assert [(one["topic"], one["queueId"], one["queueOffset"]) for one in listed] == [
            ("Jobs", 0, 1),
            ("Jobs", 0, 2),
        ]
        assert 500_000 < listed[0]["redeliveredAtMs"] - listed[0]["deliveredAtMs"] <= 600_000
        assert run(system, "group", "in-flight", "workers", "-t", "Other", "-o", "json")["items"] == []

        def story(number: int) -> str:
            return " ".join(str(run(system, "msg", "find", sent[number])).split())

        assert "delivered to workers, not acknowledged yet, to be redelivered at" in story(1)
        assert "consumed by workers" in story(0) or "passed by workers" in story(0)
        consumer.change_invisible(second, 0.1)
        wait_until(lambda: "retry 1 of workers waits to be consumed" in story(1), 20, "it is redelivered")
        (again,) = consumer.receive(timeout=10)
        assert "retry 1 of workers waits to be consumed" in story(1), "it is in flight"
        consumer.ack(again)
        consumer.ack(third)
        assert "consumed by workers with retry 1" in story(1)
        assert run(system, "group", "in-flight", "workers", "-o", "json")["items"] == []
