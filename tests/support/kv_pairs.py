"""Pairs of the key-value settings of a name server, put there by another than orbitmq."""

from __future__ import annotations

import asyncio

from orbitmq.net.remoting import Remoting
from orbitmq.operations.kv import put_kv


def put_pair(name_server: str, namespace: str, key: str, value: str) -> None:
    async def put() -> None:
        remoting = Remoting()
        try:
            await put_kv(remoting, name_server, namespace, key, value)
        finally:
            await remoting.close()

    asyncio.run(put())
