"""A web server may tell the name servers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from orbitmq.client import Message, Producer
from orbitmq.client.nameservers import look_up
from orbitmq.errors import ConnectError
from tests.support.fake_system import fake_system
from tests.support.loops import run


class _Pages(BaseHTTPRequestHandler):
    pages: dict[str, str] = {}  # noqa: RUF012 - a fresh one a test
    asked: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.asked.append(self.path)
        page = self.pages.get(self.path)
        self.send_response(404 if page is None else 200)
        self.end_headers()
        self.wfile.write((page or "").encode())

    def log_message(self, *_args: object) -> None:
        """Tests print nothing."""


@pytest.fixture
def web() -> Iterator[str]:
    """`host:port` of a web server with the pages of `_Pages`."""
    _Pages.pages, _Pages.asked = {}, []
    with HTTPServer(("127.0.0.1", 0), _Pages) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_first_line_counts(web: str) -> None:
    _Pages.pages = {"/rocketmq/nsaddr?nofix=1": "10.0.0.1:9876;10.0.0.2:9876\r\nnoise"}
    assert run(look_up(f"http://{web}/rocketmq/nsaddr?nofix=1")) == ("10.0.0.1:9876", "10.0.0.2:9876")


@pytest.mark.parametrize("page", ["", "\n", None])
def test_an_answer_without_addresses_is_none(web: str, page: str | None) -> None:
    if page is not None:
        _Pages.pages = {"/x": page}
    with pytest.raises(ConnectError, match="returned no addresses"):
        run(look_up(f"http://{web}/x"))


def test_a_place_that_is_no_address_is_named() -> None:
    with pytest.raises(ConnectError, match="nonnumeric port"):
        run(look_up("http://127.0.0.1:port/x"))


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(ConnectError, match=r"http://127\.0\.0\.1:1/x"):
        run(look_up("http://127.0.0.1:1/x"))


def test_a_client_that_is_told_nothing_looks_them_up(web: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.setenv("ORBITMQ_NAMESRV_DOMAIN", web)

    async def scenario() -> None:
        async with fake_system() as system:
            _Pages.pages = {"/rocketmq/mine-u1?nofix=1": system.address}
            async with Producer("g", namesrv_subgroup="mine", unit_name="u1") as producer:
                await producer.send(Message("T", b"x"))
            async with Producer("g", system.address) as producer:
                await producer.send(Message("T", b"x"))
            assert _Pages.asked == ["/rocketmq/mine-u1?nofix=1"]

    run(scenario())
