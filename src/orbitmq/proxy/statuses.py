"""How errors of brokers and of the way to them appear to clients of RocketMQ 5."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from orbitmq.errors import BrokerError, OrbitMQError, RemotingError, RemotingTimeout, RequestRejected, StatusError
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.v2.enums import Code
from orbitmq.wire.v2.messages import status

_log = logging.getLogger(__name__)

# Broker's code -> status; the others are INTERNAL_SERVER_ERROR.
_OF_BROKERS: Final[dict[int, Code]] = {
    ResponseCode.SUCCESS: Code.OK,
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.POLLING_FULL: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.NO_PERMISSION: Code.FORBIDDEN,
}
DENIED: Final = "AclException"  # brokers of 4.x have no code of its own for what an account may not
# Stored, but perhaps not as safely as configured.
OF_STORED: Final[dict[int, Code]] = {
    ResponseCode.SUCCESS: Code.OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
}


OK: Final = status(Code.OK, "OK")


def status_of(error: BaseException, action: str) -> Any:
    """The status an error becomes; `action` names the call in the log, where an error of our own leaves its trace."""
    if isinstance(error, StatusError):
        return status(Code(error.code), str(error))
    if isinstance(error, BrokerError):
        code = Code.UNAUTHORIZED if error.remark.startswith(DENIED) else _of_broker(error.code)
        return status(code, error.remark or str(error))
    if isinstance(error, RequestRejected):
        return status(_of_broker(error.code), error.remark or "")
    if isinstance(error, RemotingTimeout):
        return status(Code.PROXY_TIMEOUT, str(error))
    if not isinstance(error, RemotingError | OrbitMQError):
        _log.error("event=grpc_call_failed call=%s", action, exc_info=error)
    return status(Code.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")


async def status_in_time(error: BaseException, action: str) -> Any:
    """`status_of`, after the delay that the error asks for."""
    if isinstance(error, StatusError) and error.delay_s > 0:
        await asyncio.sleep(error.delay_s)
    return status_of(error, action)


def _of_broker(code: int) -> Code:
    return _OF_BROKERS.get(code, Code.INTERNAL_SERVER_ERROR)


def common(statuses: list[Any]) -> Any:
    """The outer status of a response with several."""
    codes = {one.code for one in statuses}
    if len(codes) == 1:
        return statuses[0]
    return status(Code.MULTIPLE_RESULTS, "multiple results")
