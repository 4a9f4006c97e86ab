"""Authenticates and authorizes each request. Reloads the rules when their files change, without a restart.

A permission is one lookup in the account's table, so nothing is cached for a request. The cost is the HMAC over fields
and body; it is bounded by the size of a frame.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orbitmq.broker.access import files
from orbitmq.broker.access.accounts import Account, account_of, resource_text
from orbitmq.broker.access.addresses import Matches, address_of, pattern
from orbitmq.broker.access.files import AclFile, AclPlaces, Document, Signature
from orbitmq.broker.access.needs import TopicAt, needed
from orbitmq.broker.access.shapes import misfit
from orbitmq.errors import ConfigurationError, RequestRejected
from orbitmq.message.config import DataVersion
from orbitmq.net.brake import LATE_S, REST_SECONDS, RESTS, TOO_OFTEN, SignatureBrake
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Answer
from orbitmq.runtime.clock import Clock
from orbitmq.runtime.refusals import Limit
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.request import PUB, Request
from orbitmq.wire.signature import ACCESS_KEY, signed_fields

_log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0  # a changed file counts after two looks; RocketMQ looks every 5 s
SHOWN_MAX = 255  # of a peer's account name, in a response
DENIALS_LOGGED = 1000  # different ones between two looks; a flood of refused requests must not fill the disk
_IS_WHITE = "access.is_white"


@dataclass(frozen=True)
class Policy:
    """The rules of one moment."""

    files: tuple[AclFile, ...]
    accounts: Mapping[str, Account]
    owners: Mapping[str, Path]
    """Access key -> the file that has its account."""
    white: tuple[Matches, ...]

    def is_white(self, host: str) -> bool:
        """Whether peers of this address need neither signature nor permission."""
        address = address_of(host)
        return address is not None and any(matches(address) for matches in self.white)


def policy_of(found: Sequence[AclFile]) -> Policy:
    """ConfigurationError names the file and the problem."""
    accounts: dict[str, Account] = {}
    owners: dict[str, Path] = {}
    white: list[Matches] = []
    for file in found:
        try:
            white += map(pattern, file.white)
            made = [account_of(config) for config in file.accounts]
        except ConfigurationError as error:
            raise ConfigurationError(f"{file.path}: {error}") from error
        for account in made:
            if account.access_key in accounts:
                first = owners[account.access_key]
                _log.warning("event=account_repeated access_key=%s used=%s", account.access_key, first)
            else:
                accounts[account.access_key], owners[account.access_key] = account, file.path
    return Policy(tuple(found), accounts, owners, tuple(white))


class AccessControl:
    """The check before every handler. `load` before use; `start` keeps looking for changed files until `stop`."""

    def __init__(self, places: AclPlaces, handled: Mapping[int, Request], topic_at: TopicAt, clock: Clock) -> None:
        self._places = places
        self._handled = handled
        self._topic_at = topic_at
        self._clock = clock
        self._policy = policy_of(())
        self._seen: Signature | None = None
        self._settling: Signature | None = None
        self._changing = asyncio.Lock()
        self._watch: asyncio.Task[None] | None = None
        self._denied: set[tuple[str, int, str]] = set()
        self._brake = SignatureBrake()
        self._loaded_ms = 0

    @property
    def policy(self) -> Policy:
        """The rules that count now."""
        return self._policy

    @property
    def main_file(self) -> Path:
        """Where accounts go that are in no file yet."""
        return self._places.main

    def version(self) -> DataVersion:
        """The version of the main file; for a file that was never changed, the time it was read."""
        main = (file.version for file in self._policy.files if file.path == self._places.main)
        version = next(main, DataVersion())
        return version if version.timestamp else DataVersion(0, self._loaded_ms)

    def secret(self, access_key: str) -> str | None:
        """The secret key of an account, None if there is none."""
        account = self._policy.accounts.get(access_key)
        return None if account is None else account.secret.decode()

    def may_send(self, access_key: str, topic: str) -> bool:
        """Whether an account has PUB on a topic."""
        account = self._policy.accounts.get(access_key)
        return account is not None and account.missing([(topic, PUB)]) is None

    # -------------------------------------------------------------------------------------------------------- files

    def load(self) -> None:
        """Read the files. ConfigurationError if there is none, or one is invalid."""
        seen = self._places.signature()
        if not seen:
            raise ConfigurationError(
                f"option aclEnable: neither {self._places.main} nor a .yml file below {self._places.directory} exists"
            )
        self._adopt(policy_of([files.parse(path, files.load_document(path)) for path in self._places.paths()]))
        self._seen = seen

    def _adopt(self, policy: Policy) -> None:
        self._policy, self._loaded_ms = policy, self._clock.now_ms()
        for file in policy.files:
            if file.is_open_to_all:
                _log.warning("event=access_file_readable_by_all file=%s", file.path)
            _log.info(
                "event=access_rules_loaded file=%s accounts=%d white=%d", file.path, len(file.accounts), len(file.white)
            )

    def start(self) -> None:
        self._watch = asyncio.get_running_loop().create_task(self._reload_regularly())

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)

    async def _reload_regularly(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._denied.clear()
            async with self._changing:
                await asyncio.to_thread(self.reload)

    def reload(self) -> None:
        """Reload the files if one has changed. If that fails the old rules stay in effect, and the reason is logged
        once.

        A file that changed since the last check may be half written, which YAML cannot detect, so it is read at the
        next check.
        """
        try:
            seen = self._places.signature()
            if seen == self._seen:
                return
            if seen != self._settling:
                self._settling = seen
                return
            self._seen = seen
            self.load()
        except (ConfigurationError, OSError) as error:
            _log.error("event=access_rules_kept reason=%s", error)

    async def change(self, path: Path, edit: Callable[[Document], Document]) -> None:
        """Change one file and use it at once. ConfigurationError if the result is invalid: nothing is written then."""
        async with self._changing:
            await asyncio.to_thread(self._change, path, edit)

    def _change(self, path: Path, edit: Callable[[Document], Document]) -> None:
        before = files.load_document(path) if path.exists() else {}
        document = files.with_next_version(edit(before), self._clock.now_ms())
        changed = files.parse(path, document)
        others = [p for p in self._places.paths() if p != path]
        found = [*(files.parse(p, files.load_document(p)) for p in others), changed]
        order = [*self._places.paths(), path]
        policy = policy_of(sorted(found, key=lambda file: order.index(file.path)))
        files.save(path, document)
        self._seen = None  # later changes are read at the next check
        self._adopt(policy)

    # ----------------------------------------------------------------------------------------------------- requests

    def check(self, connection: Connection, command: Command) -> Awaitable[Answer] | None:
        """Check a request. RequestRejected with RocketMQ's remark if it must not be handled. Returns a coroutine that
        raises it later if the address had too many wrong signatures.
        """
        policy = self._policy
        if self._is_white(policy, connection):
            return None
        if (rests := connection.attributes.get(RESTS)) is not None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, rests)
        access_key = (command.ext or {}).get(ACCESS_KEY)
        if not access_key:
            raise self._denial(connection, command, "No accessKey is configured")
        account = policy.accounts.get(access_key)
        if account is None:
            denial = self._denial(connection, command, f"No acl config for {_shown(access_key)}", "no such account")
            return self._wrong(connection, denial)
        address = address_of(connection.peer[0])
        if address is not None and account.is_white(address):
            return None
        signed = signed_fields(command, account.secret)
        if signed is None:
            denial = self._denial(connection, command, f"Check signature failed for accessKey={access_key}")
            return self._wrong(connection, denial)
        request = self._handled.get(command.code)
        if request is None:
            return None  # the response is that for an unsupported code
        self._check_permission(connection, command, account, request)
        if (reason := misfit(request, signed, command.body)) is not None:
            raise self._denial(connection, command, f"{reason}, and the signature covers it", reason)
        return None

    def _wrong(self, connection: Connection, denial: RequestRejected) -> Awaitable[Answer]:
        """Refuse a wrong signature: the first ones at once, later ones with a delay, then the connection is paused and
        closed. Until then it counts against the connections of its address, even if the peer has closed it.
        """
        text = "event=signature_refused peer=%s reason=%s"
        connection.refusals.note(Limit.SIGNATURES, _log, text, connection.address, denial.remark)
        late_s = self._brake.wrong(connection.peer[0], connection.loop.time())
        if late_s <= 0:
            raise denial
        connection.place_until = connection.loop.time() + REST_SECONDS
        if late_s >= LATE_S:
            connection.attributes[RESTS] = f"{denial.remark}; {TOO_OFTEN}"
            connection.loop.call_later(REST_SECONDS, connection.close)
        return _refused_later(late_s, denial)

    def _is_white(self, policy: Policy, connection: Connection) -> bool:
        """Evaluated once for each connection and policy, since a connection's address does not change."""
        known = connection.attributes.get(_IS_WHITE)
        if known is None or known[0] is not policy:
            known = connection.attributes[_IS_WHITE] = policy, policy.is_white(connection.peer[0])
        return bool(known[1])

    def _check_permission(self, connection: Connection, command: Command, account: Account, request: Request) -> None:
        access = request.access
        if access.is_admin and not account.is_admin:
            text = f"Need admin permission for request code={command.code}, but accessKey={account.access_key} is not"
            raise self._denial(connection, command, text)
        if not access.needs or account.may_everything:
            return
        missing = account.missing(needed(request, command, self._topic_at))
        if missing is not None:
            text = f"No default permission for {resource_text(_shown(missing))}"
            raise self._denial(connection, command, text, f"{text}, accessKey={account.access_key}")

    def _denial(self, connection: Connection, command: Command, text: str, reason: str = "") -> RequestRejected:
        """The error of a refused request; each kind is logged once between two checks of the files."""
        entry = (connection.peer[0], command.code, reason or text)
        if entry not in self._denied and len(self._denied) < DENIALS_LOGGED:
            self._denied.add(entry)
            _log.warning("event=access_denied peer=%s code=%d reason=%s", connection.address, command.code, entry[2])
        return RequestRejected(ResponseCode.SYSTEM_ERROR, f"AclException: {text}")


async def _refused_later(late_s: float, denial: RequestRejected) -> Answer:
    await asyncio.sleep(late_s)
    raise denial


def _shown(text: str) -> str:
    return text[:SHOWN_MAX].encode(errors="replace").decode()
