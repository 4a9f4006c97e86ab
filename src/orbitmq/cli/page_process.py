"""The web page of `orbitmq up`: a process of its own that starts at the first connection.

The socket listens from the start, so the address can be printed. Nothing is imported and no memory is used before the
first connection, and no page, however large, blocks the broker.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from orbitmq.errors import ConfigurationError

_log = logging.getLogger(__name__)

RESTART_SECONDS = 5.0  # before a restart
FAILURES_MAX = 3  # in a row; then the socket is closed
STOP_SECONDS = 5.0
BACKLOG = 64


def listen(host: str, port: int) -> socket.socket:
    """ConfigurationError if it cannot listen on the port."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        made = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"--port: cannot listen on {host}:{port}: {error}") from error
    made.setblocking(False)
    return made


@asynccontextmanager
async def dashboard(listening: socket.socket | None, name_server: str) -> AsyncIterator[None]:
    """Serves the page of `name_server` on this socket while the context is open; serves nothing if it is None."""
    if listening is None:
        yield
        return
    task = asyncio.create_task(_serve(listening, name_server))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        listening.close()


async def _serve(listening: socket.socket, name_server: str) -> None:
    failures = 0
    while failures < FAILURES_MAX:
        await _wait_for_connection(listening)
        code = await _run(listening, name_server)
        failures = failures + 1 if code else 0
        _log.warning("event=dashboard_ended exit_code=%d", code)
        await asyncio.sleep(RESTART_SECONDS)
    listening.close()


async def _wait_for_connection(listening: socket.socket) -> None:
    """Wait until there is a connection to accept."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(listening.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(listening.fileno())


async def _run(listening: socket.socket, name_server: str) -> int:
    """Run the child; returns its exit code. It ends with its standard input, also if this process is killed."""
    number = listening.fileno()
    command = (sys.executable, "-m", "orbitmq", "dashboard", "--fd", str(number), "-n", name_server)
    child = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, pass_fds=(number,)
    )
    try:
        return await child.wait()
    finally:
        if child.returncode is None:
            child.terminate()
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await child.wait()
            except TimeoutError:
                child.kill()
                await child.wait()
