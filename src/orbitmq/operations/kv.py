"""Pairs of text that a name server keeps by namespace. Each name server has its own: nobody copies them."""

from __future__ import annotations

from orbitmq.net.remoting import Remoting
from orbitmq.operations.asking import ask
from orbitmq.wire.bodies import KVTable
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers_namesrv import (
    DeleteKVConfigHeader,
    GetKVConfigHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceHeader,
    PutKVConfigHeader,
)
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode

FOUND_OR_NOT = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)


async def kv_value(
    remoting: Remoting, address: str, namespace: str, key: str, *, timeout_ms: float = 3000
) -> str | None:
    """GET_KV_CONFIG: None when there is none."""
    header = GetKVConfigHeader(namespace, key)
    code = RequestCode.GET_KV_CONFIG
    answer = await ask(remoting, address, code, header, timeout_ms=timeout_ms, accept=FOUND_OR_NOT)
    return None if answer.code == ResponseCode.QUERY_NOT_FOUND else answer.header(GetKVConfigResponseHeader).value


async def kv_table(remoting: Remoting, address: str, namespace: str, *, timeout_ms: float = 3000) -> dict[str, str]:
    """GET_KVLIST_BY_NAMESPACE: every pair of the namespace, none when nobody has put one."""
    header = GetKVListByNamespaceHeader(namespace)
    code = RequestCode.GET_KVLIST_BY_NAMESPACE
    answer = await ask(remoting, address, code, header, timeout_ms=timeout_ms, accept=FOUND_OR_NOT)
    return {} if answer.code == ResponseCode.QUERY_NOT_FOUND else decode(KVTable, answer.body).table


async def put_kv(
    remoting: Remoting, address: str, namespace: str, key: str, value: str, *, timeout_ms: float = 3000
) -> None:
    """PUT_KV_CONFIG: the pair is kept, over restarts too."""
    header = PutKVConfigHeader(namespace, key, value)
    await ask(remoting, address, RequestCode.PUT_KV_CONFIG, header, timeout_ms=timeout_ms)


async def delete_kv(remoting: Remoting, address: str, namespace: str, key: str, *, timeout_ms: float = 3000) -> None:
    """DELETE_KV_CONFIG: no error when there was none."""
    header = DeleteKVConfigHeader(namespace, key)
    await ask(remoting, address, RequestCode.DELETE_KV_CONFIG, header, timeout_ms=timeout_ms)
