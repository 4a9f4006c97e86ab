"""What a client calls itself and what it writes reaches neither a terminal nor a log as it is, by any command."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from orbitmq.cli.main import app
from orbitmq.client import ConsumeConcurrentlyStatus, Message
from orbitmq.client.sync import Producer, PushConsumer
from orbitmq.runtime.logging import LineFormat
from orbitmq.testing.cluster import Cluster
from tests.support.commands import items, orbitmq
from tests.support.process import wait_until

HOSTILE = "c\x1b]0;title\x07\x7f\x9b31m\u202egnp"
SHOWN = "c␛]0;title␇␡⟨U+009B⟩31m⟨U+202E⟩gnp"
COMMANDS = (
    "client consumers g", "client consumers g -o wide", "client producers", "client show g", "client show g -o wide",
    "client stack g", "client positions g T", "group connections g", "group subscriptions g", "group list", "doctor",
    "group why g", "group progress g", "group lag g", "group config g", "trace show x", "msg query T",
    "msg query T -o wide", "msg show @id", "msg find @id", "msg tail T --from begin --exit-at-end",
    "mqadmin consumerConnection -g g", "mqadmin producerConnection -g p -t T", "mqadmin consumerStatus -g g",
    "mqadmin consumerProgress -g g", "mqadmin queryMsgById -i @offset", "mqadmin printMsg -t T",
    "mqadmin queryMsgByKey -t T -k x",
)  # fmt: skip
MARKED = ("client consumers g", "msg query T -o wide", "mqadmin printMsg -t T")


class World(NamedTuple):
    names: str
    message_id: str
    logged: list[str]


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(LineFormat())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """A group whose member has a hostile name, and a message whose parts are so, too."""
    lines = _Lines()
    log = logging.getLogger("orbitmq.broker")
    before = log.level
    log.addHandler(lines)
    log.setLevel(logging.INFO)
    with Cluster() as cluster:
        cluster.create_topic("T", 1)
        names = cluster.namesrv_address
        consumer = PushConsumer("g", names, instance_name=HOSTILE)
        consumer.subscribe("T")
        consumer.set_listener(lambda *_: ConsumeConcurrentlyStatus.CONSUME_SUCCESS)
        with consumer, Producer("p", names, instance_name=HOSTILE) as producer:
            hostile = Message("T", HOSTILE.encode(), tags=HOSTILE, keys=HOSTILE, properties={"n": HOSTILE})
            sent = producer.send(hostile)
            wait_until(lambda: bool(items("client", "consumers", "g", "-n", names)), 30, "the member to be there")
            yield World(names, sent.msg_id, lines.lines)
    log.removeHandler(lines)
    log.setLevel(before)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_steers_the_terminal(
    world: World, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # threads and bodies are written into files
    (stored,) = items("msg", "query", "T", "-n", world.names)
    client = next(
        row["clientId"] for row in items("client", "consumers", "g", "-n", world.names) if "\x1b" in row["clientId"]
    )
    given = {"@id": world.message_id, "@offset": stored["offsetMsgId"], "@client": client}
    words = [given.get(word, word) for word in command.split()]
    found = CliRunner().invoke(app, [*words, "-n", world.names])
    printed = found.stdout + found.stderr
    assert found.exit_code in (0, 3, 8), printed
    assert [sign for sign in printed if not sign.isprintable() and sign not in "\n\t"] == []


def test_the_marks_tell_what_there_is(world: World) -> None:
    for command in MARKED:
        assert SHOWN in orbitmq(*command.split(), "-n", world.names).stdout, command


def test_no_line_of_the_brokers_log_steers_a_terminal(world: World) -> None:
    (joined,) = [line for line in world.logged if "event=consumer_joined" in line]
    assert SHOWN in joined
    assert all(line.isprintable() for line in world.logged)
