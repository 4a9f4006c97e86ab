"""What a message costs a server that does nothing with it (`python -m bench.floors`): the least a broker can come to.

The server is a bare protocol on uvloop: it cuts frames by their length, and answers each with bytes that are ready. The
sizes are those of a message of 1 KiB with keys and tags, of its receipt, of 32 of them in a batch, and in a pull.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import uvloop

from bench.growth_load import cpu_seconds
from tests.support.process import accepts, free_port, wait_until

ROOT = Path(__file__).parents[1]
SECONDS, WARM_UP = 1.5, 0.5
START_SECONDS = 10
READ_BYTES = 1 << 18


@dataclass(frozen=True)
class Floor:
    """`request` and `response` are bytes of a frame, 0 for no response; `each` is how many messages it has."""

    request: int
    response: int
    connections: int
    in_flight: int = 1
    each: int = 1


FLOORS = {
    "sync": Floor(1407, 220, 16),
    "async": Floor(1407, 220, 4, 128),
    "oneway": Floor(1407, 0, 2, 128),
    "batch": Floor(32 * 1119 + 300, 32 * 33 + 200, 4, each=32),
    "pull": Floor(420, 32 * 1210 + 200, 8, each=32),
}


def measure(say: Callable[[str], None]) -> dict[str, float]:
    """µs of CPU a message, of each kind of work."""
    found = {}
    for name, floor in FLOORS.items():
        found[name] = _measure(name, floor)
        say(f"  {name}: {found[name]:.2f} µs of a server that does nothing")
    return found


def _measure(name: str, floor: Floor) -> float:
    port = free_port()
    with subprocess.Popen([sys.executable, "-m", "bench.floors", "serve", name, str(port)], cwd=ROOT) as server:
        try:
            wait_until(lambda: accepts(port), START_SECONDS, "the server to listen")
            return _loaded(floor, port, server.pid)
        finally:
            server.terminate()


def _loaded(floor: Floor, port: int, pid: int) -> float:
    lanes = [_Lane(floor, port) for _ in range(floor.connections)]
    for lane in lanes:
        lane.start()
    time.sleep(WARM_UP)
    before, cpu = sum(lane.messages for lane in lanes), cpu_seconds([pid])
    time.sleep(SECONDS)
    messages, cpu = sum(lane.messages for lane in lanes) - before, cpu_seconds([pid]) - cpu
    for lane in lanes:
        lane.stop()
    return cpu / messages * 1e6


class _Lane(threading.Thread):
    """One connection with requests in flight."""

    def __init__(self, floor: Floor, port: int) -> None:
        super().__init__(daemon=True)
        self.messages = 0
        self._floor = floor
        self._stopped = False
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self) -> None:
        floor, frame = self._floor, (self._floor.request - 4).to_bytes(4, "big") + bytes(self._floor.request - 4)
        sent = taken = received = 0
        while not self._stopped:
            room = floor.in_flight - (sent - taken)
            self._socket.sendall(frame * room)
            sent += room
            if floor.response:
                received += len(self._socket.recv(READ_BYTES))
                taken = received // floor.response
            else:
                taken = sent
            self.messages = taken * floor.each

    def stop(self) -> None:
        self._stopped = True
        self.join(1)
        self._socket.close()


class _Server(asyncio.Protocol):
    def __init__(self, floor: Floor) -> None:
        self._answer = bytes(floor.response)
        self._size = floor.request
        self._pending = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        count, self._pending = divmod(self._pending + len(data), self._size)
        if count and self._answer:
            self._transport.write(self._answer * count)


async def _serve(floor: Floor, port: int) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: _Server(floor), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        uvloop.run(_serve(FLOORS[sys.argv[2]], int(sys.argv[3])))
    else:
        print(json.dumps(measure(print)))
