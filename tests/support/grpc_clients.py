"""The official clients of RocketMQ 5 in Java, Python, Node.js and Rust as processes that obey the commands of
tests/grpc_clients/README.md, and calls with any content that a broken client might make.

    with GrpcDriver("python") as driver:
        producer = driver.start_producer(front.endpoint, topics=["orders"])
        producer.send("orders", b"one", tag="new")

`python -m tests.support.grpc_clients` installs those of CLIENTS, and the proxy of RocketMQ that they are tested with.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Self, TypeVar

from bench.peers import GRPC
from bench.proxy import class_path as proxy_class_path
from tests.support.java_rocketmq import SMALL_JVM
from tests.support.process import ChildProcess, ProcessFailed

# What is tested; the build of Rust's takes minutes, so it is tested on demand.
CLIENTS = tuple(os.environ.get("ORBITMQ_GRPC_CLIENTS", "java python node").split())
# What a client cannot do, and why a test that needs it is skipped.
LACKS: dict[str, dict[str, str]] = {
    "java": {},
    "python": {},
    "node": {},
    "rust": {
        "encryption": "it trusts the authorities of the machine alone",
        "push": "it has no push consumer",
        "recall": "it cannot recall a message",
        "change_invisible_duration": "it cannot change an invisible duration",
    },
}
HOME = Path(__file__).parents[1] / "grpc_clients"
CALL_TIMEOUT_S = 60
_TRUSTED = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
_JAVA_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"
Row = dict[str, Any]


class Refused(Exception):
    """An operation failed in the client; the code is that of the server, None when the client itself refused."""

    def __init__(self, kind: str, code: int | None, message: str) -> None:
        super().__init__(f"{kind}, code {code}: {message}")
        self.kind = kind
        self.code = code
        self.message = message


def _run(command: Sequence[object]) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise ProcessFailed(f"{' '.join(map(str, command))} failed: {(done.stdout + done.stderr)[-2000:]}")


@cache
def _java() -> list[str]:
    module = HOME / "java"
    kept = module / "target" / "classpath.txt"
    if not kept.exists() or kept.stat().st_mtime < (module / "pom.xml").stat().st_mtime or not _all_exist(kept):
        kept.parent.mkdir(exist_ok=True)
        _run(["mvn", "-q", "-B", "-f", module / "pom.xml", _JAVA_GOAL, f"-Dmdep.outputFile={kept}"])
    return ["java", *SMALL_JVM, "-cp", kept.read_text(), str(module / "Driver.java")]


def _all_exist(class_path: Path) -> bool:
    return all(Path(jar).exists() for jar in class_path.read_text().split(":"))


@cache
def _python(program: str = "driver.py") -> list[str]:
    if problem := GRPC.problem():
        raise ProcessFailed(f"{GRPC.name} cannot be used: {problem}")
    return [str(GRPC.python), str(HOME / "python" / program)]


@cache
def _node() -> list[str]:
    module = HOME / "node"
    lock, installed = module / "package-lock.json", module / "node_modules" / ".package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        _run(["npm", "ci", "--prefix", module, "--no-audit", "--no-fund", "--ignore-scripts"])
        installed.touch()
    return ["node", str(module / "driver.js")]


@cache
def _rust() -> list[str]:
    module = HOME / "rust"
    _run(["cargo", "build", "--quiet", "--locked", "--manifest-path", module / "Cargo.toml"])
    return [str(module / "target" / "debug" / "driver")]


_COMMANDS: dict[str, Callable[[], list[str]]] = {
    "java": _java,
    "python": _python,
    "node": _node,
    "rust": _rust,
    "raw": lambda: _python("raw.py"),
}


class _Process:
    """A driver at work: asked in lines of JSON, by several threads if need be. `trusted` is the certificate of the
    authority that Python's and Node's clients believe, instead of the machine's; Java's believes everybody.
    """

    def __init__(self, kind: str, trusted: Path | None = None) -> None:
        command = _COMMANDS[kind]()
        self._home = Path(tempfile.mkdtemp(prefix="grpc-driver-"))
        self._turn = threading.Lock()
        self._numbers = count(1)
        self._read_to = 0
        self._answers: dict[int, Row] = {}
        self._events: list[Row] = []
        # Where clients write their logs: Java asks the system's user data base, unless it is told.
        if kind == "java":
            command = [command[0], f"-Duser.home={self._home}", *command[1:]]
        self.process = ChildProcess(
            command,
            output=self._home / "rows.jsonl",
            environment={"HOME": str(self._home), **({} if trusted is None else {_TRUSTED: str(trusted)})},
            cwd=self._home,
            listens=True,
        )

    def ask(self, do: str, **fields: object) -> Any:
        number = next(self._numbers)
        given = {name: value for name, value in fields.items() if value is not None}
        with self._turn:
            self.process.tell(json.dumps({"id": number, "do": do, **given}))
        answer: Row = self.process.wait_for(lambda: self._answer(number), CALL_TIMEOUT_S, f"{do} {given}"[:500])
        if "error" in answer:
            raise Refused(**answer["error"])
        return answer["result"]

    def events(self) -> list[Row]:
        """What came by itself up to now."""
        self._read()
        return list(self._events)

    def _answer(self, number: int) -> Row:
        self._read()
        return self._answers.pop(number, {})

    def _read(self) -> None:
        with self._turn, self.process.output_path.open("rb") as file:
            file.seek(self._read_to)
            whole, end, _unfinished = file.read().rpartition(b"\n")
            self._read_to += len(whole) + len(end)
            for row in map(json.loads, whole.splitlines()):
                if "event" in row:
                    self._events.append(row)
                else:
                    self._answers[row["id"]] = row

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        shutil.rmtree(self._home, ignore_errors=True)


@dataclass(frozen=True)
class Received:
    """A message as a client shows it."""

    topic: str
    body: bytes
    tag: str | None
    keys: list[str]
    properties: dict[str, str]
    group: str | None
    deliver_at_ms: int | None
    id: str
    attempt: int
    ref: int = field(default=-1, compare=False)

    @classmethod
    def of(cls, row: Row) -> Self:
        return cls(**{**row, "body": base64.b64decode(row["body"])})


@dataclass(frozen=True)
class Sent:
    """What a send brought back."""

    id: str
    recall_handle: str | None = None


class _Client:
    """A client in the process of a driver."""

    def __init__(self, process: _Process, name: str) -> None:
        self._process = process
        self._name = name

    def _ask(self, do: str, **fields: object) -> Any:
        return self._process.ask(do, name=self._name, **fields)

    def _wait_for(self, event: str, bodies: Mapping[bytes, int], timeout_s: float) -> list[Row]:
        """The rows of this client with `event` once each of `bodies` has come so many times, or more often."""

        def found() -> list[Row]:
            rows = self._rows(event)
            came = [base64.b64decode(row["message"]["body"]) for row in rows]
            return rows if all(came.count(body) >= times for body, times in bodies.items()) else []

        return self._process.process.wait_for(found, timeout_s, f"{event} {dict(bodies)}")

    def _rows(self, event: str) -> list[Row]:
        return [row for row in self._process.events() if row["event"] == event and row["name"] == self._name]

    def stop(self) -> None:
        self._ask("stop")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


class GrpcProducer(_Client):
    """A producer of an official client."""

    def send(
        self, topic: str, body: bytes, *, deliver_in_s: float | None = None, deliver_at_ms: int | None = None,
        **fields: object,
    ) -> Sent:  # fmt: skip
        """`fields` are tag, keys, properties and group."""
        if deliver_in_s is not None:
            deliver_at_ms = int((time.time() + deliver_in_s) * 1000)
        return Sent(**self._ask("send", message=_message(topic, body, deliver_at_ms=deliver_at_ms, **fields)))

    def load(self, topic: str, *, size: int, threads: int, seconds: int) -> float:
        """Messages a second, sent one after another by each thread. Of Java and Python."""
        found = self._ask("load", topic=topic, size=size, threads=threads, seconds=seconds)
        return float(found["messages"] / found["seconds"])

    def send_in_transaction(self, topic: str, body: bytes, then: str | None = None, **fields: object) -> Sent:
        """`then` is commit, rollback, or None to leave it undecided."""
        return Sent(**self._ask("send_in_transaction", message=_message(topic, body, **fields), then=then))

    def recall(self, topic: str, recall_handle: str) -> str:
        """The id of the message, which need not exist."""
        return str(self._ask("recall", topic=topic, recall_handle=recall_handle)["id"])

    def checked(self) -> list[bytes]:
        """The bodies that this producer was asked about."""
        return [base64.b64decode(row["message"]["body"]) for row in self._rows("checked")]

    def wait_for_checks(self, bodies: Sequence[bytes], timeout_s: float = CALL_TIMEOUT_S) -> None:
        self._wait_for("checked", dict.fromkeys(bodies, 1), timeout_s)


class GrpcSimpleConsumer(_Client):
    """A simple consumer of an official client."""

    def receive(self, most: int = 32, invisible_s: int = 60) -> list[Received]:
        """What there is, or comes within the client's wait."""
        return [Received.of(row) for row in self._ask("receive", most=most, invisible_s=invisible_s)]

    def drain(self, *, threads: int, seconds: int) -> float:
        """Messages a second, received and acknowledged. Of Java and Python."""
        found = self._ask("drain", threads=threads, seconds=seconds)
        return float(found["messages"] / found["seconds"])

    def receive_all(self, messages: int, *, invisible_s: int = 60, ack: bool = True) -> list[Received]:
        """So many messages, acknowledged as they come; one response may have a part of them."""
        deadline = time.monotonic() + CALL_TIMEOUT_S
        found: list[Received] = []
        while len(found) < messages:
            assert time.monotonic() < deadline, f"{messages} messages, of which came {found}"
            came = self.receive(messages - len(found), invisible_s)
            found += came
            if ack:
                for one in came:
                    self.ack(one)
        return found

    def ack(self, message: Received) -> None:
        self._ask("ack", ref=message.ref)

    def change_invisible_duration(self, message: Received, invisible_s: int) -> None:
        self._ask("change_invisible_duration", ref=message.ref, invisible_s=invisible_s)


class GrpcPushConsumer(_Client):
    """A push consumer of an official client."""

    def delivered(self) -> list[Received]:
        return [Received.of(row["message"]) for row in self._rows("delivered")]

    def wait_for(
        self, bodies: Sequence[bytes] | Mapping[bytes, int], timeout_s: float = CALL_TIMEOUT_S
    ) -> list[Received]:
        """What was delivered, once all `bodies` were: each once, or so many times."""
        wanted = bodies if isinstance(bodies, Mapping) else dict.fromkeys(bodies, 1)
        return [Received.of(row["message"]) for row in self._wait_for("delivered", wanted, timeout_s)]


C = TypeVar("C", bound=_Client)


class GrpcDriver(_Process):
    """One of CLIENTS; it may have several clients of each kind at a time."""

    _names = count()

    def start_producer(self, endpoints: str, **fields: object) -> GrpcProducer:
        """`fields` are topics, decisions and tls."""
        return self._start(GrpcProducer, "start_producer", endpoints=endpoints, **fields)

    def start_simple_consumer(self, endpoints: str, group: str, topic: str, **fields: object) -> GrpcSimpleConsumer:
        """`fields` are expression, sql, wait_s and tls."""
        return self._start(GrpcSimpleConsumer, "start_simple_consumer", **_subscribed(endpoints, group, topic, fields))

    def start_push_consumer(self, endpoints: str, group: str, topic: str, **fields: object) -> GrpcPushConsumer:
        """`fields` are expression, sql, failures and tls."""
        return self._start(GrpcPushConsumer, "start_push_consumer", **_subscribed(endpoints, group, topic, fields))

    def _start(self, kind: type[C], do: str, **fields: object) -> C:
        name = f"client{next(self._names)}"
        self.ask(do, name=name, **fields)
        return kind(self, name)


class RawCalls(_Process):
    """Calls of the service with whatever fields and metadata, in protobuf's JSON: tests/grpc_clients/python/raw.py."""

    def __init__(self) -> None:
        super().__init__("raw")

    def call(
        self, endpoints: str, method: str, request: Row, metadata: Mapping[str, str], *, deadline_s: float | None = None
    ) -> Any:
        """The response as it is in JSON, or the list of responses."""
        fields = {"endpoints": endpoints, "method": method, "request": request, "metadata": metadata}
        return self.ask("call", **fields, timeout_s=deadline_s)

    def open(self, endpoints: str, metadata: Mapping[str, str]) -> int:
        """A number for a new Telemetry stream."""
        return int(self.ask("open", endpoints=endpoints, metadata=metadata))

    def write(self, stream: int, command: Row) -> None:
        self.ask("write", stream=stream, command=command)

    def read(self, stream: int, timeout_s: float = 10) -> Any:
        """The next command of the server, None when the stream has ended."""
        return self.ask("read", stream=stream, timeout_s=timeout_s)

    def close(self, stream: int) -> None:
        """Ends this side of the stream."""
        self.ask("close", stream=stream)


def _message(topic: str, body: bytes, **fields: object) -> Row:
    given = {name: value for name, value in fields.items() if value is not None}
    return {"topic": topic, "body": base64.b64encode(body).decode(), **given}


def _subscribed(endpoints: str, group: str, topic: str, fields: dict[str, object]) -> Row:
    sql = fields.pop("sql", None)
    kind, expression = ("TAG", fields.pop("expression", "*")) if sql is None else ("SQL", sql)
    subscriptions = {topic: {"type": kind, "expression": expression}}
    return {"endpoints": endpoints, "group": group, "subscriptions": subscriptions, **fields}


def main() -> None:
    def with_maven() -> None:
        proxy_class_path()
        if "java" in CLIENTS:
            _java()

    others = [_COMMANDS[kind] for kind in CLIENTS if kind != "java"]
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(install) for install in (with_maven, *others)]:
            done.result()


if __name__ == "__main__":
    main()
