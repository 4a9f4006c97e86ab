"""The applications of the examples behind real servers: several processes, forks, SIGTERM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from orbitmq.client import Message
from orbitmq.client.idempotent import TOKEN_PROPERTY
from orbitmq.client.sync import Producer, PullConsumer
from orbitmq.integrations.outbox import OutboxTable
from orbitmq.testing import Cluster
from tests.support.examples import EXAMPLES
from tests.support.markdown import programs
from tests.support.process import ChildProcess, accepts, free_port, wait_until

PAGE = EXAMPLES.parent / "docs" / "web.md"
PATHS = os.pathsep.join(map(os.path.abspath, [EXAMPLES, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]))
PATIENCE_S = 60
ORDERS = 60  # of which ten are billed each second
PROCESS_DIGITS = 20  # of a message's unique id, which say the process that sent it


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


class Shop:
    """An application of the examples, served."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.port = free_port()
        self._environment = {
            "NAMESRV_ADDR": cluster.namesrv_address,
            "SHOP_DATABASE": str(folder / "shop.db"),
            "PYTHONPATH": PATHS,
        }
        self._folder = folder

    def run(self, code: str) -> str:
        """What a program of the same application prints."""
        command, environment = [sys.executable, "-c", code], {**os.environ, **self._environment}
        return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout

    @contextmanager
    def served(self, *command: str) -> Iterator[ChildProcess]:
        words = [sys.executable, "-m", *command]
        output = self._folder / "server.out"
        with ChildProcess(words, output=output, environment=self._environment) as process:
            process.wait_for(lambda: accepts(self.port) and self.is_ready(), PATIENCE_S, "the server is ready")
            yield process

    def is_ready(self) -> bool:
        try:
            return self.request("GET", "/readyz")[0] in (200, 404)  # Django's has none
        except OSError:
            return False

    def request(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, dict[str, object]]:
        content = None if body is None else json.dumps(body).encode()
        sent = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", content, {"Content-Type": "application/json", **headers},
            method=method,
        )  # fmt: skip
        try:
            with urllib.request.urlopen(sent, timeout=PATIENCE_S) as response:
                text = response.read()
                return response.status, json.loads(text) if text.startswith(b"{") else {}
        except urllib.error.HTTPError as error:
            return error.code, {}


def test_each_process_of_uvicorn_has_a_producer_and_one_relays(cluster: Cluster, tmp_path: Path) -> None:
    for topic in ("ExampleClicks", "ExampleOrders"):  # sends of the application wait for no new topic
        cluster.create_topic(topic)
    shop = Shop(cluster, tmp_path)
    shop.run("import fastapi_orders; fastapi_orders.create_tables()")
    command = ["uvicorn", "fastapi_orders:app", "--workers", "2", "--port", str(shop.port)]
    with shop.served(*command) as server, ThreadPoolExecutor(8) as threads:
        key = {"Idempotency-Key": "K"}
        clicks = threads.map(lambda _: shop.request("POST", "/clicks?page=home", **key)[0], range(20))
        orders = threads.map(
            lambda number: shop.request("POST", "/orders", {"number": f"O-{number}", "item": "cup"})[0], range(20)
        )
        assert set(clicks) == {202}
        assert set(orders) == {201}
        wait_until(lambda: shop.request("GET", "/readyz")[1]["outbox"] == 0, PATIENCE_S, "all orders are relayed")
        server.signal(signal.SIGTERM)
        assert server.wait(PATIENCE_S) == 0
        assert server.errors().count("Application shutdown complete") == 2, server.errors()
    assert cluster.message_count("ExampleClicks") == 20
    with PullConsumer("readers", cluster.namesrv_address) as consumer:
        relayed = list(consumer.read_all("ExampleOrders"))
    assert len({message.msg_id[:PROCESS_DIGITS] for message in relayed}) == 1, "one process relays"
    # A send whose response is late is repeated, with its token.
    assert len({message.properties[TOKEN_PROPERTY] for message in relayed}) == 20, "each order is relayed"


def test_a_server_that_is_terminated_finishes_what_it_consumes(cluster: Cluster, tmp_path: Path) -> None:
    topic, group = "ExampleStarlette", "example-starlette-billing"
    cluster.create_topic(topic)
    shop = Shop(cluster, tmp_path)
    command = ["uvicorn", "starlette_orders:app", "--port", str(shop.port)]
    with shop.served(*command) as server:
        with Producer("shop", cluster.namesrv_address, send_timeout_ms=PATIENCE_S * 1000) as producer:
            # At once: what is billed while others are still sent may be all of them.
            producer.send_batch([Message(topic, b"{}", keys=f"O-{number}") for number in range(ORDERS)])
        server.wait_for(lambda: "is billed" in server.errors(), PATIENCE_S, "some are consumed")
        server.signal(signal.SIGTERM)
        assert server.wait(PATIENCE_S) == -signal.SIGTERM
        assert "Application shutdown complete" in server.errors()
        billed = server.errors().count("is billed")
    left = cluster.backlog(group, topic)
    assert 0 < left == ORDERS - billed
    with shop.served(*command):
        wait_until(lambda: cluster.backlog(group, topic) == 0, PATIENCE_S, "the next process consumes the rest")


def test_each_process_that_gunicorn_forks_makes_a_producer_of_its_own(cluster: Cluster, tmp_path: Path) -> None:
    cluster.create_topic("ExampleDjangoClicks")
    shop = Shop(cluster, tmp_path)
    address = f"127.0.0.1:{shop.port}"
    command = ["gunicorn", "django_orders:application", "--preload", "--workers", "2", "--threads", "4"]
    with shop.served(*command, "--bind", address) as server, ThreadPoolExecutor(8) as threads:
        processes = set[object]()
        sent = 0

        def click(_: int) -> object:
            status, body = shop.request("POST", "/clicks", "home")
            assert status == 202
            return body["process"]

        def has_used_both() -> bool:
            nonlocal sent
            processes.update(threads.map(click, range(8)))
            sent += 8
            return len(processes) == 2

        wait_until(has_used_both, PATIENCE_S, "requests to each process")
        cluster.kill()
        assert shop.request("POST", "/clicks", "home")[0] == 503
        cluster.restart()
        assert cluster.message_count("ExampleDjangoClicks") == sent
        server.signal(signal.SIGTERM)
        assert server.wait(PATIENCE_S) == 0, server.errors()


def test_django_sends_by_the_producer_of_a_lifespan(cluster: Cluster, tmp_path: Path) -> None:
    cluster.create_topic("ExampleDjangoClicks")
    shop = Shop(cluster, tmp_path)
    with shop.served("uvicorn", "django_orders:asgi_application", "--port", str(shop.port)) as server:
        assert shop.request("POST", "/asynchronous/clicks", "home")[0] == 202
        cluster.kill()
        assert shop.request("POST", "/asynchronous/clicks", "home")[0] == 503
        cluster.restart()
        assert cluster.message_count("ExampleDjangoClicks") == 1
        server.signal(signal.SIGTERM)
        assert server.wait(PATIENCE_S) == -signal.SIGTERM
        assert "Application shutdown complete" in server.errors()


def test_a_producer_of_django_that_started_before_a_fork_is_made_again(cluster: Cluster, tmp_path: Path) -> None:
    code = """
import os
import django_orders as shop
from django.test import Client

assert Client().post("/clicks").status_code == 202
if (child := os.fork()) == 0:
    os._exit(Client().post("/clicks").status_code != 202)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    cluster.create_topic("ExampleDjangoClicks")
    Shop(cluster, tmp_path).run(code)
    assert cluster.message_count("ExampleDjangoClicks") == 2


def test_the_tests_that_the_page_shows_pass(tmp_path: Path) -> None:
    (program,) = [one for one in programs(PAGE) if "def test_" in one.source]
    (tmp_path / "test_shop.py").write_text(program.source, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py"]
    environment = {**os.environ, "PYTHONPATH": PATHS}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    assert f"{program.source.count('def test_')} passed" in ended.stdout


def test_the_models_of_django_have_the_columns_of_the_tables(cluster: Cluster, tmp_path: Path) -> None:
    code = """
import json
import django_orders as shop

models = (shop.OutboxMessage, shop.OutboxLease)
print(json.dumps({one._meta.db_table: {field.column: field.null for field in one._meta.fields} for one in models}))
"""
    outbox = OutboxTable()
    tables = (outbox.table, outbox.lease)
    assert json.loads(Shop(cluster, tmp_path).run(code)) == {
        table.name: {column.name: bool(column.nullable) for column in table.columns} for table in tables
    }
