"""Read and change settings of a running broker or name server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from orbitmq.message.config import DataVersion
from orbitmq.net.remoting import Remoting
from orbitmq.operations.call import call
from orbitmq.wire.headers_admin import GetBrokerConfigResponseHeader
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.settings import decode_settings, encode_settings


class BrokerSettings(NamedTuple):
    """All settings of a broker, and their version."""

    values: dict[str, str]
    version: DataVersion


async def broker_settings(remoting: Remoting, address: str, *, timeout_ms: float = 6000) -> BrokerSettings:
    """GET_BROKER_CONFIG: the settings in effect, including defaults."""
    response = await call(remoting, address, RequestCode.GET_BROKER_CONFIG, timeout_ms=timeout_ms)
    version = decode(DataVersion, response.header(GetBrokerConfigResponseHeader).version)
    return BrokerSettings(decode_settings(response.body), version)


async def change_broker_settings(
    remoting: Remoting, address: str, pairs: Mapping[str, str], *, timeout_ms: float = 6000
) -> None:
    """UPDATE_BROKER_CONFIG: unknown keys are ignored; BrokerError when one cannot be changed."""
    body = encode_settings(pairs)
    await call(remoting, address, RequestCode.UPDATE_BROKER_CONFIG, body=body, timeout_ms=timeout_ms)


async def name_server_settings(remoting: Remoting, address: str, *, timeout_ms: float = 6000) -> dict[str, str]:
    """GET_NAMESRV_CONFIG: the settings in effect, including defaults."""
    response = await call(remoting, address, RequestCode.GET_NAMESRV_CONFIG, timeout_ms=timeout_ms)
    return decode_settings(response.body)


async def change_name_server_settings(
    remoting: Remoting, address: str, pairs: Mapping[str, str], *, timeout_ms: float = 6000
) -> None:
    """UPDATE_NAMESRV_CONFIG: unknown keys are ignored; BrokerError when one cannot be changed."""
    body = encode_settings(pairs)
    await call(remoting, address, RequestCode.UPDATE_NAMESRV_CONFIG, body=body, timeout_ms=timeout_ms)
