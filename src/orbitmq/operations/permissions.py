"""A broker's permission to be written, in the routes of one name server: in its memory only, and gone as soon as the
broker registers with a changed topic table.
"""

from __future__ import annotations

from orbitmq.net.remoting import Remoting
from orbitmq.operations.asking import ask
from orbitmq.wire.headers_namesrv import (
    AddWritePermOfBrokerHeader,
    AddWritePermOfBrokerResponseHeader,
    WipeWritePermOfBrokerHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from orbitmq.wire.requests import RequestCode


async def wipe_write_permission(remoting: Remoting, address: str, broker: str, *, timeout_ms: float = 6000) -> int:
    """WIPE_WRITE_PERM_OF_BROKER: of how many topics the broker is not written any more."""
    header = WipeWritePermOfBrokerHeader(broker)
    answer = await ask(remoting, address, RequestCode.WIPE_WRITE_PERM_OF_BROKER, header, timeout_ms=timeout_ms)
    return answer.header(WipeWritePermOfBrokerResponseHeader).wipe_topic_count


async def add_write_permission(remoting: Remoting, address: str, broker: str, *, timeout_ms: float = 6000) -> int:
    """ADD_WRITE_PERM_OF_BROKER: of how many topics. All of them are readable and writable then, whatever they were."""
    header = AddWritePermOfBrokerHeader(broker)
    answer = await ask(remoting, address, RequestCode.ADD_WRITE_PERM_OF_BROKER, header, timeout_ms=timeout_ms)
    return answer.header(AddWritePermOfBrokerResponseHeader).add_topic_count
