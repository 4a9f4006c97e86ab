"""Clients with an account and TLS, against a broker that wants both; and what nobody is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.client import LitePullConsumer, Message, Producer, PushConsumer
from orbitmq.client import sync as threads
from orbitmq.errors import ClientError, ConfigurationError, OrbitMQError
from orbitmq.namesrv.options import NamesrvOptions
from orbitmq.namesrv.server import NameServer
from orbitmq.net.tls_options import TlsOptions
from tests.support.access import GROUP, IMPOSTOR, NOBODY, OWNER, PLAIN_ACL, TOPIC, write_acl
from tests.support.certificates import PASSWORD, Authority
from tests.support.live import made_broker
from tests.support.loops import until

OWNERS = {"access_key": OWNER.access_key, "secret_key": OWNER.secret_key}


@asynccontextmanager
async def cluster(home: Path, tls: TlsOptions | None = None) -> AsyncIterator[str]:
    """A name server and a broker that checks signatures; the address of the name server."""
    write_acl(home, PLAIN_ACL)
    names = NameServer(NamesrvOptions(listen_port=0), tls=tls)
    await names.start()
    pattern = made_broker(home / "store", aclEnable="true", namesrvAddr=names.address)
    broker = Broker(pattern.options, pattern.store.options, tls=tls)
    await broker.start()
    try:
        yield names.address
    finally:
        await broker.stop()
        await names.stop()


async def test_an_account_sends_and_consumes_what_it_may(tmp_path: Path) -> None:
    async with cluster(tmp_path) as namesrv:
        async with Producer("senders", namesrv, **OWNERS) as producer:
            await producer.send(Message(TOPIC, b"hello"))
            with pytest.raises(ClientError, match="No default permission for topic:others"):
                await producer.send(Message("others", b"hello"))
        async with LitePullConsumer(GROUP, namesrv, **OWNERS) as consumer:
            consumer.subscribe(TOPIC)
            (message,) = await consumer.poll(timeout=20)
            assert message.body == b"hello"
            await consumer.commit()
        heard: list[bytes] = []
        consumer = PushConsumer("shipping", namesrv, **OWNERS)
        consumer.subscribe(TOPIC)
        consumer.set_listener(lambda messages, _context: heard.extend(m.body for m in messages))
        async with consumer:
            await until(lambda: heard == [b"hello"])


@pytest.mark.parametrize(
    ("credentials", "said"),
    [
        (None, "No accessKey is configured"),
        (IMPOSTOR, f"Check signature failed for accessKey={OWNER.access_key}"),
        (NOBODY, f"No default permission for topic:{TOPIC}"),
    ],
)
async def test_others_are_told_why_not(tmp_path: Path, credentials: Any, said: str) -> None:
    settings = {} if credentials is None else {
        "access_key": credentials.access_key, "secret_key": credentials.secret_key,
    }  # fmt: skip
    async with cluster(tmp_path) as namesrv, Producer("senders", namesrv, **settings) as producer:
        with pytest.raises(ClientError, match=said):
            await producer.send(Message(TOPIC, b"hello"))


async def test_everything_goes_over_tls_when_only_that_is_taken(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    pair = authority.issue("server")
    tls = TlsOptions(mode="enforcing", cert_path=str(pair.certificate), key_path=str(pair.key))
    async with cluster(tmp_path, tls) as namesrv:
        trusting = {**OWNERS, "tls": True, "tls_ca_file": str(authority.path)}
        async with Producer("senders", namesrv, **trusting) as producer:
            await producer.send(Message(TOPIC, b"hello" * 100_000))
        async with LitePullConsumer(GROUP, namesrv, **trusting) as consumer:
            consumer.subscribe(TOPIC)
            (message,) = await consumer.poll(timeout=20)
            assert message.body == b"hello" * 100_000
        for settings in (OWNERS, {**OWNERS, "tls": True}):
            async with Producer("senders", namesrv, **settings) as producer:
                with pytest.raises(OrbitMQError):
                    await producer.send(Message(TOPIC, b"hello"), timeout=1)


async def test_a_client_shows_a_certificate_whose_key_has_a_password(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    server, own = authority.issue("server"), authority.issue("own", password=PASSWORD)
    tls = TlsOptions(
        mode="permissive",
        cert_path=str(server.certificate),
        key_path=str(server.key),
        client_auth="require",
        verify_clients=True,
        trust_path=str(authority.path),
    )
    files = {"tls_ca_file": str(authority.path), "tls_cert_file": str(own.certificate), "tls_key_file": str(own.key)}
    async with cluster(tmp_path, tls) as namesrv:
        async with Producer("senders", namesrv, **OWNERS, tls=True, **files, tls_key_password=PASSWORD) as producer:
            await producer.send(Message(TOPIC, b"hello"))
        with pytest.raises(ConfigurationError, match=r"tls\.client") as refused:
            await Producer("senders", namesrv, **OWNERS, tls=True, **files, tls_key_password="another").start()
        assert "another" not in str(refused.value)


async def test_a_client_shares_an_instance_only_with_its_own_account() -> None:
    named = {"instance_name": "shared"}
    async with Producer("first", "127.0.0.1:1", **named, **OWNERS):
        stranger = Producer("second", "127.0.0.1:1", **named, access_key="somebody", secret_key="else's secret")
        with pytest.raises(ClientError, match="another account") as refused:
            await stranger.start()
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"access_key": "somebody"}, "set both or none"),
        ({"secret_key": "hush hush"}, "set both or none"),
        ({"tls": True, "tls_ca_file": "/nowhere"}, r"tls\.client\.trustCertPath: /nowhere"),
        ({"tls": True, "tls_cert_file": "/nowhere"}, r"tls\.client\.certPath: /nowhere is not a file"),
    ],
)
async def test_settings_that_cannot_work_are_refused_at_the_start(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        await Producer("senders", "127.0.0.1:1", **settings).start()


def test_a_secret_of_a_wrong_kind_is_not_repeated() -> None:
    with pytest.raises(ConfigurationError) as refused:
        threads.Producer("senders", "127.0.0.1:1", secret_key=b"hush hush")  # type: ignore[arg-type]
    assert "hush" not in str(refused.value)
