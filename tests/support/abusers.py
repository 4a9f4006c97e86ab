"""Clients that want to do harm, and one that does not and goes on all the while. Knows sockets and frames only."""

from __future__ import annotations

import asyncio
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from orbitmq.net.remoting import Remoting
from orbitmq.wire.command import Command, request
from orbitmq.wire.frame import FrameDecoder, encode_frame
from orbitmq.wire.headers import SendMessageHeader
from orbitmq.wire.requests import RequestCode
from tests.support.process import ChildProcess, wait_until
from tests.support.scraped import Scraped

PATIENCE_S = 60.0
ABUSER = "127.0.0.2"  # where they come from: to a server it is another machine
GOOD_TOPIC = "Good"
BETWEEN_SENDS_S = 0.005
CALL_TIMEOUT_MS = 30_000


def send_request(
    topic: str, body: bytes = b"x", *, properties: str = "", oneway: bool = False, batch: bool = False
) -> Command:
    """A message, or a batch, for queue 0."""
    header = SendMessageHeader("abusers", topic, "TBW102", 4, 0, 0, 0, 0, properties or None, batch=batch)
    return request(RequestCode.SEND_MESSAGE, header, body, oneway=oneway)


class GoodClient:
    """Sends one message after the other while the context lasts; leaving it, every one of them must have been taken."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._send()), name="good client")
        self._failures: list[object] = []
        self.sent = 0

    async def _send(self) -> None:
        remoting = Remoting()
        try:
            while not self._stopped.is_set():
                answer = await remoting.call(self._address, send_request(GOOD_TOPIC), CALL_TIMEOUT_MS)
                if answer.code:
                    self._failures.append(answer)
                self.sent += 1
                await asyncio.sleep(BETWEEN_SENDS_S)
        except Exception as error:
            self._failures.append(error)
        finally:
            await remoting.close()

    def __enter__(self) -> Self:
        self._thread.start()
        wait_until(lambda: self.sent or self._failures, PATIENCE_S, "the first message of the good client")
        return self

    def __exit__(self, *error: object) -> None:
        before = self.sent
        if error[0] is None:
            wait_until(lambda: self.sent > before + 3 or self._failures, PATIENCE_S, "messages after the abuse")
        self._stopped.set()
        self._thread.join(PATIENCE_S)
        assert not self._failures, self._failures[:3]


class Attacker:
    """One connection that is used without care."""

    def __init__(self, port: int, *, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE_S)
        self.socket.bind((ABUSER, 0))
        self.socket.connect(("127.0.0.1", port))
        self._decoder = FrameDecoder(typed=False)
        self._read: list[Command] = []

    def push(self, data: bytes) -> bool:
        """Write, as far as the server lets it; False when it has cut the connection."""
        try:
            self.socket.sendall(data)
        except ConnectionError:
            return False
        return True

    def push_what_fits(self, data: bytes) -> int:
        """Write without waiting: how many bytes the kernel took, -1 when the connection is cut."""
        self.socket.setblocking(False)
        try:
            return self.socket.send(data)
        except BlockingIOError:
            return 0
        except ConnectionError:
            return -1
        finally:
            self.socket.settimeout(PATIENCE_S)

    def ask(self, command: Command) -> Command:
        """Send and read one answer."""
        assert self.push(encode_frame(command)), "the server has cut the connection"
        return self.answer()

    def answer(self) -> Command:
        while not self._read:
            data = self.socket.recv(1 << 18)
            assert data, "the server has cut the connection"
            self._read += (one for one in self._decoder.feed(data) if one.is_response)
        return self._read.pop(0)

    def is_cut_off(self) -> bool:
        """Wait for the end of the connection, past whatever comes before."""
        try:
            while self.socket.recv(1 << 18):
                pass
        except ConnectionError:
            pass
        except TimeoutError:
            return False
        return True

    def is_cut_off_already(self) -> bool:
        """Whether the end can be read now, past nothing."""
        self.socket.setblocking(False)
        try:
            return self.socket.recv(1 << 16, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except ConnectionError:
            return True
        finally:
            self.socket.settimeout(PATIENCE_S)

    def close(self) -> None:
        self.socket.close()


@contextmanager
def attackers(port: int, count: int, *, receive_buffer: int | None = None) -> Iterator[list[Attacker]]:
    with ExitStack() as stack:
        found = [Attacker(port, receive_buffer=receive_buffer) for _ in range(count)]
        for one in found:
            stack.callback(one.close)
        yield found


def anonymous_bytes(process: ChildProcess) -> int:
    """Memory of a process that no file stands behind."""
    return _bytes_of(process, "RssAnon")


def most_bytes(process: ChildProcess) -> int:
    """The most memory that a process has ever had, files included."""
    return _bytes_of(process, "VmHWM")


def _bytes_of(process: ChildProcess, name: str) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


class Page:
    """`/metrics` of a process."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._url = f"http://127.0.0.1:{port}/metrics"

    def scraped(self) -> Scraped:
        with urllib.request.urlopen(self._url, timeout=PATIENCE_S) as answer:
            return Scraped(answer.read().decode())

    def refused(self, limit: str, daemon: str = "orbitmq") -> int:
        return int(self.scraped().value(f"{daemon}_refusals_total", limit=limit))

    def connections(self) -> int:
        return int(self.scraped().value("orbitmq_connections"))
