"""The command `dashboard`: its clusters, accounts and address. Must not know a page."""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from orbitmq.cli import undo_files
from orbitmq.cli.contexts import Context, choose, load, path_of
from orbitmq.cli.daemons import run_until_stopped
from orbitmq.cli.execution import memory_of
from orbitmq.cli.exit_codes import one_line_errors
from orbitmq.cli.nouns.dashboard import DashboardFlags
from orbitmq.cli.page_process import listen
from orbitmq.cli.places import state_folder
from orbitmq.cli.tls import tls_context
from orbitmq.cli.web_server import WebServer, is_loopback, serve_web
from orbitmq.dashboard.accounts import AccountFile, put
from orbitmq.dashboard.accounts import remove as remove_account
from orbitmq.dashboard.app import COOKIE, Dashboard, DashboardSettings
from orbitmq.dashboard.audit import AuditLog
from orbitmq.dashboard.clusters import ClusterAccess, DashboardCluster
from orbitmq.dashboard.connection_limits import BoundedConnection
from orbitmq.dashboard.roles import Role, role_of
from orbitmq.errors import ConfigurationError
from orbitmq.message.hosts import address_text
from orbitmq.net.remoting import Remoting
from orbitmq.runtime.clock import SystemClock
from orbitmq.wire.signature import sign

DEFAULT_PLACE = "local"
"""The name of a cluster that is given by flags, without a context."""


def run(flags: DashboardFlags) -> None:
    """Ends with the process."""
    with one_line_errors("dashboard"):
        places = [_place(context, flags) for context in _contexts(flags)]
        found = _accounts(flags, places)
        web = WebServer(flags.certificate, flags.key, flags.proxies or ())
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
        run_until_stopped(lambda stopped: _serve(settings, listening, web, flags, stopped), flags.log_level)


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
    if not is_loopback(flags.host):
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


def _listening(flags: DashboardFlags) -> socket.socket:
    if flags.descriptor is not None:
        return socket.socket(fileno=flags.descriptor)
    return listen(flags.host, flags.port)


async def _serve(
    settings: DashboardSettings, listening: socket.socket, web: WebServer, flags: DashboardFlags, stopped: asyncio.Event
) -> None:
    dashboard = Dashboard(settings)
    server = web.server(dashboard.asgi, BoundedConnection)
    for place in settings.clusters:
        place.start()
    if flags.descriptor is not None:
        _end_with_input(stopped)
    compiling_task = asyncio.create_task(dashboard.compile_templates())
    try:
        await serve_web(server, listening, stopped, "dashboard", f"{web.scheme}://{_address(flags.host, listening)}/")
    finally:
        compiling_task.cancel()
        for place in settings.clusters:
            await place.stop()


def _address(host: str, listening: socket.socket) -> str:
    return address_text(host, listening.getsockname()[1])


def _end_with_input(stopped: asyncio.Event) -> None:
    """Stop when standard input is closed: the process that passed the socket holds its other end."""
    loop, number = asyncio.get_running_loop(), sys.stdin.fileno()

    def read() -> None:
        if not os.read(number, 4096):
            loop.remove_reader(number)
            stopped.set()

    loop.add_reader(number, read)


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
