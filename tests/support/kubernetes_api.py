"""The part of Kubernetes' API server that Leases need, in the loop of the test: GET, list, watch, POST and PUT.

async with KubernetesApi(tmp_path) as api:
    Kubernetes("orbitmq", "cluster", "broker", access=api.access)
    api.leases       # what is stored, by name
    api.delay_s = 2

It refuses what the real one refuses: who has no token or may not, a write of a version that is no longer there, fields
with values that are none. Like it, it leaves `kind` out of lists, and creates by PUT unless a uid is sent along.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from orbitmq.agreement.kubernetes import Access
from tests.support.process import free_port

NAMESPACE = "orbitmq"
GROUP = "coordination.k8s.io"
LEASES = re.compile(r"/apis/coordination\.k8s\.io/v1/namespaces/([^/]+)/leases(?:/([^/]+))?")
MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
NAME_MAX = 253
ANNOTATIONS_MAX = 262_144
VERSION_STEP = 7  # versions are those of the whole store: nobody may count on the next one
ACCOUNT = "system:serviceaccount:orbitmq:orbitmq-broker"
VERBS = frozenset({"get", "list", "watch", "create", "update"})
Lease = dict[str, Any]


class Refused(Exception):
    """A response that is no object but a Status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        }


class KubernetesApi:
    """One namespace of a cluster."""

    def __init__(self, home: Path) -> None:
        self.port = free_port()
        self.token_file = home / "token"
        self.token_file.write_text("first", encoding="utf-8")
        self.access = Access(f"http://127.0.0.1:{self.port}", self.token_file, NAMESPACE)
        self.tokens: dict[str, frozenset[str]] = {"first": VERBS}
        """Token -> what it is good for."""
        self.leases: dict[str, Lease] = {}
        self.requests: list[str] = []
        """Verb and, if it was not done, the status."""
        self.delay_s = 0.0
        self.pause_s = 0.0
        """Between two bytes of a response."""
        self.before: dict[str, Callable[[], object]] = {}
        """Verb -> what somebody else does just before the next request of this kind."""
        self.loses = ""
        """The verb whose next request is done, and its response lost."""
        self.holds = ""
        """The verb whose next response waits until its event in `held` is set."""
        self.held: list[asyncio.Event] = []
        self._version = 100
        self._forgotten = 0
        self._events: list[tuple[int, str, Lease]] = []
        self._happened = asyncio.Event()
        self._watch_time = 0
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------------------------------------------------- life

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def stop(self) -> None:
        """Nobody listens any more, and all connections are cut."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    # --------------------------------------------------------------------------------------------- what others may do

    def put(self, changed: Lease) -> None:
        """Somebody else writes a Lease, whatever its version."""
        self._store(changed, "MODIFIED" if changed["metadata"]["name"] in self.leases else "ADDED")

    def delete(self, name: str) -> None:
        gone = self.leases.pop(name)
        self._note("DELETED", gone)

    def forget(self) -> None:
        """The history of changes, as every few minutes: watches that need it have to start anew."""
        self._version += VERSION_STEP
        self._forgotten = self._version
        self._wake()

    def end_watches(self) -> None:
        """As at the end of their time."""
        self._watch_time += 1
        self._wake()

    # -------------------------------------------------------------------------------------------------------- requests

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while True:
                    await self._serve_one(reader, writer)
        finally:
            writer.close()
            self._connections.discard(task)

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line, *rest = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = line.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in rest if one)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        where, query = urlsplit(target), {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}
        await asyncio.sleep(self.delay_s)
        verb = _verb(method, where.path, query)
        if (act := self.before.pop(verb, None)) is not None:
            act()
        try:
            self._let_in(headers.get("authorization", ""), verb)
            if verb == "watch":
                await self._watch(query, writer)
                return
            code, found = self._do(verb, where.path, query, body)
            self.requests.append(verb)
        except Refused as refused:
            code, found = refused.code, refused.status
            self.requests.append(f"{verb} {code}")
        if self.loses == verb:
            self.loses = ""
            raise ConnectionResetError
        data = json.dumps(found).encode()
        if self.holds == verb:
            self.holds = ""
            self.held.append(released := asyncio.Event())
            await released.wait()
        writer.write(_head(code, f"Content-Length: {len(data)}"))
        for at in range(len(data) if self.pause_s else 0):
            writer.write(data[at : at + 1])
            await asyncio.sleep(self.pause_s)
        writer.write(b"" if self.pause_s else data)
        await writer.drain()

    def _let_in(self, authorization: str, verb: str) -> None:
        token = authorization.removeprefix("Bearer ")
        if token and token not in self.tokens:
            raise Refused(401, "Unauthorized", "Unauthorized")
        if verb not in self.tokens.get(token, frozenset()):
            who = ACCOUNT if token else "system:anonymous"
            what = f'User "{who}" cannot {verb} resource "leases" in API group "{GROUP}" in the namespace "{NAMESPACE}"'
            raise Refused(403, "Forbidden", f"leases.{GROUP} is forbidden: {what}")

    def _do(self, verb: str, path: str, query: dict[str, str], body: bytes) -> tuple[int, Any]:
        matched = LEASES.fullmatch(path)
        assert matched is not None, path
        namespace, name = matched.groups()
        if verb == "list":
            wanted = query["fieldSelector"].removeprefix("metadata.name=")
            items = [_without_kind(one) for one in self.leases.values() if one["metadata"]["name"] == wanted]
            return 200, {"kind": "LeaseList", "metadata": {"resourceVersion": str(self._version)}, "items": items}
        if verb == "get":
            if namespace != NAMESPACE or name not in self.leases:
                raise Refused(404, "NotFound", f'leases.{GROUP} "{name}" not found')
            return 200, self.leases[name]
        if namespace != NAMESPACE:
            raise Refused(404, "NotFound", f'namespaces "{namespace}" not found')
        written = json.loads(body)
        return self._create(written) if verb == "create" else self._update(name, written)

    def _create(self, written: Lease) -> tuple[int, Lease]:
        _check(written)
        metadata = written["metadata"]
        if metadata.get("resourceVersion"):
            raise Refused(500, "InternalError", "resourceVersion should not be set on objects to be created")
        if metadata["name"] in self.leases:
            raise Refused(409, "AlreadyExists", f'leases.{GROUP} "{metadata["name"]}" already exists')
        metadata |= {"uid": str(uuid4()), "creationTimestamp": "2026-01-01T00:00:00Z", "namespace": NAMESPACE}
        return 201, self._store(written, "ADDED")

    def _update(self, name: str, written: Lease) -> tuple[int, Lease]:
        _check(written)
        metadata = written["metadata"]
        assert metadata["name"] == name
        known = self.leases.get(name)
        if known is None and not metadata.get("uid"):
            return self._create({**written, "metadata": {**metadata, "resourceVersion": None}})
        if known is None or metadata.get("uid", known["metadata"]["uid"]) != known["metadata"]["uid"]:
            raise Refused(409, "Conflict", f'leases.{GROUP} "{name}": Precondition failed: UID')
        if not metadata.get("resourceVersion"):
            raise Refused(422, "Invalid", "metadata.resourceVersion: must be specified for an update")
        if metadata["resourceVersion"] != known["metadata"]["resourceVersion"]:
            raise Refused(409, "Conflict", f'leases.{GROUP} "{name}": the object has been modified')
        metadata["uid"] = known["metadata"]["uid"]
        return 200, known if written == known else self._store(written, "MODIFIED")

    def _store(self, written: Lease, kind: str) -> Lease:
        stored = deepcopy(written)
        stored["spec"] = {name: value for name, value in stored["spec"].items() if value is not None}
        stored["metadata"]["resourceVersion"] = str(self._version + VERSION_STEP)
        self.leases[stored["metadata"]["name"]] = stored
        self._note(kind, stored)
        return stored

    def _note(self, kind: str, lease: Lease) -> None:
        self._version += VERSION_STEP
        self._events.append((self._version, kind, deepcopy(lease)))
        self._wake()

    def _wake(self) -> None:
        self._happened.set()
        self._happened = asyncio.Event()

    async def _watch(self, query: dict[str, str], writer: asyncio.StreamWriter) -> None:
        wanted = query["fieldSelector"].removeprefix("metadata.name=")
        since, watch_time = int(query["resourceVersion"]), self._watch_time
        if since < self._forgotten:
            raise Refused(410, "Expired", f"too old resource version: {since} ({self._forgotten})")
        self.requests.append("watch")
        writer.write(_head(200, "Transfer-Encoding: chunked"))
        while self._watch_time == watch_time:
            happened = self._happened
            if since < self._forgotten:
                _send(writer, {"type": "ERROR", "object": Refused(410, "Expired", "too old resource version").status})
                break
            for version, kind, lease in self._events:
                if version > since and lease["metadata"]["name"] == wanted:
                    _send(writer, {"type": kind, "object": lease})
            since = self._version
            await writer.drain()
            await happened.wait()
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def _verb(method: str, path: str, query: dict[str, str]) -> str:
    if method == "GET":
        return "watch" if query.get("watch") == "true" else "get" if path.split("/")[-1] != "leases" else "list"
    return {"POST": "create", "PUT": "update"}[method]


def _head(code: int, length: str) -> bytes:
    return f"HTTP/1.1 {code} -\r\nContent-Type: application/json\r\n{length}\r\n\r\n".encode()


def _send(writer: asyncio.StreamWriter, event: dict[str, Any]) -> None:
    data = json.dumps(event).encode() + b"\n"
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _without_kind(lease: Lease) -> Lease:
    return {name: value for name, value in lease.items() if name not in ("kind", "apiVersion")}


def _check(written: Lease) -> None:
    """What validation refuses."""
    metadata, spec = written["metadata"], written["spec"]
    times = [spec[name] for name in ("acquireTime", "renewTime") if spec.get(name) is not None]
    annotations = metadata.get("annotations", {})
    is_valid = (
        (written["apiVersion"], written["kind"]) == (f"{GROUP}/v1", "Lease")
        and NAME.fullmatch(metadata["name"]) is not None
        and len(metadata["name"]) <= NAME_MAX
        and all(isinstance(value, str) for value in annotations.values())
        and sum(map(len, [*annotations, *annotations.values()])) <= ANNOTATIONS_MAX
        and all(MICRO_TIME.fullmatch(one) for one in times)
        and (spec.get("leaseDurationSeconds") is None or spec["leaseDurationSeconds"] > 0)
        and (spec.get("leaseTransitions") is None or spec["leaseTransitions"] >= 0)
    )
    if not is_valid:
        raise Refused(422, "Invalid", f"Lease is invalid: {written}")
