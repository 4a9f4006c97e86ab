"""etcd as the store of agreement, by the JSON of its own gateway (API v3, etcd 3.4 and later).

Two keys for a broker name, below `/orbitmq/CLUSTER/BROKER/`:

    agreed    the agreed value as JSON
    lease     {"session": ..., "epoch": ...}, bound to the lease of the master: etcd deletes it with that

Each proposal is one transaction that compares both and returns both, so that no response leaves a doubt. Reads are
linearizable, as etcd has it by default.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import httpx2
import msgspec

from orbitmq.errors import AgreementError
from orbitmq.failover.agreed import Agreed
from orbitmq.failover.replica import Propose, View

TIMEOUT_S: Final = 0.8  # a third of the shortest lease that etcd takes: two other members can be asked before it ends
WATCH_SILENCE_S: Final = 600.0  # etcd says something every ten minutes


class Holder(msgspec.Struct, frozen=True):
    """The value of the key `lease`."""

    session: str
    epoch: int


class Etcd:
    """Implements `AgreementStore`. `endpoints` are URLs; the one that responded last is asked first."""

    def __init__(
        self, endpoints: Sequence[str], cluster: str, broker: str, *, user: str = "", password: str = "",
        tls: ssl.SSLContext | None = None,
    ) -> None:  # fmt: skip
        self._endpoints = list(endpoints)
        self._user, self._password = user, password
        self._token: str | None = None
        self._agreed = _key(f"/orbitmq/{cluster}/{broker}/agreed")
        self._lease = _key(f"/orbitmq/{cluster}/{broker}/lease")
        self._reads = [{"requestRange": {"key": self._agreed}}, {"requestRange": {"key": self._lease}}]
        self._client = httpx2.AsyncClient(timeout=TIMEOUT_S, verify=True if tls is None else tls, trust_env=False)

    async def read(self) -> View:
        return self._view(await self._ask("kv/txn", {"success": self._reads}))

    async def grant(self, lease_ms: int) -> str:
        return str((await self._ask("lease/grant", {"TTL": str(-(-lease_ms // 1000))}))["ID"])

    async def keep(self, lease: str) -> bool:
        found = await self._ask("lease/keepalive", {"ID": lease})
        return int(found["result"].get("TTL", 0)) > 0

    async def revoke(self, lease: str) -> None:
        with contextlib.suppress(_Unknown):
            await self._ask("lease/revoke", {"ID": lease})

    async def propose(self, proposal: Propose, lease: str, session: str) -> View:
        compare: list[dict[str, Any]] = [
            {"target": "MOD", "key": self._agreed, "result": "EQUAL", "modRevision": str(proposal.revision)}
        ]
        agreed = {"requestPut": {"key": self._agreed, "value": _base64(msgspec.json.encode(proposal.agreed))}}
        if proposal.takes_lease:
            compare.append({"target": "VERSION", "key": self._lease, "result": "EQUAL", "version": "0"})
            holder = _base64(msgspec.json.encode(Holder(session, proposal.agreed.epoch)))
            puts = [agreed, {"requestPut": {"key": self._lease, "value": holder, "lease": lease}}]
        else:
            compare.append({"target": "LEASE", "key": self._lease, "result": "EQUAL", "lease": lease})
            puts = [agreed]
        wanted = {"compare": compare, "success": [*puts, *self._reads], "failure": self._reads}
        try:
            return self._view(await self._ask("kv/txn", wanted))
        except _Unknown:  # the lease has ended
            return await self.read()

    async def changes(self) -> AsyncIterator[None]:
        prefix = b64decode(self._agreed).rpartition(b"/")[0] + b"/"
        wanted = {"create_request": {"key": _base64(prefix), "range_end": _base64(prefix[:-1] + b"0")}}
        failures = []
        for endpoint in list(self._endpoints):
            try:
                timeout = httpx2.Timeout(TIMEOUT_S, read=WATCH_SILENCE_S)
                headers = await self._headers(endpoint)
                async with self._client.stream(
                    "POST", f"{endpoint}/v3/watch", json=wanted, headers=headers, timeout=timeout
                ) as response:
                    async for line in response.aiter_lines():
                        if "error" in (found := msgspec.json.decode(line)):
                            raise AgreementError(f"etcd at {endpoint} ends the watch: {found['error']}")
                        yield
            except (httpx2.HTTPError, msgspec.DecodeError) as error:
                failures.append(f"{endpoint}: {error!r}")
        raise AgreementError(f"no member of etcd lets its keys be watched: {'; '.join(failures)}")

    async def stop(self) -> None:
        await self._client.aclose()

    # ---------------------------------------------------------------------------------------------------------- calls

    async def _ask(self, path: str, wanted: dict[str, Any]) -> dict[str, Any]:
        """The response of the first member that sends one."""
        failures = []
        for endpoint in list(self._endpoints):
            try:
                found = await self._ask_one(endpoint, path, wanted)
            except (httpx2.HTTPError, msgspec.DecodeError, TimeoutError, AgreementError) as error:
                failures.append(f"{endpoint}: {error!r}")
                continue
            if failures:
                self._endpoints.remove(endpoint)
                self._endpoints.insert(0, endpoint)
            return found
        raise AgreementError(f"no member of etcd responds: {'; '.join(failures)}")

    async def _ask_one(self, endpoint: str, path: str, wanted: dict[str, Any]) -> dict[str, Any]:
        async with asyncio.timeout(TIMEOUT_S):
            response = await self._client.post(
                f"{endpoint}/v3/{path}", json=wanted, headers=await self._headers(endpoint)
            )
        found: dict[str, Any] = msgspec.json.decode(response.content)
        if response.status_code == httpx2.codes.OK and "error" not in found:
            return found
        text = str(found.get("message") or found.get("error"))
        if "lease not found" in text:
            raise _Unknown(text)
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            self._token = None  # it has ended
        raise AgreementError(text)

    async def _headers(self, endpoint: str) -> dict[str, str]:
        if not self._user:
            return {}
        if self._token is None:
            wanted = {"name": self._user, "password": self._password}
            response = await self._client.post(f"{endpoint}/v3/auth/authenticate", json=wanted)
            found = msgspec.json.decode(response.content)
            if "token" not in found:
                raise AgreementError(f"etcd does not let user {self._user} in: {found.get('message')}")
            self._token = found["token"]
        return {"Authorization": self._token}

    @staticmethod
    def _view(found: dict[str, Any]) -> View:
        agreed, lease = (one["response_range"].get("kvs") for one in found["responses"][-2:])
        holder = None if not lease else msgspec.json.decode(b64decode(lease[0]["value"]), type=Holder)
        return View(
            None if not agreed else msgspec.json.decode(b64decode(agreed[0]["value"]), type=Agreed),
            0 if not agreed else int(agreed[0]["mod_revision"]),
            None if holder is None else (holder.session, holder.epoch),
            int(found["header"]["revision"]),
        )


class _Unknown(Exception):
    """etcd does not know a lease."""


def _key(text: str) -> str:
    return _base64(text.encode())


def _base64(data: bytes) -> str:
    return b64encode(data).decode()
