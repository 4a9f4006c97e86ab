"""Kubernetes as the store of agreement: one Lease (coordination.k8s.io/v1) for a broker name.

    metadata.annotations       orbitmq/agreed     the agreed value as JSON
                               orbitmq/revision   `orbitmq/writes` when that was written
                               orbitmq/writes     how often the Lease was written, renewals included
                               orbitmq/lease      the lease that holds it
    spec.holderIdentity        SESSION#EPOCH of the holder, none if the lease is free
    spec.leaseDurationSeconds  how long it has it after a write
    spec.renewTime             and other times: for people, they are not compared

Each change is a PUT of what was read, which Kubernetes refuses (409) if the Lease has been written since. Nobody ends a
lease at the server. As in client-go, it has ended for whoever has seen the same `orbitmq/writes` for
`leaseDurationSeconds` of its own monotonic clock, and it is taken by a write that is refused if the holder has renewed
it after all. Each reader starts to count when it first sees a Lease, so the clocks of two machines are never compared.

`metadata.resourceVersion` is for these writes alone: only the server may say which of two is the later one, and it is
another one when somebody adds a label. So the order of views is that of `orbitmq/writes`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx2
import msgspec

from orbitmq.errors import AgreementError
from orbitmq.failover.agreed import Agreed
from orbitmq.failover.replica import Propose, View
from orbitmq.runtime.clock import Clock, SystemClock

TIMEOUT_S: Final = 0.8  # two connections can be tried before a lease of two seconds ends
CONNECTIONS: Final = 2  # one address stands for all API servers: a new connection may lead to one that is alive
TRIES_MAX: Final = 4  # of a write that others came before: the holder renews a few times a second at most
WATCH_S: Final = 300  # then the server ends a watch, as asked
WATCH_PAUSE_S: Final = 0.2  # before the next one, so that a server that ends all of them is not flooded
NAME_MAX: Final = 200  # characters of cluster and broker in the name of a Lease, of 253 that Kubernetes takes
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

AGREED: Final = "orbitmq/agreed"
REVISION: Final = "orbitmq/revision"
WRITES: Final = "orbitmq/writes"
LEASE: Final = "orbitmq/lease"

RULE: Final = (
    "a Role with apiGroups [coordination.k8s.io], resources [leases] and verbs [get, list, watch, create, update], and"
    " a RoleBinding to the service account of the pod, as in deploy/kubernetes/leases.yaml"
)


@dataclass(frozen=True, slots=True)
class Access:
    """Where the API server is, and the token that lets a pod in. Kubernetes replaces the file before the token in it
    ends, so that it is read for each request.
    """

    url: str
    token_file: Path
    namespace: str = ""
    """That of the pod."""
    tls: ssl.SSLContext | None = None


def in_cluster(environment: Mapping[str, str] = os.environ, directory: Path = SERVICE_ACCOUNT) -> Access:
    """How a pod reaches the API server of its own cluster. AgreementError says what it was not given."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise AgreementError("KUBERNETES_SERVICE_HOST is not set: Leases are for brokers that run in a pod")
    try:
        namespace = (directory / "namespace").read_text(encoding="utf-8").strip()
        tls = ssl.create_default_context(cafile=str(directory / "ca.crt"))
    except OSError as error:
        raise _no_token(error) from error
    authority = f"[{host}]" if ":" in host else host
    return Access(f"https://{authority}:{port}", directory / "token", namespace, tls)


def lease_name(cluster: str, broker: str) -> str:
    """Kubernetes takes fewer characters than RocketMQ, so that the end tells apart what is written alike."""
    plain = re.sub(r"[^a-z0-9]+", "-", f"{cluster}-{broker}".lower()).strip("-")[:NAME_MAX]
    exact = hashlib.sha256(msgspec.json.encode([cluster, broker])).hexdigest()[:10]
    return f"orbitmq-{plain}-{exact}"


@dataclass(frozen=True, slots=True)
class Record:
    """A Lease as it was read. `lease` and `holder` are those that it names, ended or not."""

    raw: dict[str, Any]
    agreed: Agreed
    revision: int
    writes: int
    lease: str
    holder: tuple[str, int] | None
    lease_s: int

    @property
    def uid(self) -> str:
        return str(self.raw["metadata"]["uid"])


@dataclass(slots=True)
class Granted:
    """A lease of this client, which may hold the Lease or nothing yet."""

    seconds: int
    renewed_at: float
    """When its last renewal was asked for: others begin to count later."""


class Kubernetes:
    """Implements `AgreementStore`. An empty `namespace` is that of the pod. `monotonic` returns seconds, and alone
    decides whether a lease has ended; `clock` is written down for people.
    """

    def __init__(
        self, namespace: str, cluster: str, broker: str, *, access: Access | None = None,
        monotonic: Callable[[], float] = time.monotonic, clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self._access = access = in_cluster() if access is None else access
        self._namespace = namespace or access.namespace
        self._name = lease_name(cluster, broker)
        self._leases = f"{access.url}/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases"
        self._monotonic = monotonic
        self._clock = SystemClock() if clock is None else clock
        self._granted: dict[str, Granted] = {}
        self._record: Record | None = None
        self._unchanged_since = 0.0
        """When this client first saw `writes` of the record. The lease is counted from here."""
        verify = True if access.tls is None else access.tls
        self._client = httpx2.AsyncClient(timeout=TIMEOUT_S, verify=verify, trust_env=False)

    async def read(self) -> View:
        asked_at = self._monotonic()
        await self._look()
        return self._view(asked_at)

    async def grant(self, lease_ms: int) -> str:
        """Known to this client only, until a proposal takes it: the server is asked whether it responds at all."""
        now = self._monotonic()
        await self._look()
        self._granted = {one: it for one, it in self._granted.items() if now - it.renewed_at < it.seconds}
        self._granted[lease := uuid4().hex] = Granted(-(-lease_ms // 1000), now)
        return lease

    async def keep(self, lease: str) -> bool:
        now = self._monotonic()
        if not self._has(lease):
            await self._look()
        for _ in range(TRIES_MAX):
            granted = self._alive(lease, now)
            if granted is None:
                return False
            if not self._has(lease) or await self._write({}, {"renewTime": self._time()}):
                granted.renewed_at = now
                return True
            now = self._monotonic()
            await self._look()
        raise self._too_many_writers()

    async def revoke(self, lease: str) -> None:
        self._granted.pop(lease, None)
        for _ in range(TRIES_MAX):
            await self._look()
            if not self._has(lease) or await self._write({LEASE: ""}, {"holderIdentity": None}):
                return
        raise self._too_many_writers()

    async def propose(self, proposal: Propose, lease: str, session: str) -> View:
        for _ in range(TRIES_MAX):
            now = self._monotonic()
            await self._look()
            granted = self._alive(lease, now)
            if granted is None or not self._may_happen(proposal, lease, now):
                return self._view(now)
            if await self._write(*self._changes(proposal, lease, session, granted)):
                return self._view(self._monotonic())
        raise self._too_many_writers()

    async def changes(self) -> AsyncIterator[None]:
        while True:
            async with aclosing(self._watch()) as watch:
                async for _ in watch:
                    yield
            await asyncio.sleep(WATCH_PAUSE_S)

    async def stop(self) -> None:
        await self._client.aclose()

    # ---------------------------------------------------------------------------------------------------- what is known

    def _observe_none(self, known: Record | None) -> None:
        """There was no Lease; `known` is what was known when that was asked for."""
        if known is not None:
            raise AgreementError(
                f"{self} was deleted, and with it which brokers have every acknowledged message: create it again from a"
                " copy, and restart the brokers of this name"
            )

    def _observe(self, raw: dict[str, Any]) -> None:
        """Take note of a Lease that was read, unless a later one is known."""
        known = self._record
        record = _record(raw, self)
        if known is not None:
            if record.uid != known.uid:
                raise AgreementError(f"{self} was deleted and created again: restart the brokers of this name")
            if record.writes < known.writes:
                return
            if record.lease != known.lease:
                self._granted.pop(known.lease, None)  # somebody else has taken it, or cleared it
        if known is None or record.writes > known.writes:
            self._unchanged_since = self._monotonic()
        self._record = record

    def _view(self, now: float) -> View:
        """`now` is when that was asked for which is known: what was read later may have changed in between."""
        record = self._record
        if record is None:
            return View(None, 0, None, 0)
        holder = None if self._remaining_s(now) <= 0 else record.holder
        return View(record.agreed, record.revision, holder, record.writes)

    def _remaining_s(self, now: float) -> float:
        """Until the lease has ended; 0 or less if it is free."""
        record = self._record
        if record is None or record.holder is None:
            return 0.0
        return self._unchanged_since + record.lease_s - now

    def _has(self, lease: str) -> bool:
        """Whether the Lease names this one."""
        return self._record is not None and self._record.lease == lease

    def _alive(self, lease: str, now: float) -> Granted | None:
        """What has ended stays ended, also if a renewal that was sent before arrives late."""
        granted = self._granted.get(lease)
        if granted is not None and now - granted.renewed_at >= granted.seconds:
            del self._granted[lease]
            return None
        return granted

    def _may_happen(self, proposal: Propose, lease: str, now: float) -> bool:
        record = self._record
        if proposal.revision != (0 if record is None else record.revision):
            return False
        return self._remaining_s(now) <= 0 if proposal.takes_lease else self._has(lease)

    # ----------------------------------------------------------------------------------------------------------- writes

    def _changes(
        self, proposal: Propose, lease: str, session: str, granted: Granted
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Annotations and fields of `spec` that a proposal sets."""
        now, record = self._time(), self._record
        writes = 1 if record is None else record.writes + 1
        annotations = {AGREED: msgspec.json.encode(proposal.agreed).decode(), REVISION: str(writes)}
        if not proposal.takes_lease:
            return annotations, {"renewTime": now}  # others count from each write
        return {**annotations, LEASE: lease}, {
            "holderIdentity": f"{session}#{proposal.agreed.epoch}",
            "leaseDurationSeconds": granted.seconds,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": 0 if record is None else (record.raw["spec"].get("leaseTransitions") or 0) + 1,
        }

    async def _write(self, annotations: dict[str, str], spec: dict[str, Any]) -> bool:
        """Change the Lease that is known, or create the first one; False if somebody has written it since."""
        record = self._record
        new: dict[str, Any] = {"metadata": {"name": self._name, "namespace": self._namespace}}
        raw = new if record is None else record.raw
        writes = 1 if record is None else record.writes + 1
        metadata = raw["metadata"]
        # With its uid, without which a PUT creates a Lease that was deleted.
        written = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                **metadata,
                "annotations": {**metadata.get("annotations", {}), WRITES: str(writes), **annotations},
            },
            "spec": {**raw.get("spec", {}), **spec},
        }
        method, place = ("POST", "") if record is None else ("PUT", f"/{self._name}")
        status, found = await self._ask(method, place, body=written)
        if status == httpx2.codes.CONFLICT:
            return False
        if status not in (httpx2.codes.OK, httpx2.codes.CREATED):
            raise self._refusal(status, found)
        self._observe(found)
        return True

    def _time(self) -> str:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    # ------------------------------------------------------------------------------------------------------------ watch

    async def _watch(self) -> AsyncGenerator[None, None]:
        """One watch, until the server ends it: first that it watches, then what `_news` finds."""
        only = {"fieldSelector": f"metadata.name={self._name}"}
        known = self._record
        status, found = await self._ask("GET", "", params=only)
        if status != httpx2.codes.OK:
            raise self._refusal(status, found)
        if found["items"]:
            self._observe(found["items"][0])
        else:
            self._observe_none(known)
        wanted = {**only, "watch": "true", "resourceVersion": found["metadata"]["resourceVersion"]}
        wanted["timeoutSeconds"] = str(WATCH_S)
        timeout = httpx2.Timeout(TIMEOUT_S, read=WATCH_S + TIMEOUT_S)
        request = self._client.build_request(
            "GET", self._leases, params=wanted, headers=self._headers(), timeout=timeout
        )
        try:
            async with asyncio.timeout(TIMEOUT_S):
                response = await self._client.send(request, stream=True)
            try:
                if response.status_code != httpx2.codes.OK:
                    async with asyncio.timeout(TIMEOUT_S):
                        refusal = msgspec.json.decode(await response.aread())
                    self._end_watch(response.status_code, refusal)
                    return
                async with aclosing(self._news(response.aiter_lines())) as news:
                    async for _ in news:
                        yield
            finally:
                await response.aclose()
        except (httpx2.HTTPError, msgspec.DecodeError, TimeoutError) as error:
            raise self._silence(error) from error

    async def _news(self, lines: AsyncIterator[str]) -> AsyncGenerator[None, None]:
        """Another value or holder, and that a lease has ended, which no server sends. A renewal alone is no news."""
        told: tuple[int, object] | None = None
        line: asyncio.Future[str | None] = asyncio.ensure_future(anext(lines, None))
        try:
            while True:
                view = self._view(now := self._monotonic())
                if (view.revision, view.holder) != told:
                    told = view.revision, view.holder
                    yield
                    continue
                await asyncio.wait({line}, timeout=self._remaining_s(now) if view.holder else None)
                if not line.done():
                    continue
                text = line.result()
                if text is None or not self._is_noted(msgspec.json.decode(text)):
                    return
                line = asyncio.ensure_future(anext(lines, None))
        finally:
            line.cancel()
            await asyncio.gather(line, return_exceptions=True)

    def _is_noted(self, event: dict[str, Any]) -> bool:
        """False if the server ends the watch by this event."""
        if event["type"] == "ERROR":
            self._end_watch(event["object"].get("code", 0), event["object"])
            return False
        if event["type"] == "DELETED":
            self._observe_none(self._record)
        else:
            self._observe(event["object"])
        return True

    def _end_watch(self, status: int, found: dict[str, Any]) -> None:
        """That the server has forgotten what came after the list that a watch started at is none of our faults."""
        if status != httpx2.codes.GONE:
            raise self._refusal(status, found)

    # ------------------------------------------------------------------------------------------------------------ calls

    async def _look(self) -> None:
        """Read the Lease, as it is now: the server asks its quorum, unless a version is named."""
        known = self._record
        status, found = await self._ask("GET", f"/{self._name}")
        if status == httpx2.codes.OK:
            self._observe(found)
        elif status == httpx2.codes.NOT_FOUND and found.get("reason") == "NotFound":
            self._observe_none(known)
        else:
            raise self._refusal(status, found)

    async def _ask(
        self, method: str, place: str, *, body: dict[str, Any] | None = None, params: dict[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Status and body. It is asked twice if there is no response: each write is refused when it comes again."""
        content = None if body is None else msgspec.json.encode(body)
        failure: Exception | None = None
        for _ in range(CONNECTIONS):
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    response = await self._client.request(
                        method, f"{self._leases}{place}", content=content, params=params, headers=self._headers()
                    )
                return response.status_code, msgspec.json.decode(response.content, type=dict[str, Any])
            except (httpx2.HTTPError, msgspec.DecodeError, TimeoutError) as error:
                failure = error
        assert failure is not None
        raise self._silence(failure) from failure

    def _headers(self) -> dict[str, str]:
        try:
            token = self._access.token_file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise _no_token(error) from error
        return {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    # ----------------------------------------------------------------------------------------------------------- errors

    def __str__(self) -> str:
        return f"Lease {self._name} of namespace {self._namespace}"

    def _refusal(self, status: int, found: dict[str, Any]) -> AgreementError:
        text = str(found.get("message", found))
        if status == httpx2.codes.UNAUTHORIZED:
            return AgreementError(
                f"Kubernetes does not take the token in {self._access.token_file}, which has ended or is that of"
                f" another cluster: {text}"
            )
        if status == httpx2.codes.FORBIDDEN:
            return AgreementError(f"{text}: namespace {self._namespace} needs {RULE}")
        return AgreementError(f"the API server of Kubernetes responds with status {status}: {text}")

    def _silence(self, error: Exception) -> AgreementError:
        return AgreementError(f"the API server of Kubernetes at {self._access.url} does not respond: {error!r}")

    def _too_many_writers(self) -> AgreementError:
        return AgreementError(f"{self} was written by others {TRIES_MAX} times while it was to be changed")


def _record(raw: dict[str, Any], place: object) -> Record:
    try:
        annotations, spec = raw["metadata"]["annotations"], raw["spec"]
        session, _, epoch = (spec.get("holderIdentity") or "").rpartition("#")
        return Record(
            raw,
            msgspec.json.decode(annotations[AGREED], type=Agreed),
            int(annotations[REVISION]),
            int(annotations[WRITES]),
            annotations[LEASE] if session else "",
            (session, int(epoch)) if session else None,
            spec["leaseDurationSeconds"],
        )
    except (KeyError, TypeError, ValueError, msgspec.DecodeError) as error:
        raise AgreementError(f"{place} is another program's, or was edited: {error!r}") from error


def _no_token(error: OSError) -> AgreementError:
    return AgreementError(
        f"the pod has no token for the API server of Kubernetes: set serviceAccountName and"
        f" automountServiceAccountToken: true in its spec ({error})"
    )
