"""What a Spark task asks is signed and encrypted when the options of the read say so."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.errors import ConnectError, SourceError
from orbitmq.net.tls_options import TlsOptions
from orbitmq.spark.channel import PLAIN, Channel, Protection
from orbitmq.spark.options import read_options
from orbitmq.wire.command import request
from orbitmq.wire.headers import GetMaxOffsetHeader
from orbitmq.wire.requests import RequestCode
from tests.support.access import OWNER, TOPIC, write_acl
from tests.support.certificates import Authority
from tests.support.live import made_broker, running

READ = {"nameServer": "127.0.0.1:1", "subscribe": TOPIC}


def asked(address: str, protection: Protection) -> int:
    with Channel(address, 20_000, protection) as channel:
        (answer,) = channel.call(request(RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader(TOPIC, 0)))
        return answer.code


async def test_requests_are_signed_and_go_over_tls(tmp_path: Path) -> None:
    write_acl(tmp_path)
    authority = Authority(tmp_path / "tls")
    pair = authority.issue("server")
    pattern = made_broker(tmp_path / "store", aclEnable="true")
    tls = TlsOptions(mode="enforcing", cert_path=str(pair.certificate), key_path=str(pair.key))
    keys = {"accessKey": OWNER.access_key, "secretkey": OWNER.secret_key}
    secure = {**READ, **keys, "useTLS": "true", "tls.client.trustCertPath": str(authority.path)}
    async with running(Broker(pattern.options, pattern.store.options, tls=tls)) as broker:

        async def code(given: dict[str, str]) -> int:
            protection = pickle.loads(pickle.dumps(read_options(given).protection))
            return await asyncio.to_thread(asked, broker.address, protection)

        assert await code(secure) == 0
        assert await code({**secure, "secretKey": "not the secret"}) == 1
        with pytest.raises(ConnectError, match="certificate"):
            await code({**secure, "tls.client.trustCertPath": ""})
        assert await code({**secure, "tls.client.trustCertPath": "", "tls.client.authServer": "false"}) == 0


def test_an_account_needs_both_keys() -> None:
    assert read_options(READ).protection == PLAIN
    with pytest.raises(SourceError, match="accessKey and secretKey"):
        read_options({**READ, "accessKey": OWNER.access_key})


def test_a_secret_stands_in_no_representation() -> None:
    options = read_options({**READ, "accessKey": OWNER.access_key, "secretKey": OWNER.secret_key})
    assert OWNER.secret_key not in repr(options) + repr(options.protection)
