"""The web page beside `orbitmq up`: a process of its own, begun when somebody looks at it for the first time.

The socket listens from the start, so the address can be printed; nothing is imported and no memory is taken before the
first connection, and no page, however large, holds up the broker.
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

AGAIN_SECONDS = 5.0  # before one that has ended is begun anew
FAILURES_MAX = 3  # in a row; then nothing listens any more
STOP_SECONDS = 5.0
BACKLOG = 64


def listen(host: str, port: int) -> socket.socket:
    """ConfigurationError when the port cannot be had."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        made = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"--port: cannot listen on {host}:{port}: {error}") from error
    made.setblocking(False)
    return made


@asynccontextmanager
async def dashboard(listening: socket.socket | None, name_server: str) -> AsyncIterator[None]:
    """Serves the page over `name_server` on this socket as long as the context is open; None serves nothing."""
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
        await _somebody(listening)
        code = await _run(listening, name_server)
        failures = failures + 1 if code else 0
        _log.warning("event=dashboard_ended exit_code=%d", code)
        await asyncio.sleep(AGAIN_SECONDS)
    listening.close()


async def _somebody(listening: socket.socket) -> None:
    """Until a connection waits to be accepted."""
    loop, comes = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(listening.fileno(), comes.set)
    try:
        await comes.wait()
    finally:
        loop.remove_reader(listening.fileno())


async def _run(listening: socket.socket, name_server: str) -> int:
    """The child and its exit code. It ends with its standard input, should this process be killed."""
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
