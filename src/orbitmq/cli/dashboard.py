"""The command `dashboard`: its clusters, accounts and address. Must not know a page."""

from __future__ import annotations

import asyncio
import getpass
import ipaddress
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from orbitmq.cli import undo_files
from orbitmq.cli.contexts import Context, choose, load, path_of
from orbitmq.cli.daemons import run_until_stopped, serve
from orbitmq.cli.execution import memory_of
from orbitmq.cli.exit_codes import one_line_errors
from orbitmq.cli.nouns.dashboard import DashboardFlags
from orbitmq.cli.page_process import listen
from orbitmq.cli.places import state_folder
from orbitmq.cli.tls import tls_context
from orbitmq.dashboard.accounts import AccountFile, put
from orbitmq.dashboard.accounts import remove as remove_account
from orbitmq.dashboard.app import COOKIE, Dashboard, DashboardSettings
from orbitmq.dashboard.audit import AuditLog
from orbitmq.dashboard.clusters import ClusterAccess, DashboardCluster
from orbitmq.dashboard.connection_limits import CONNECTIONS_MAX, BoundedConnection
from orbitmq.dashboard.roles import Role, role_of
from orbitmq.errors import ConfigurationError
from orbitmq.message.hosts import address_text
from orbitmq.net.remoting import Remoting
from orbitmq.runtime.clock import SystemClock
from orbitmq.wire.signature import sign

DEFAULT_PLACE = "local"
"""The name of a cluster that is given by flags, without a context."""
STOP_SECONDS = 3  # for requests in flight


def run(flags: DashboardFlags) -> None:
    """Ends with the process."""
    with one_line_errors("dashboard"):
        places = [_place(context, flags) for context in _contexts(flags)]
        found = _accounts(flags, places)
        if (flags.certificate is None) != (flags.key is None):
            raise ConfigurationError("--tls-cert and --tls-key belong together")
        _check_proxies(flags.proxies or ())
        listening = _listening(flags)
        settings = DashboardSettings(
            places,
            found,
            readonly=flags.read_only,
            hosts=frozenset(name.lower() for name in flags.allowed_hosts or ()),
            is_secure=flags.certificate is not None,
            cookie=f"{COOKIE}-{listening.getsockname()[1]}",
            audit=AuditLog(flags.audit_log or state_folder("dashboard-audit.jsonl"), SystemClock()),
            save_undo=undo_files.save,
        )
        settings.audit.open()
        run_until_stopped(lambda stopped: _serve(settings, listening, flags, stopped), flags.log_level)


def _contexts(flags: DashboardFlags) -> list[Context]:
    names: Sequence[str | None] = flags.contexts or [None]
    if flags.every_context:
        names = tuple(load(path_of()).get("contexts", {}))
        if not names:
            raise ConfigurationError(f"there is no context in {path_of()}; orbitmq context add NAME")
    return [choose(flags.name_servers or (), name, flags.cluster, flags.mapped or ()) for name in names]


def _place(context: Context, flags: DashboardFlags) -> DashboardCluster:
    credentials = context.credentials()
    tls = tls_context(context)
    remoting = partial(
        Remoting,
        connect_timeout_ms=flags.timeout * 1000,
        sign=None if credentials is None else partial(sign, credentials=credentials),
        direct=None if not context.addresses else lambda address, _: context.addresses.get(address, address),
        tls=tls,
    )
    access = ClusterAccess(
        context.name_servers,
        remoting,
        context.cluster,
        flags.timeout * 1000,
        readonly=context.readonly,
        protected=context.protected,
        memory=memory_of(context),
        has_account=credentials is not None,
    )
    return DashboardCluster(context.name or DEFAULT_PLACE, access, sample_seconds=flags.sample)


def accounts_path(environment: dict[str, str] | None = None) -> Path:
    home = (environment or os.environ).get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "orbitmq" / "dashboard.toml"


def _accounts(flags: DashboardFlags, places: list[DashboardCluster]) -> AccountFile | None:
    """None if no login is required: on loopback, and without an account for a cluster."""
    path = flags.accounts or accounts_path()
    if flags.accounts is not None or path.exists():
        found = AccountFile(path)
        if not found.accounts():
            raise ConfigurationError(f"{path}: there is no account; orbitmq dashboard account NAME --role admin")
        return found
    if not _is_loopback(flags.host):
        raise ConfigurationError(
            f"--host {flags.host} is not a loopback address, and no login would be required; "
            "create an account first: orbitmq dashboard account NAME --role admin"
        )
    for place in places:
        if place.access.has_account:
            raise ConfigurationError(
                f"cluster {place.name} has an account, which the page would lend to every user of "
                "this machine; create an account first: orbitmq dashboard account NAME --role admin"
            )
    return None


def _check_proxies(proxies: Sequence[str]) -> None:
    """uvicorn would take names for addresses that never match, and `*` for all addresses."""
    for text in proxies:
        try:
            ipaddress.ip_network(text)
        except ValueError as error:
            raise ConfigurationError(f"--proxy: {error}") from error


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listening(flags: DashboardFlags) -> socket.socket:
    if flags.descriptor is not None:
        return socket.socket(fileno=flags.descriptor)
    return listen(flags.host, flags.port)


def _config(asgi: ASGIApp, flags: DashboardFlags) -> uvicorn.Config:
    config = uvicorn.Config(
        asgi,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(flags.proxies),
        forwarded_allow_ips=flags.proxies or [],
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=STOP_SECONDS,
        ssl_certfile=flags.certificate,
        ssl_keyfile=flags.key,
        ws="none",
        http=BoundedConnection,
    )
    try:
        config.load()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"--tls-cert {flags.certificate}, --tls-key {flags.key}: {error}") from error
    return config


async def _serve(
    settings: DashboardSettings, listening: socket.socket, flags: DashboardFlags, stopped: asyncio.Event
) -> None:
    server = _Server(_config(Dashboard(settings).asgi, flags))
    for place in settings.clusters:
        place.start()
    if flags.descriptor is not None:
        _end_with_input(stopped)
    serving_task = asyncio.create_task(server.serve([listening]))
    kind = "https" if flags.certificate is not None else "http"
    port = listening.getsockname()[1]
    try:
        ended = asyncio.create_task(_first(stopped, serving_task))
        await serve(ended, f"  {'dashboard':<12} {kind}://{address_text(flags.host, port)}/\n")
    finally:
        server.should_exit = True
        await serving_task
        for place in settings.clusters:
            await place.stop()


def _end_with_input(stopped: asyncio.Event) -> None:
    """Stop when standard input is closed: the process that passed the socket holds its other end."""
    loop, number = asyncio.get_running_loop(), sys.stdin.fileno()

    def read() -> None:
        if not os.read(number, 4096):
            loop.remove_reader(number)
            stopped.set()

    loop.add_reader(number, read)


async def _first(stopped: asyncio.Event, task: asyncio.Task[None]) -> None:
    waiting = asyncio.create_task(stopped.wait())
    await asyncio.wait([waiting, task], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


class _Server(uvicorn.Server):
    """Leaves signals to the process that runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def account(name: str, role: str | None, path: Path | None, *, remove: bool) -> None:
    """Writes at once; the password is read from the terminal or from standard input."""
    with one_line_errors("dashboard account"):
        place = path or accounts_path()
        if remove:
            remove_account(place, name)
            print(f"{name} may no longer log in ({place})")
            return
        try:
            wanted = _role_now(place, name) if role is None else role_of(role)
        except ValueError as error:
            raise ConfigurationError(f"--role: {error}") from error
        put(place, name, wanted, _password())
        print(f"{name} may log in as {wanted.word} ({place})")


def _role_now(path: Path, name: str) -> Role:
    """The role of an account whose password alone changes; viewer for a new account."""
    known = AccountFile(path).accounts().get(name) if path.exists() else None
    return Role.VIEWER if known is None else known.role


def _password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    first = getpass.getpass("Password: ")
    if getpass.getpass("Again: ") != first:
        raise ConfigurationError("the passwords differ; nothing was written")
    return first
