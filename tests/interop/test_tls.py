"""TLS on the ordinary port: Java's client and this one against name servers and brokers of both kinds."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from orbitmq.errors import RemotingError
from orbitmq.net.tls import outgoing_context
from orbitmq.operations.routes import cluster_info
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, request
from orbitmq.wire.requests import RequestCode
from tests.interop.conftest import System
from tests.support.certificates import Authority
from tests.support.delivery import assert_each_once, messages
from tests.support.java_rocketmq import ROCKETMQ_4, SMALL_JVM, Driver, JavaBroker, JavaNameServer, JavaSystem
from tests.support.mqadmin import Mqadmin, rows
from tests.support.orbit_process import OrbitUp
from tests.support.peers import remoting
from tests.support.process import ChildProcess, ProcessFailed, accepts

T = TypeVar("T")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("tls"))
    made.issue("java")
    made.issue("orbitmq")
    return made


def server_keys(authority: Authority, name: str, mode: str) -> dict[str, object]:
    directory = authority.path.parent
    return {
        "tls.server.mode": mode,
        "tls.test.mode.enable": "false",
        "tls.server.certPath": directory / f"{name}.crt",
        "tls.server.keyPath": directory / f"{name}.key",
    }


def jvm(keys: dict[str, object]) -> tuple[str, ...]:
    return (*SMALL_JVM, *(f"-D{key}={value}" for key, value in keys.items()))


class EncryptedJava(JavaSystem):
    """RocketMQ with a certificate; a Java process takes TLS from its system properties."""

    def __init__(self, keys: dict[str, object]) -> None:
        super().__init__(ROCKETMQ_4)
        self.nameserver = JavaNameServer(jvm=jvm(keys))
        self.broker = JavaBroker(self.nameserver.address, jvm=jvm(keys))
        self.namesrv_address, self.address = self.nameserver.address, self.broker.address


@pytest.fixture(scope="module", params=["java", "orbitmq"])
def permissive(request: pytest.FixtureRequest, authority: Authority) -> Iterator[System]:
    """Name server and broker that take plain and encrypted connections."""
    keys = server_keys(authority, request.param, "permissive")
    made = EncryptedJava(keys) if request.param == "java" else OrbitUp(**keys)
    with made as running:
        yield running


class EnforcingOrbit(OrbitUp):
    """`orbitmq up` that has to be asked over TLS whether it is ready."""

    def __init__(self, keys: dict[str, object], trusted: Path) -> None:
        super().__init__(**keys)  # type: ignore[arg-type]
        self._trusted = trusted

    def _is_ready(self, process: ChildProcess) -> bool:
        async def registered() -> bool:
            async with remoting(tls=trusting(self._trusted)) as asking:
                return self.name in (await cluster_info(asking, self.namesrv_address)).brokers

        try:
            return accepts(self.port) and run(registered())
        except RemotingError:
            return False


@pytest.fixture(scope="module", params=["java", "orbitmq"])
def enforcing(request: pytest.FixtureRequest, authority: Authority) -> Iterator[System]:
    """Name server and broker that take encrypted connections only."""
    keys = server_keys(authority, request.param, "enforcing")
    made = EncryptedJava(keys) if request.param == "java" else EnforcingOrbit(keys, authority.path)
    with made as running:
        yield running


def trusting(trusted: Path) -> ssl.SSLContext:
    return outgoing_context(verify=True, check_host=True, trusted=str(trusted))


def client_jvm(trusted: Path | None) -> tuple[str, ...]:
    """A Java client that believes one authority; a plain one when there is none."""
    keys: dict[str, object] = {} if trusted is None else {
        "tls.enable": "true",
        "tls.test.mode.enable": "false",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": trusted,
    }  # fmt: skip
    return jvm(keys)


def driver(*arguments: object, trusted: Path | None) -> list[dict[str, Any]]:
    """The rows of a Java driver."""
    with Driver(*arguments, jvm=client_jvm(trusted)) as running:
        return running.finish(120)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


async def certificate_of(address: str, trusted: Path) -> bytes:
    """What a server shows, once it is found to be signed by `trusted`."""
    host, _, port = address.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=trusting(trusted), server_hostname=host)
    shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return shown


# ------------------------------------------------------------------------------------------------------------- both


def test_java_clients_send_and_consume_encrypted_and_plain(
    permissive: System, authority: Authority, label: str
) -> None:
    client = ("--namesrv", permissive.namesrv_address, "--topic", label)
    driver("send", *client, "--count", 200, "--run", label, "--mode", "batch", trusted=authority.path)
    driver("send", *client, "--count", 200, "--first", 200, "--run", label, trusted=None)
    received = driver("consume", *client, "--group", label, "--expect", 400, trusted=authority.path)
    assert_each_once(messages(received), label, range(400))


def test_a_replaced_certificate_is_shown_without_a_restart(permissive: System, authority: Authority) -> None:
    name = "java" if isinstance(permissive, JavaSystem) else "orbitmq"
    addresses = permissive.address, permissive.namesrv_address
    before = [run(certificate_of(address, authority.path)) for address in addresses]
    authority.issue(name)

    async def changed() -> None:
        async with asyncio.timeout(60):
            for address, old in zip(addresses, before, strict=True):
                while await certificate_of(address, authority.path) == old:  # noqa: ASYNC110 - asking is how it is seen
                    await asyncio.sleep(0.1)

    run(changed())


def test_a_client_that_believes_somebody_else_is_not_served(permissive: System, tmp_path: Path, label: str) -> None:
    stranger = Authority(tmp_path)
    with pytest.raises(ProcessFailed):
        driver("send", "--namesrv", permissive.namesrv_address, "--topic", label, trusted=stranger.path)
    with pytest.raises(ssl.SSLCertVerificationError):
        run(certificate_of(permissive.address, stranger.path))


@pytest.mark.parametrize("who", ["name server", "broker"])
def test_enforcing_takes_encrypted_connections_only(enforcing: System, authority: Authority, who: str) -> None:
    address = enforcing.address if who == "broker" else enforcing.namesrv_address

    code = RequestCode.GET_BROKER_CONFIG if who == "broker" else RequestCode.GET_NAMESRV_CONFIG

    async def asked(context: ssl.SSLContext | None) -> Command:
        async with remoting(tls=context) as asking:
            return await asking.call(address, request(code), 20_000)

    assert run(asked(trusting(authority.path))).code == ResponseCode.SUCCESS
    with pytest.raises(RemotingError):
        run(asked(None))


def test_java_clients_and_tools_work_with_a_broker_that_enforces_tls(
    enforcing: System, authority: Authority, label: str
) -> None:
    namesrv = enforcing.namesrv_address
    client = ("--namesrv", namesrv, "--topic", label, "--group", label)
    with Mqadmin(namesrv, jvm=client_jvm(authority.path)) as tool:
        created = tool("updateTopic", "-b", enforcing.address, "-t", label, "-r", 4, "-w", 4)
        assert f"create topic to {enforcing.address} success." in created
        with Driver("consume", *client, "--expect", 3, jvm=client_jvm(authority.path)) as consumer:
            sent = [rows(tool("sendMessage", "-t", label, "-p", "body"), "#Broker Name")[0] for _ in range(3)]
            received = messages(consumer.finish(120))
        assert {row[2] for row in sent} == {"SEND_OK"}
        assert sorted(row["msgId"] for row in received) == sorted(row[3] for row in sent)
        assert sum(int(row[3]) for row in rows(tool("topicStatus", "-t", label), "#Broker Name")) == 3
