"""Pairs of a name server's namespaces, as Java's tools ask for them."""

from __future__ import annotations

import asyncio

from orbitmq.message.topics import ORDER_NAMESPACE
from orbitmq.operations.kv import delete_kv, kv_table, kv_value, put_kv
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.requests import RequestCode
from tests.support.recorded import ADDRESS, exchange


def test_a_pair_is_put_and_deleted() -> None:
    found = exchange(RequestCode.PUT_KV_CONFIG)
    asyncio.run(put_kv(found.remoting, ADDRESS, found.ext["namespace"], found.ext["key"], found.ext["value"]))
    found.assert_asked_as_java()
    found = exchange(RequestCode.DELETE_KV_CONFIG)
    asyncio.run(delete_kv(found.remoting, ADDRESS, found.ext["namespace"], found.ext["key"]))
    found.assert_asked_as_java()


def test_a_value_or_none() -> None:
    found = exchange(RequestCode.GET_KV_CONFIG)
    assert asyncio.run(kv_value(found.remoting, ADDRESS, found.ext["namespace"], found.ext["key"]))
    found.assert_asked_as_java()
    found = exchange(RequestCode.GET_KV_CONFIG, ResponseCode.QUERY_NOT_FOUND)
    assert asyncio.run(kv_value(found.remoting, ADDRESS, found.ext["namespace"], found.ext["key"])) is None


def test_a_namespace_or_nothing() -> None:
    found = exchange(RequestCode.GET_KVLIST_BY_NAMESPACE)
    assert found.remoting.answer is not None
    found.remoting.answer.body = b'{"table":{"orders":"broker-a:4"}}'
    assert asyncio.run(kv_table(found.remoting, ADDRESS, ORDER_NAMESPACE)) == {"orders": "broker-a:4"}
    found.assert_asked_as_java()
    found.remoting.answer = exchange(RequestCode.GET_KV_CONFIG, ResponseCode.QUERY_NOT_FOUND).remoting.answer
    assert asyncio.run(kv_table(found.remoting, ADDRESS, ORDER_NAMESPACE)) == {}
