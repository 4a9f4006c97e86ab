"""The command `host`: several brokers of one cluster on one machine, each in a process, under one supervisor.

A broker uses one core. Several brokers share the queues of a topic, so a machine with more cores carries more load.
Must not know what a broker does.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging as log
import os
import secrets
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import SubprocessError

from orbitmq.cli.daemons import DATA_DIR, run_until_stopped, serve
from orbitmq.cli.exit_codes import EXIT_CONFLICT, EXIT_FAILED, EXIT_REFUSED, EXIT_USAGE, one_line_errors
from orbitmq.errors import ConfigurationError
from orbitmq.metrics.options import MetricsOptions
from orbitmq.runtime import logging
from orbitmq.runtime.error_texts import translated
from orbitmq.runtime.files import save_with_backup
from orbitmq.runtime.options import read_properties, rewrite_properties

_log = log.getLogger(__name__)

BROKERS_MAX = 64  # more than any machine needs
PORT_STEP = 10
"""Distance between the ports of brokers: each uses its port, the one two below, and the next one for slaves."""
NEIGHBOURS = (-2, 0, 1)
OWN_KEYS = (
    "brokerName",
    "brokerId",
    "brokerRole",
    "listenPort",
    "namesrvAddr",
    "storePathRootDir",
    "storePathCommitLog",
)
"""Keys that each broker has of its own, and that the common file must not set."""
METRICS_PORT = "metricsPromExporterPort"
NAME_SERVER_SECONDS = 5.0  # brokers wait so long for the name server; else their first registration would be refused
READY_SECONDS = 120.0  # includes the recovery of a large log
STOP_SECONDS = 90.0  # a broker waits a minute for its disk
FIRST_WAIT_SECONDS, WAIT_SECONDS_MAX = 1.0, 30.0
STABLE_SECONDS = 60.0  # a process that ran so long is restarted without back-off
FREE_PORT_TRIES = 100
FREE_PORTS = range(12_000, 32_000)  # below the ephemeral ports of usual systems
FATAL_CODES = {EXIT_USAGE, EXIT_REFUSED, EXIT_CONFLICT}
"""Exit codes after which a restart is useless: wrong configuration, directory in use, port in use."""
_LINE_BYTES_MAX = 64 << 10
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class HostedProcess:
    """One process: name, command line without the program, the line it prints when it is ready, address."""

    name: str
    arguments: tuple[str, ...]
    ready: str
    address: str


@dataclass(slots=True)
class RunningProcess:
    """A node and its current process."""

    node: HostedProcess
    process: asyncio.subprocess.Process | None = None
    starts: int = 0
    ready: asyncio.Event = field(default_factory=asyncio.Event)


def name_server(port: int, home: Path) -> HostedProcess:
    pairs = {
        "kvConfigPath": home / "namesrv" / "kvConfig.json",
        "configStorePath": home / "namesrv" / "namesrv.properties",
    }
    arguments = ("namesrv", "--port", str(port), *_settings(pairs))
    return HostedProcess("name server", arguments, "name server", f"127.0.0.1:{port}")


def broker(number: int, port: int, home: Path, name_servers: str, prefix: str) -> HostedProcess:
    """The broker `<prefix>-<number>`. Its store is in a directory of that name, its settings are next to it."""
    name = f"{prefix}-{number}"
    pairs = {
        "brokerName": name,
        "brokerId": 0,
        "listenPort": port,
        "storePathRootDir": home / name,
        "storePathCommitLog": home / name / "commitlog",
    }
    own = ("-c", str(settings_path(home, name)))
    return HostedProcess(name, ("broker", *own, "-n", name_servers, *_settings(pairs)), "broker", f"127.0.0.1:{port}")


def settings_path(home: Path, name: str) -> Path:
    """The settings of this broker, including those changed later by an administrator's tool."""
    return home / f"{name}.conf"


def _settings(pairs: Mapping[str, object]) -> Iterable[str]:
    return (word for key, value in pairs.items() for word in ("--set", f"{key}={value}"))


def ports(first: int, count: int) -> list[int]:
    """Ports of the brokers: `first` and every tenth after it; free ones if it is 0."""
    if first:
        if first + NEIGHBOURS[0] < 1 or first + (count - 1) * PORT_STEP + NEIGHBOURS[-1] > 65535:
            raise ConfigurationError(f"--broker-port {first}: {count} brokers, {PORT_STEP} ports apart, do not fit")
        return [first + number * PORT_STEP for number in range(count)]
    found: list[int] = []
    while len(found) < count:
        port = _free_port()
        if all(abs(port - other) >= PORT_STEP for other in found):
            found.append(port)
    return found


def _free_port() -> int:
    for _ in range(FREE_PORT_TRIES):
        port = secrets.choice(FREE_PORTS)
        if all(_is_free(port + offset) for offset in NEIGHBOURS):
            return port
    raise ConfigurationError("--broker-port 0: this machine has no three free ports side by side")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def run(
    count: int,
    data_dir: Path | None,
    namesrv_port: int,
    broker_port: int,
    config: Path | None,
    others: str | None,
    prefix: str,
    log_level: logging.Level,
) -> None:
    """Run until stopped. With `others`, name servers that run elsewhere, no name server is started."""
    with one_line_errors("host", ports="--namesrv-port or --broker-port"):
        home = (data_dir or DATA_DIR).expanduser().absolute()
        nodes: list[HostedProcess] = []
        if others is None:
            nodes.append(name_server(namesrv_port or ports(0, 1)[0], home))
        addresses = others or nodes[0].address
        brokers = [
            broker(number, port, home, addresses, prefix) for number, port in enumerate(ports(broker_port, count))
        ]
        _make_settings(home, brokers, config)
        code = [0]
        run_until_stopped(lambda stopped: _host(nodes, brokers, home, code, log_level, stopped), log_level)
    raise SystemExit(code[0])


def _make_settings(home: Path, brokers: Sequence[HostedProcess], config: Path | None) -> None:
    """Copy the common file once for each broker: a later change of one broker's settings stays with that broker."""
    template = {} if config is None else read_properties(config)
    if given := [key for key in OWN_KEYS if key in template]:
        raise ConfigurationError(f"{config}: {', '.join(given)}: each of the brokers has its own; leave it out")
    home.mkdir(parents=True, exist_ok=True)
    for number, node in enumerate(brokers):
        path, own = settings_path(home, node.name), _metrics_port(template, number)
        if not path.exists():
            save_with_backup(path, "" if config is None else rewrite_properties(config, own))
            if config is not None:
                shutil.copymode(config, path)  # it may hold secrets
        elif config is not None and read_properties(path) != {**template, **own}:
            print(f"orbitmq host: {path} exists and differs: {config} is not read for {node.name}", file=sys.stderr)


PORT_MAX = 65_535


def _metrics_port(template: Mapping[str, str], number: int) -> dict[str, str]:
    """The brokers after the first serve their metrics on the ports after that of the common file."""
    metrics = MetricsOptions.parse(template)
    if not (metrics.is_on and metrics.port and number):
        return {}
    if (port := metrics.port + number) > PORT_MAX:
        raise ConfigurationError(f"{METRICS_PORT} {metrics.port} is too high: the next {number} are used, too")
    return {METRICS_PORT: str(port)}


async def _host(
    first: Sequence[HostedProcess],
    brokers: Sequence[HostedProcess],
    home: Path,
    code: list[int],
    log_level: logging.Level,
    stopped: asyncio.Event,
) -> None:
    given_up = asyncio.Event()
    runs = [RunningProcess(node) for node in (*first, *brokers)]

    def give_up(running: RunningProcess, ended: int) -> None:
        _log.error("event=host_gives_up node=%r exit_code=%d", running.node.name, ended)
        code[0] = ended
        given_up.set()

    tasks = [asyncio.create_task(_supervise(running, log_level, give_up)) for running in runs[: len(first)]]
    ending = asyncio.create_task(_first_of(stopped, given_up))
    ready = asyncio.create_task(_all_ready(runs))
    begun = [asyncio.create_task(running.ready.wait()) for running in runs[: len(first)]]
    try:
        if begun:
            await asyncio.wait([ending, *begun], timeout=NAME_SERVER_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        tasks += [asyncio.create_task(_supervise(running, log_level, give_up)) for running in runs[len(first) :]]
        await asyncio.wait([ready, ending], timeout=READY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            lines = [f"  {running.node.name:<12} {running.node.address}{_late(running)}\n" for running in runs]
            title = translated(f"{len(brokers)} brokers; Ctrl-C stops them.") + "\n\n"
            await serve(ending, title, *lines, f"  {'data':<12} {home}\n")
    finally:
        for task in (*tasks, *begun, ready, ending):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Stop the brokers first, because they unregister from the name server.
        await asyncio.gather(*(_stop(running) for running in runs[len(first) :]))
        await asyncio.gather(*(_stop(running) for running in runs[: len(first)]))


async def _all_ready(runs: Sequence[RunningProcess]) -> None:
    for running in runs:
        await running.ready.wait()


def _late(running: RunningProcess) -> str:
    return "" if running.ready.is_set() else f"  not ready after {READY_SECONDS:.0f} s"


async def _first_of(*events: asyncio.Event) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()


async def _supervise(
    running: RunningProcess, log_level: logging.Level, give_up: Callable[[RunningProcess, int], None]
) -> None:
    """Start the node, and restart it whenever it ends, with increasing delays while it does not last."""
    try:
        await _restart_loop(running, log_level, give_up)
    except Exception:  # report a node that is not supervised any more
        _log.exception("event=node_not_supervised node=%r", running.node.name)
        give_up(running, EXIT_FAILED)


async def _restart_loop(
    running: RunningProcess, log_level: logging.Level, give_up: Callable[[RunningProcess, int], None]
) -> None:
    loop, wait = asyncio.get_running_loop(), FIRST_WAIT_SECONDS
    while True:
        began = loop.time()
        ended = await _once(running, log_level)
        lasted = loop.time() - began
        if ended in FATAL_CODES and running.starts == 1:
            give_up(running, ended)
            return
        wait = FIRST_WAIT_SECONDS if lasted >= STABLE_SECONDS else wait
        _log.warning(
            "event=node_ended node=%r exit_code=%s lasted_s=%.1f restart_in_s=%.0f",
            running.node.name,
            ended,
            lasted,
            wait,
        )
        await asyncio.sleep(wait)
        wait = min(WAIT_SECONDS_MAX, wait * 2)


async def _once(running: RunningProcess, log_level: logging.Level) -> int | None:
    """Run it once; returns the exit code. None if it cannot be started now, or its output cannot be read."""
    try:
        process = running.process = await _start(running.node, log_level)
        running.starts += 1
        await _read(process, running)
        return await process.wait()
    except (OSError, SubprocessError) as error:
        _log.error("event=node_failed node=%r error=%r", running.node.name, error)
        await _stop(running)
        return None


async def _start(node: HostedProcess, log_level: logging.Level) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "orbitmq", *node.arguments, "--log-level", log_level),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        limit=_LINE_BYTES_MAX,
        start_new_session=True,  # Ctrl-C is for the supervisor, which stops them in order
        preexec_fn=_end_with_parent,
    )


def _end_with_parent() -> None:
    """If the supervisor is killed, no broker goes on without it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


async def _read(process: asyncio.subprocess.Process, running: RunningProcess) -> None:
    """Read its output until it ends; the line with its address means that it is ready."""
    while line := await _line_of(process):
        if line.strip().startswith(running.node.ready.encode()):
            _log.info("event=node_ready node=%r pid=%d starts=%d", running.node.name, process.pid, running.starts)
            running.ready.set()


async def _line_of(process: asyncio.subprocess.Process) -> bytes:
    """The next line of its output, empty at the end. A line that is too long is returned as blank."""
    assert process.stdout is not None
    try:
        return await process.stdout.readline()
    except ValueError:
        return b"\n"


async def _stop(running: RunningProcess) -> None:
    process = running.process
    if process is None or process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        _log.error("event=node_killed node=%r after_s=%.0f", running.node.name, STOP_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        await process.wait()
