"""Settings are read and changed as Java's tools do it."""

from __future__ import annotations

import asyncio

from orbitmq.operations.settings import (
    broker_settings,
    change_broker_settings,
    change_name_server_settings,
    name_server_settings,
)
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.settings import decode_settings
from tests.support.recorded import ADDRESS, exchange


def test_settings_of_a_broker_come_with_their_version() -> None:
    found = exchange(RequestCode.GET_BROKER_CONFIG)
    settings = asyncio.run(broker_settings(found.remoting, ADDRESS))
    assert settings.values["brokerName"] == "broker-a"
    assert settings.version.timestamp > 0
    found.assert_asked_as_java()


def test_settings_of_a_broker_are_changed() -> None:
    found = exchange(RequestCode.UPDATE_BROKER_CONFIG)
    asyncio.run(change_broker_settings(found.remoting, ADDRESS, decode_settings(found.question.body)))
    found.assert_asked_as_java()


def test_settings_of_a_name_server() -> None:
    found = exchange(RequestCode.GET_NAMESRV_CONFIG)
    assert "orderMessageEnable" in asyncio.run(name_server_settings(found.remoting, ADDRESS))
    found.assert_asked_as_java()


def test_settings_of_a_name_server_are_changed() -> None:
    found = exchange(RequestCode.UPDATE_NAMESRV_CONFIG)
    asyncio.run(change_name_server_settings(found.remoting, ADDRESS, decode_settings(found.question.body)))
    found.assert_asked_as_java()
