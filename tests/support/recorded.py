"""A `Remoting` that answers from the golden frames instead of the network."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.net.remoting import Remoting
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FrameDecoder
from orbitmq.wire.requests import RequestCode
from tests.support.golden import rows

ADDRESS = "10.0.0.1:10911"
FILES = ("producer_json.jsonl", "consumer_json.jsonl", "raw_json.jsonl", "errors_json.jsonl", "admin_json.jsonl.gz")


def command_of(row: dict[str, Any]) -> Command:
    """The command in a row's bytes."""
    (command,) = FrameDecoder(typed=False).feed(bytes.fromhex(row["hex"]))
    return command


class Recorded(Remoting):
    """Replays one answer of Java and keeps what was asked."""

    def __init__(self, answer: Command | None = None) -> None:
        super().__init__()
        self.answer = answer
        self.asked: list[Command] = []
        self.timeout_ms = 0.0

    async def call(self, address: str, command: Command, timeout_ms: float) -> Command:
        assert address == ADDRESS
        assert self.answer is not None
        self.asked.append(command)
        self.timeout_ms = timeout_ms
        return self.answer

    async def oneway(self, address: str, command: Command, timeout_ms: float = 3000) -> None:
        assert address == ADDRESS
        self.asked.append(command)


class Exchange:
    """One question of the Java client and its answer, as captured."""

    def __init__(self, question: dict[str, Any], answer: dict[str, Any] | None) -> None:
        self.question = command_of(question)
        self.remoting = Recorded(None if answer is None else command_of(answer))

    @property
    def ext(self) -> dict[str, str]:
        return {name: value for name, value in (self.question.ext or {}).items() if name != "ReqT"}

    def assert_asked_as_java(self, *, but: tuple[str, ...] = ()) -> None:
        """What was asked has the code, fields and body the Java client sent."""
        (asked,) = self.remoting.asked
        assert asked.code == self.question.code
        assert asked.is_oneway == self.question.is_oneway
        assert (asked.language, asked.version) == ("PYTHON", 407)
        mine, java = dict(asked.ext or {}), dict(self.ext)
        for name in but:
            mine.pop(name, None)
            java.pop(name, None)
        assert mine == java
        assert asked.body == self.question.body


def exchange(code: RequestCode, response: int | None = 0, **fields: str) -> Exchange:
    """The first captured exchange with this code, this response code (None: oneway) and these header fields."""
    for file in FILES:
        table = {row["id"]: row for row in rows(file)}
        for row in table.values():
            if row["kind"] == "response" or row["code"] != code:
                continue
            answer = table.get(row["pair"]) if row["pair"] is not None else None
            found = None if answer is None else answer["code"]
            if found == response and all((row["ext"] or {}).get(k) == v for k, v in fields.items()):
                return Exchange(row, answer)
    pytest.fail(f"no captured {code.name} answered with {response} and {fields}")
