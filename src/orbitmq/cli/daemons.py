"""Runs the daemons: reads options, prints a few lines, handles signals, sets exit codes.

Each daemon builds, starts and stops its own parts; here they are only set up, awaited and stopped. Every error at start
becomes one line on standard error. Must not know protocols or file formats.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import uvloop

from orbitmq import __version__
from orbitmq.broker.access.control import AccessControl
from orbitmq.broker.access.files import AclPlaces
from orbitmq.broker.broker import Broker
from orbitmq.broker.election.configured import make_election
from orbitmq.broker.options import BrokerOptions
from orbitmq.cli import configuration, page_process
from orbitmq.cli.exit_codes import leave, one_line_errors
from orbitmq.cli.page_process import listen
from orbitmq.errors import ConfigurationError, StoreStuck
from orbitmq.metrics.daemons import parts_of, served
from orbitmq.metrics.options import MetricsOptions
from orbitmq.namesrv.options import NamesrvOptions
from orbitmq.namesrv.server import NameServer
from orbitmq.net.connection_options import ConnectionOptions
from orbitmq.net.tls_options import TlsOptions, with_tls_file
from orbitmq.runtime import logging
from orbitmq.runtime.clock import SystemClock
from orbitmq.runtime.collector import settle
from orbitmq.runtime.error_texts import translated
from orbitmq.runtime.form import form
from orbitmq.runtime.limits import raise_open_files
from orbitmq.runtime.options import Options
from orbitmq.store.options import SLAVE, StoreOptions

if TYPE_CHECKING:
    from orbitmq.proxy.options import ProxyOptions

_log = getLogger(__name__)

READY, STOPPING = "READY=1", "STOPPING=1"
"""States of a daemon in systemd's notification protocol."""
SOCKET_VARIABLE = "NOTIFY_SOCKET"
DATA_DIR = Path("~/.orbitmq")
LOOPBACK = "127.0.0.1"
GRPC_PORT = 8081  # that of RocketMQ's proxy
DASHBOARD_PORT = 8082  # that of RocketMQ's dashboard


class Daemon(Protocol):
    """What the name server and the broker have in common."""

    @property
    def port(self) -> int: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...


D = TypeVar("D", bound=Daemon)


def up(
    data_dir: Path | None,
    namesrv_port: int,
    broker_port: int | None,
    grpc_port: int | None,
    config: Path | None,
    page: int | None,
    log_level: logging.Level,
) -> None:
    """Run a name server and a broker in one process. Files are below `data_dir` unless the configuration file says
    otherwise. `page` is the port of the web page; None for no web page."""
    with one_line_errors("up", ports="--namesrv-port, --broker-port, --grpc-port, --dashboard-port"):
        home = (data_dir or DATA_DIR).expanduser().absolute()
        flags = {
            "listenPort": None if broker_port is None else str(broker_port),
            "grpcServerPort": None if grpc_port is None else str(grpc_port),
        }
        known = (BrokerOptions, StoreOptions, ConnectionOptions, TlsOptions, MetricsOptions)
        pairs, remarks = configuration.read(config, flags, *known)
        defaults = {"storePathRootDir": str(home / "store"), "grpcServerPort": str(GRPC_PORT)}
        given_port = "grpcServerPort" in pairs
        pairs = with_tls_file({**defaults, **_rocketmq_home(), **pairs})
        broker, store, tls = BrokerOptions.parse(pairs), StoreOptions.parse(pairs), TlsOptions.parse(pairs)
        limits = ConnectionOptions.parse(pairs)
        if store.is_slave:
            raise ConfigurationError(
                "option brokerRole: `orbitmq up` runs a master; start a slave with `orbitmq broker`"
            )
        names = NamesrvOptions(
            listen_port=namesrv_port,
            bind_address=broker.listen_address,  # clients that reach the broker must reach the name server first
            kv_config_path=str(home / "namesrv" / "kvConfig.json"),
            config_store_path=str(home / "namesrv" / "namesrv.properties"),
        )
        _warn(remarks)
        metrics = MetricsOptions.parse(pairs)
        import_module("orbitmq.proxy.front")  # while no loop runs yet: it takes long, and the name server comes first
        listening = None if page is None else _listening(page)
        run_until_stopped(
            lambda stopped: _up(
                names, broker, store, config, tls, limits, metrics, listening, stopped, may_move=not given_port
            ),
            log_level,
        )


def _listening(port: int) -> socket.socket:
    """The socket of the web page: on a free port if the default one is in use, for example by another `orbitmq up`."""
    try:
        return listen(LOOPBACK, port)
    except ConfigurationError:
        if port != DASHBOARD_PORT:
            raise
        return listen(LOOPBACK, 0)


def namesrv(
    config: Path | None,
    port: int | None,
    settings: Sequence[str] = (),
    *,
    print_only: bool,
    log_level: logging.Level,
) -> None:
    with one_line_errors("namesrv"):
        flags = {"listenPort": None if port is None else str(port)}
        known = (NamesrvOptions, ConnectionOptions, TlsOptions, MetricsOptions)
        pairs, remarks = configuration.read(config, flags, *known, settings=settings)
        pairs = with_tls_file(pairs)
        options, tls, metrics = NamesrvOptions.parse(pairs), TlsOptions.parse(pairs), MetricsOptions.parse(pairs)
        limits = ConnectionOptions.parse(pairs)
        _warn(remarks)
        if print_only:
            _print_config(options, limits, tls, metrics)
        else:
            run_until_stopped(lambda stopped: _namesrv(options, tls, limits, metrics, stopped), log_level)


def broker(
    config: Path | None,
    namesrv_addresses: str | None,
    settings: Sequence[str] = (),
    *,
    print_only: bool,
    log_level: logging.Level,
) -> None:
    with one_line_errors("broker", ports="--set listenPort=PORT"):
        flags = {"namesrvAddr": namesrv_addresses}
        known = (BrokerOptions, StoreOptions, ConnectionOptions, TlsOptions, MetricsOptions)
        pairs, remarks = configuration.read(config, flags, *known, settings=settings)
        pairs = with_tls_file({"namesrvAddr": os.environ.get("NAMESRV_ADDR", ""), **_rocketmq_home(), **pairs})
        options, store, tls = BrokerOptions.parse(pairs), StoreOptions.parse(pairs), TlsOptions.parse(pairs)
        limits, metrics = ConnectionOptions.parse(pairs), MetricsOptions.parse(pairs)
        _warn(remarks)
        if print_only:
            _print_config(options, store, limits, tls, metrics)
        else:
            run_until_stopped(lambda stopped: _broker(options, store, config, tls, limits, metrics, stopped), log_level)


def proxy(
    config: Path | None,
    namesrv_addresses: str | None,
    port: int | None,
    settings: Sequence[str] = (),
    *,
    print_only: bool,
    log_level: logging.Level,
) -> None:
    """Run the front for RocketMQ 5 clients of a cluster."""
    from orbitmq.proxy.options import ProxyOptions

    with one_line_errors("proxy"):
        flags = {"namesrvAddr": namesrv_addresses, "grpcServerPort": None if port is None else str(port)}
        known = (ProxyOptions, ConnectionOptions, TlsOptions, MetricsOptions)
        pairs, remarks = configuration.read(config, flags, *known, settings=settings)
        pairs = with_tls_file({"namesrvAddr": os.environ.get("NAMESRV_ADDR", ""), **_rocketmq_home(), **pairs})
        options, tls, metrics = ProxyOptions.parse(pairs), TlsOptions.parse(pairs), MetricsOptions.parse(pairs)
        limits = ConnectionOptions.parse(pairs)
        _warn(remarks)
        if print_only:
            _print_config(options, limits, tls, metrics)
        else:
            run_until_stopped(lambda stopped: _proxy(options, tls, limits, metrics, stopped), log_level)


async def _proxy(
    options: ProxyOptions, tls: TlsOptions, limits: ConnectionOptions, metrics: MetricsOptions, stopped: asyncio.Event
) -> None:
    from orbitmq.proxy.proxy import Proxy

    async with (
        accounts_of(options) as accounts,
        _running(Proxy(options, tls=tls, connections=limits, accounts=accounts)) as daemon,
        served(metrics, parts_of(metrics, daemon)) as page,
    ):
        await serve(stopped.wait(), _address("gRPC", daemon.address), *_page(page))


@asynccontextmanager
async def accounts_of(options: ProxyOptions) -> AsyncIterator[AccessControl | None]:
    """The accounts of the file that the options name, which is read again when it changes."""
    if not options.acl_enable:
        yield None
        return
    home = options.home
    access = AccessControl(AclPlaces(home / options.acl_file, home / "conf" / "acl"), {}, lambda _: None, SystemClock())
    await asyncio.to_thread(access.load)
    access.start()
    try:
        yield access
    finally:
        await access.stop()


def _rocketmq_home() -> dict[str, str]:
    return {"rocketmqHome": os.environ.get("ROCKETMQ_HOME", "")}


async def _up(
    names: NamesrvOptions,
    options: BrokerOptions,
    store: StoreOptions,
    config: Path | None,
    tls: TlsOptions,
    limits: ConnectionOptions,
    metrics: MetricsOptions,
    listening: socket.socket | None,
    stopped: asyncio.Event,
    *,
    may_move: bool,
) -> None:
    """`may_move`: gRPC takes a free port if its default is in use, for example by another `orbitmq up`."""
    names_daemon = NameServer(names, tls=tls, connections=limits)
    async with _running(names_daemon) as nameserver, page_process.dashboard(listening, nameserver.address):
        addresses = ";".join(filter(None, (nameserver.address, options.namesrv_addr)))
        make = partial(Broker, store_options=store, configuration=config, tls=tls, connections=limits)
        broker = await _started(make, options.replace(namesrv_addr=addresses), may_move=may_move)
        parts = parts_of(metrics, broker, nameserver)
        async with _stopping(broker) as daemon, served(metrics, parts) as page:
            await serve(
                stopped.wait(),
                translated(f"orbitmq {__version__} ({form()}) is up; Ctrl-C stops it.") + "\n\n",
                _address("name server", nameserver.address),
                _address("broker", daemon.address),
                *_front(daemon),
                *_page(page),
                *_dashboard(listening),
                f"  {'data':<12} {store.root}\n\n",
                translated("Any Apache RocketMQ client works with it. To send a message and read it back from here:")
                + "\n\n",
                _first_steps(nameserver.address),
            )


async def _started(make: Callable[[BrokerOptions], Broker], options: BrokerOptions, *, may_move: bool) -> Broker:
    broker = make(options)
    try:
        await broker.start()
    except ConfigurationError as error:
        if not (may_move and "grpcServerPort" in str(error)):
            raise
        broker = make(options.replace(grpc_server_port=0))
        await broker.start()
    return broker


async def _namesrv(
    options: NamesrvOptions,
    tls: TlsOptions,
    limits: ConnectionOptions,
    metrics: MetricsOptions,
    stopped: asyncio.Event,
) -> None:
    nameserver = NameServer(options, tls=tls, connections=limits)
    async with _running(nameserver) as daemon, served(metrics, parts_of(metrics, daemon)) as page:
        await serve(stopped.wait(), _address("name server", daemon.address), *_page(page))


async def _broker(
    options: BrokerOptions,
    store: StoreOptions,
    config: Path | None,
    tls: TlsOptions,
    limits: ConnectionOptions,
    metrics: MetricsOptions,
    stopped: asyncio.Event,
) -> None:
    """A slave that is promoted, or elected, stops, then starts as a master in the same process and on the same port."""
    is_successor = False
    election = make_election(options, store)
    if election is not None:
        store = store.replace(broker_role=SLAVE)
    try:
        while not stopped.is_set():
            broker = Broker(
                options, store, configuration=config, tls=tls, connections=limits, is_successor=is_successor,
                election=election,
            )  # fmt: skip
            parts = parts_of(metrics, broker)
            async with _running(broker) as daemon, served(metrics, parts) as page:
                ended = asyncio.create_task(_first_of(stopped, broker.superseded))
                await serve(ended, _address("broker", daemon.address), *_front(daemon), *_page(page))
                if stopped.is_set() and election is not None:
                    await election.leave()  # before the broker stops, so that another one takes over meanwhile
            if broker.successor is None:
                return
            options, store = broker.successor
            is_successor = True
    finally:
        if election is not None:
            await election.leave()


async def _first_of(*events: asyncio.Event) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()


@asynccontextmanager
async def _running(daemon: D) -> AsyncIterator[D]:
    await daemon.start()
    async with _stopping(daemon):
        yield daemon


@asynccontextmanager
async def _stopping(daemon: D) -> AsyncIterator[D]:
    try:
        yield daemon
    finally:
        await daemon.stop()


async def serve(ended: Awaitable[object], *ready: str) -> None:
    """Report that everything is ready, then wait for the end."""
    sys.stdout.writelines(ready)
    sys.stdout.flush()
    settle()
    notify_manager(READY)
    await ended


def run_until_stopped(main: Callable[[asyncio.Event], Coroutine[None, None, None]], log_level: logging.Level) -> None:
    """Run `main`. SIGINT or SIGTERM sets the event it gets, also during the start."""

    async def watched() -> None:
        try:
            await main(_stop_signal())
        except StoreStuck as error:
            leave(str(error))

    logging.configure(sys.stderr, log_level)
    raise_open_files()
    uvloop.run(watched())


def _stop_signal() -> asyncio.Event:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        stopped.set()
        notify_manager(STOPPING)  # a promoted slave also stops, but starts again
        loop.remove_signal_handler(number)  # a second Ctrl-C ends the process without a clean stop

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    return stopped


def _front(broker: Broker) -> tuple[str, ...]:
    if broker.front is None:
        return ()
    return (_address("gRPC", f"{broker.address.rpartition(':')[0]}:{broker.front.port}"),)


def _page(address: str | None) -> tuple[str, ...]:
    return () if address is None else (_address("figures", address),)


def _dashboard(listening: socket.socket | None) -> tuple[str, ...]:
    return () if listening is None else (_address("dashboard", f"http://{LOOPBACK}:{listening.getsockname()[1]}/"),)


def _address(name: str, address: str) -> str:
    return f"  {name:<12} {address}\n"


def _first_steps(namesrv: str) -> str:
    """A command to paste: it sends and receives a message with the client of this installation."""
    return f"""\
{shlex.quote(sys.executable)} -c "
from orbitmq.client import Message
from orbitmq.client.sync import LitePullConsumer, Producer
with Producer('greeters', '{namesrv}') as producer:
    print(producer.send(Message('greetings', b'hello')))
with LitePullConsumer('readers', '{namesrv}') as consumer:
    consumer.subscribe('greetings')
    print(consumer.poll(timeout=10))
"
"""


def _print_config(*options: Options) -> None:
    sys.stdout.write(configuration.as_properties(*options))


def _warn(remarks: Iterable[str]) -> None:
    for remark in remarks:
        print(translated(f"orbitmq: warning: {remark}"), file=sys.stderr)


def notify_manager(state: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Send `state` to the service manager at the socket in NOTIFY_SOCKET, as sd_notify(3) does; return whether it was
    sent.

    A name that begins with `@` is an abstract socket of Linux. Never blocks; a failure is logged and does not end the
    daemon.
    """
    name = environment.get(SOCKET_VARIABLE, "")
    if not name:
        return False
    address = f"\0{name[1:]}" if name.startswith("@") else name
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as notifications:
            notifications.sendto(state.encode(), address)
    except OSError as error:
        _log.warning("event=manager_not_notified fact=%s error=%s", state, error)
        return False
    return True
