"""The key-value table of a name server, by namespace. Each name server has its own; they are not replicated."""

from __future__ import annotations

from orbitmq.net.remoting import Remoting
from orbitmq.operations.call import call
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
    """GET_KV_CONFIG: the value, None when there is none."""
    header = GetKVConfigHeader(namespace, key)
    code = RequestCode.GET_KV_CONFIG
    response = await call(remoting, address, code, header, timeout_ms=timeout_ms, accept=FOUND_OR_NOT)
    return None if response.code == ResponseCode.QUERY_NOT_FOUND else response.header(GetKVConfigResponseHeader).value


async def kv_table(remoting: Remoting, address: str, namespace: str, *, timeout_ms: float = 3000) -> dict[str, str]:
    """GET_KVLIST_BY_NAMESPACE: every pair of the namespace."""
    header = GetKVListByNamespaceHeader(namespace)
    code = RequestCode.GET_KVLIST_BY_NAMESPACE
    response = await call(remoting, address, code, header, timeout_ms=timeout_ms, accept=FOUND_OR_NOT)
    return {} if response.code == ResponseCode.QUERY_NOT_FOUND else decode(KVTable, response.body).table


async def put_kv(
    remoting: Remoting, address: str, namespace: str, key: str, value: str, *, timeout_ms: float = 3000
) -> None:
    """PUT_KV_CONFIG: store a pair; it survives restarts."""
    header = PutKVConfigHeader(namespace, key, value)
    await call(remoting, address, RequestCode.PUT_KV_CONFIG, header, timeout_ms=timeout_ms)


async def delete_kv(remoting: Remoting, address: str, namespace: str, key: str, *, timeout_ms: float = 3000) -> None:
    """DELETE_KV_CONFIG: delete a pair; no error when there is none."""
    header = DeleteKVConfigHeader(namespace, key)
    await call(remoting, address, RequestCode.DELETE_KV_CONFIG, header, timeout_ms=timeout_ms)
