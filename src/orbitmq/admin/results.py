"""What comes back when several nodes are asked: items, warnings, and by name each node that did not answer.

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
"""Stands in the remark where access control has refused a request; its code is that of any failure."""
_HINTS = {
    ResponseCode.NO_PERMISSION: "give an account that may: ORBITMQ_ACCESS_KEY with its secret, or a context",
    ResponseCode.SYSTEM_BUSY: "ask again; the broker refuses work while it is overloaded",
    ResponseCode.SERVICE_NOT_AVAILABLE: "look at the broker: it starts, stops, or its disk is full",
}
FIXED = ("cannot be changed by a request", "Can not update config")
"""Stands in the remark where a node does not take a setting while it runs, which has the code of a missing permission;
the second is RocketMQ's, and the name servers'.
"""
_RESTART = "set it in the file that the node reads when it starts, and restart it"
_WHICH = "say which with -n HOST:PORT, NAMESRV_ADDR or a context; `orbitmq up` starts one"


class Failure(Struct, frozen=True, rename="camel"):
    """One node that could not be asked, or one change that was not made."""

    target: str
    """Who: `broker-a (127.0.0.1:10911)`, a name server's address, a client id."""
    code: int | None
    """The response code; None when no answer came."""
    name: str
    """The code's name, or UNREACHABLE, TIMEOUT, FAILED."""
    message: str
    hint: str | None
    """What to do about it, where that is known."""
    retryable: bool
    """Whether the same request may succeed later."""


@dataclass(slots=True)
class Found(Generic[T]):
    """Items of one kind. `failures` make it partial: what those nodes have is not in it."""

    items: list[T] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    check_failed: bool = False
    """The question was whether something is well, and it is not."""

    @property
    def partial(self) -> bool:
        return bool(self.failures)


@dataclass(slots=True)
class Gathered(Generic[K, T]):
    """Answers by who gave them, in the order the nodes were named."""

    answers: dict[K, T] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    def found(self, items: Iterable[T] | None = None) -> Found[T]:
        return Found(list(self.answers.values() if items is None else items), failures=list(self.failures))


def failure_of(target: str, error: OrbitMQError) -> Failure:
    """How an error is told."""
    if isinstance(error, BrokerError):
        code = error.code
        return Failure(target, code, code_name(code), error.remark or code_name(code), _hint_of(error), code in BUSY)
    if isinstance(error, RemotingTimeout):
        return Failure(target, None, "TIMEOUT", str(error), "give it longer: --timeout", retryable=True)
    if isinstance(error, (ConnectError, SendRequestError)):
        if isinstance(error, BrokerAway):
            return Failure(target, None, "UNREACHABLE", str(error), error.hint, retryable=True)
        if isinstance(error, NoNameServer):
            return Failure(target, None, "UNREACHABLE", str(error), _WHICH, retryable=True)
        hint = "is it running, and reachable from here? brokers register the address they were told: --map-addr"
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
    """The response code as the field writes it: `TOPIC_NOT_EXIST`, or `CODE_4711` for one that has no name here."""
    return ResponseCode(code).name if code in set(ResponseCode) else f"CODE_{code}"
