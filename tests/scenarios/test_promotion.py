"""A master dies and its slave takes its place, by the operator's command; the former master comes back as a slave."""

from __future__ import annotations

import subprocess

import pytest

from orbitmq.client import Message, SendStatus
from orbitmq.client import sync as threads
from tests.support.orbit_process import ORBITMQ, OrbitBroker, OrbitNameServer
from tests.support.process import ProcessFailed, wait_until

COUNT = 200
OPTIONS = {"brokerRole": "SYNC_MASTER", "haSendHeartbeatInterval": 500}


def promote(slave: OrbitBroker, *more: str) -> tuple[int, str]:
    command = [ORBITMQ, "broker", "promote", "-c", slave.home / "broker.conf", *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout + done.stderr


def send(names: str, first: int) -> None:
    with threads.Producer("senders", names, send_timeout_ms=20_000) as producer:
        for number in range(first, first + COUNT):
            result = producer.send(Message("T", b"%d" % number))
            assert result.status in (SendStatus.SEND_OK, SendStatus.SLAVE_NOT_AVAILABLE)


def numbers(names: str) -> list[int]:
    """Everything in the topic, as a new group finds it."""
    with threads.PullConsumer("readers", names) as consumer:
        found = []
        for queue in consumer.fetch_queues("T"):
            offset, end = consumer.min_offset(queue), consumer.max_offset(queue)
            while offset < end:
                result = consumer.pull(queue, "*", offset, 32)
                found += [int(one.body) for one in result.messages]
                offset = result.next_begin_offset
    return sorted(found)


def test_a_slave_becomes_the_master_and_the_former_one_its_slave() -> None:
    with OrbitNameServer() as names, OrbitBroker(names.address, **OPTIONS) as first:
        slave_of = {"brokerRole": "SLAVE", "brokerId": 1}
        with OrbitBroker(names.address, **slave_of) as second:
            send(names.address, 0)
            code, output = promote(second)
            assert code == 1
            assert "refused: the master at" in output
            assert "answers; stop it first" in output
            first.kill()

            code, output = promote(second, "--dry-run")
            assert (code, "it would be done" in output) == (0, True), output
            assert "known to be missing, bytes   0" in output
            code, output = promote(second)
            assert (code, "it is the master of broker-a now" in output) == (0, True), output
            assert "its role as the master       SYNC_MASTER (as the master's)" in output
            assert "Until a slave replicates, each send is stored\n    here and returns SLAVE_NOT_AVAILABLE" in output
            kept = (second.home / "broker.conf").read_text()
            assert "brokerRole=SYNC_MASTER" in kept
            assert "brokerId=0" in kept
            send(names.address, COUNT)
            with pytest.raises(ProcessFailed, match=f"the master of broker-a is at {second.address} and answers"):
                first.start()
            first.stop()
            second._config = slave_of  # as if the role stood on its command line, which goes before the file
            second.restart()
            assert numbers(names.address) == list(range(2 * COUNT))

            first._config = slave_of
            with first:  # what it acknowledged with SYNC_MASTER is at the second, so its log is a beginning
                wait_until(lambda: same_logs(first, second), 30, "the former master has copied what is new")
                code, output = promote(first)
                assert (code, "answers; stop it first" in output) == (1, True), output
            code, output = promote(second)
            assert code == 1
            assert "it is the master of broker-a already" in output


def same_logs(one: OrbitBroker, other: OrbitBroker) -> bool:
    name = "commitlog/00000000000000000000"
    with (one.store_dir / name).open("rb") as own, (other.store_dir / name).open("rb") as theirs:
        return own.read(1 << 20) == theirs.read(1 << 20)
