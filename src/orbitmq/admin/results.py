"""Results of a query to several nodes: items, warnings, and the name of each node that did not respond.

Must not know what the items are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from msgspec import Struct

from orbitmq.errors import (
    AdminError,
    BrokerAway,
    BrokerError,
    ConnectError,
    NoNameServer,
    OrbitMQError,
    RemotingTimeout,
    SendRequestError,
)
from orbitmq.wire.codes import ResponseCode

T = TypeVar("T")
K = TypeVar("K")

BUSY = {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE}
ACCESS_REFUSED = "AclException"
"""In the remark when access control refuses a request; the response code is the general SYSTEM_ERROR."""
_HINTS = {
    ResponseCode.NO_PERMISSION: "use an account with the permission: ORBITMQ_ACCESS_KEY with its secret, or a context",
    ResponseCode.SYSTEM_BUSY: "retry; the broker refuses work while it is overloaded",
    ResponseCode.SERVICE_NOT_AVAILABLE: "check the broker: it is starting or stopping, or its disk is full",
}
FIXED = ("cannot be changed by a request", "Can not update config")
"""In the remark when a running node refuses to change a setting; the response code is NO_PERMISSION. The second text is
that of RocketMQ, and of name servers.
"""
_RESTART = "set it in the file that the node reads when it starts, and restart it"
_WHICH = "set it with -n HOST:PORT (usually port 9876), NAMESRV_ADDR or a context; `orbitmq up` starts one"


class Failure(Struct, frozen=True, rename="camel"):
    """A node that did not respond or refused, or a change that was not made."""

    target: str
    """`broker-a (127.0.0.1:10911)`, a name server's address, a client id."""
    code: int | None
    """The response code; None without a response."""
    name: str
    """The code's name, or UNREACHABLE, TIMEOUT, FAILED."""
    message: str
    hint: str | None
    """The remedy, if known."""
    retryable: bool
    """Whether the same request may succeed later."""


@dataclass(slots=True)
class Result(Generic[T]):
    """Items of one kind. `failures` make it partial: items of those nodes are missing."""

    items: list[T] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    check_failed: bool = False
    """A health check found a problem."""

    @property
    def partial(self) -> bool:
        return bool(self.failures)


@dataclass(slots=True)
class Gathered(Generic[K, T]):
    """Responses by node, in the order of the request."""

    responses: dict[K, T] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    def result(self, items: Iterable[T] | None = None) -> Result[T]:
        return Result(list(self.responses.values() if items is None else items), failures=list(self.failures))


def failure_of(target: str, error: OrbitMQError) -> Failure:
    if isinstance(error, BrokerError):
        code = error.code
        return Failure(target, code, code_name(code), error.remark or code_name(code), _hint_of(error), code in BUSY)
    if isinstance(error, RemotingTimeout):
        return Failure(target, None, "TIMEOUT", str(error), "allow more time: --timeout", retryable=True)
    if isinstance(error, (ConnectError, SendRequestError)):
        if isinstance(error, BrokerAway):
            return Failure(target, None, "UNREACHABLE", str(error), error.hint, retryable=True)
        if isinstance(error, NoNameServer):
            return Failure(target, None, "UNREACHABLE", str(error), _WHICH, retryable=True)
        hint = "is it running, and reachable from here? if brokers register another address: --map-addr"
        return Failure(target, None, "UNREACHABLE", str(error), hint, retryable=True)
    remedy = error.hint if isinstance(error, AdminError) else None
    return Failure(target, None, "FAILED", str(error), remedy, retryable=False)


def _hint_of(error: BrokerError) -> str | None:
    remark = error.remark
    if ACCESS_REFUSED in remark:
        return _HINTS[ResponseCode.NO_PERMISSION]
    if any(text in remark for text in FIXED):
        return _RESTART
    return _HINTS.get(ResponseCode(error.code)) if error.code in set(ResponseCode) else None


def code_name(code: int) -> str:
    """The name of a response code: `TOPIC_NOT_EXIST`, or `CODE_4711` for an unknown code."""
    return ResponseCode(code).name if code in set(ResponseCode) else f"CODE_{code}"
