"""orbitmq's client with an account and over TLS, at brokers of three kinds that know both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.client import ClientError, LitePullConsumer, Message, Producer, PushConsumer
from orbitmq.client.settings import ClientSettings
from orbitmq.errors import BrokerError, ConfigurationError
from orbitmq.wire.signature import Credentials
from tests.interop.conftest import FIVE_TOO, System
from tests.support.access import ADMIN, APPLICATION, IMPOSTOR, STRANGER, write_acl
from tests.support.certificates import PASSWORD, Authority
from tests.support.delivery import assert_as_acknowledged, assert_each_once
from tests.support.java_rocketmq import ROCKETMQ_4, ROCKETMQ_5, SMALL_JVM, JavaBroker, JavaNameServer, JavaSystem
from tests.support.orbit_process import OrbitUp
from tests.support.python_client import FIRST, Collector, message, sent_row

COUNT = 50
TOPIC, GROUP, OTHER_TOPIC = "jobs", "workers", "orders"  # what APPLICATION may use, and what not
AUTH = "org.apache.rocketmq.auth"
# 5.3.3 keeps accounts in a form of its own, takes those of 4.9 over when told, and has one that makes the others.
FIVES_ACCOUNTS = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": f'{{"username":"{ADMIN.access_key}","password":"{ADMIN.secret_key}"}}',
    "innerClientAuthenticationCredentials": f'{{"accessKey":"{ADMIN.access_key}","secretKey":"{ADMIN.secret_key}"}}',
    "authorizationEnabled": "true",
    "authorizationProvider": f"{AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
    "migrateAuthFromV1Enabled": "true",
}


class ProtectedJava(JavaSystem):
    """RocketMQ with accounts and a certificate, which a Java process takes from its system properties."""

    def __init__(self, version: str, keys: dict[str, object]) -> None:
        super().__init__(version)
        jvm = (*SMALL_JVM, *(f"-D{key}={value}" for key, value in keys.items()))
        self.nameserver = JavaNameServer(version, jvm=jvm)
        accounts = FIVES_ACCOUNTS if version == ROCKETMQ_5 else {"aclEnable": "true"}
        self.broker = JavaBroker(self.nameserver.address, version, jvm=jvm, **accounts)  # type: ignore[arg-type]
        self.namesrv_address, self.address = self.nameserver.address, self.broker.address
        write_acl(self.broker.home)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("tls"))
    made.issue("server")
    made.issue("client", password=PASSWORD)
    return made


@pytest.fixture(scope="module", params=FIVE_TOO)
def protected(request: pytest.FixtureRequest, authority: Authority) -> Iterator[System]:
    directory = authority.path.parent
    keys: dict[str, object] = {
        "tls.server.mode": "permissive",
        "tls.test.mode.enable": "false",
        "tls.server.certPath": directory / "server.crt",
        "tls.server.keyPath": directory / "server.key",
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": authority.path,
    }
    made: System
    if request.param == "orbitmq":
        made = OrbitUp(**keys, aclEnable="true")  # type: ignore[arg-type]
        made._config["rocketmqHome"] = made.home
        write_acl(made.home)
    else:
        made = ProtectedJava(ROCKETMQ_5 if request.param == "java-5" else ROCKETMQ_4, keys)
    with made as running:
        yield running


def settings(account: Credentials, authority: Authority) -> ClientSettings:
    return {
        "access_key": account.access_key,
        "secret_key": account.secret_key,
        "tls": True,
        "tls_ca_file": str(authority.path),
        "tls_cert_file": str(authority.path.with_name("client.crt")),
        "tls_key_file": str(authority.path.with_name("client.key")),
        "tls_key_password": PASSWORD,
    }


async def test_who_may_sends_and_consumes_encrypted(protected: System, authority: Authority) -> None:
    mine = settings(APPLICATION, authority)
    async with Producer("producers", protected.namesrv_address, **mine) as producer:
        results = [await producer.send(message(TOPIC, "run", n)) for n in range(COUNT)]
        found = await producer.view_message(results[1].msg_id, TOPIC)  # a search by unique id, which is signed, too
        assert (found.queue_offset, found.body) == (results[1].queue_offset, message(TOPIC, "run", 1).body)
    sent = [sent_row(n, result) for n, result in enumerate(results)]
    collector = Collector()
    consumer = PushConsumer(GROUP, protected.namesrv_address, consume_from_where=FIRST, **mine)
    consumer.subscribe(TOPIC)
    consumer.set_listener(collector)
    async with consumer:
        received = await collector.until(COUNT)
    assert_each_once(received, "run", range(COUNT))
    assert_as_acknowledged(received, sent)
    async with LitePullConsumer(
        "workers-in-order", protected.namesrv_address, consume_from_where=FIRST, **mine
    ) as lite:
        lite.subscribe(TOPIC)
        assert await lite.poll(20)


@pytest.mark.parametrize(
    ("account", "topic", "reason"),
    [(IMPOSTOR, TOPIC, "ignature"), (STRANGER, TOPIC, STRANGER.access_key), (APPLICATION, OTHER_TOPIC, OTHER_TOPIC)],
    ids=["wrong secret", "no account", "not allowed"],
)
async def test_who_may_not_is_told_why(
    protected: System, authority: Authority, account: Credentials, topic: str, reason: str
) -> None:
    async with Producer("producers", protected.namesrv_address, **settings(account, authority)) as producer:
        with pytest.raises((BrokerError, ClientError), match=reason) as raised:
            await producer.send(Message(topic, b"x"))
    assert account.secret_key not in str(raised.value)


async def test_a_server_that_somebody_else_vouches_for_is_not_talked_to(protected: System, tmp_path: Path) -> None:
    stranger = Authority(tmp_path)
    stranger.issue("client", password=PASSWORD)
    async with Producer("producers", protected.namesrv_address, **settings(APPLICATION, stranger)) as producer:
        with pytest.raises(ClientError, match=r"(?i)certificate"):
            await producer.send(Message(TOPIC, b"x"))


async def test_a_client_that_shows_no_certificate_is_not_served(protected: System, authority: Authority) -> None:
    anonymous = settings(APPLICATION, authority) | {"tls_cert_file": "", "tls_key_file": "", "tls_key_password": ""}
    async with Producer("producers", protected.namesrv_address, **anonymous) as producer:
        with pytest.raises(ClientError):
            await producer.send(Message(TOPIC, b"x"))


async def test_a_key_opens_with_its_password_only(protected: System, authority: Authority) -> None:
    wrong = settings(APPLICATION, authority) | {"tls_key_password": "not " + PASSWORD}
    with pytest.raises(ConfigurationError, match=r"tls\.client") as refused:
        await Producer("producers", protected.namesrv_address, **wrong).start()
    assert PASSWORD not in str(refused.value)
