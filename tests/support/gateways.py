"""A running `orbitmq gateway`, and a caller of it.

with OrbitGateway(system.namesrv_address) as gateway:
    caller = gateway.caller(OWNER)
    sent = caller.post("/v1/topics/Orders/messages", {"body": "hello"})
    assert sent.status == 200
    for event in caller.events("/v1/topics/Orders/events?start=begin&seconds=5"):
        ...
"""

from __future__ import annotations

import http.client
import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orbitmq.wire.signature import Credentials
from tests.support.orbit_process import ORBITMQ
from tests.support.process import ChildProcess, Daemon, accepts, free_port

TIMEOUT_S = 60.0
JSON = "application/json"


class OrbitGateway(Daemon):
    """`orbitmq gateway` over `namesrv`, with further `options`."""

    def __init__(self, namesrv: str, *options: object, home: Path | None = None) -> None:
        super().__init__(free_port(), home)
        self._namesrv = namesrv
        self._options = options

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def output(self) -> Path:
        return self.home / "gateway.out"

    def _launch(self) -> ChildProcess:
        command = [ORBITMQ, "gateway", "-n", self._namesrv, "--port", self.port, *self._options]
        return ChildProcess(list(map(str, command)), output=self.output, cwd=self.home)

    def _is_ready(self, process: ChildProcess) -> bool:
        return accepts(self.port)

    def caller(self, account: Credentials | None = None) -> Caller:
        return Caller(self.port, account)


@dataclass(frozen=True)
class Reply:
    """A response; `body` is its JSON."""

    status: int
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True)
class Event:
    """A server-sent event."""

    kind: str
    id: str | None
    data: Any


@dataclass
class Caller:
    """Sends requests as one account; None for no account."""

    port: int
    account: Credentials | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def post(self, path: str, body: object = None, **headers: str) -> Reply:
        return self.ask("POST", path, json.dumps({} if body is None else body).encode(), **headers)

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, **headers)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        """Names of headers have underscores for hyphens."""
        connection = self._connection()
        try:
            connection.request(method, path, body, self._headers(body, headers))
            response = connection.getresponse()
            data = response.read()
            found = {name.lower(): value for name, value in response.getheaders()}
            is_json = "json" in found.get("content-type", "")
            return Reply(response.status, found, json.loads(data) if is_json else data.decode())
        finally:
            connection.close()

    def events(self, path: str, **headers: str) -> Iterator[Event]:
        """The events of a stream, until it ends or the iterator is closed. AssertionError if there is no stream."""
        connection = self._connection()
        try:
            connection.request("GET", path, headers=self._headers(None, headers))
            response = connection.getresponse()
            assert response.status == 200, response.read()
            assert response.getheader("content-type", "").startswith("text/event-stream")
            fields: dict[str, str] = {}
            for line in iter(response.readline, b""):
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name:
                    fields[name] = value
                elif "data" in fields:
                    yield Event(fields.get("event", "message"), fields.get("id"), json.loads(fields["data"]))
                    fields = {}
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)

    def _headers(self, body: bytes | None, more: Mapping[str, str]) -> dict[str, str]:
        found = dict(self.headers)
        if body is not None:
            found["Content-Type"] = JSON
        if self.account is not None:
            pair = f"{self.account.access_key}:{self.account.secret_key}"
            found["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        return found | {name.replace("_", "-"): value for name, value in more.items()}
