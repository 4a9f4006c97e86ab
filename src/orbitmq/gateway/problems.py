"""Errors as problem documents (RFC 9457): which status each has, and what to do about it. Knows no operation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from orbitmq.client.core.retry import BROKER_MISSING, CONNECT_FAILED, NO_NAME_SERVER, NO_ROUTE, TIMED_OUT
from orbitmq.errors import (
    BrokerError,
    ClientError,
    MessageError,
    OrbitMQError,
    RemotingError,
    RemotingTimeout,
    StatusError,
    TooManyRequestsError,
)
from orbitmq.gateway.bodies import Problem
from orbitmq.wire.codes import ResponseCode

CONTENT_TYPE: Final = "application/problem+json"
RETRY_SECONDS: Final = 1  # in Retry-After
CHALLENGE: Final = 'Basic realm="orbitmq", charset="UTF-8"'
_REFUSED = re.compile(r"(Acl|Authentication|Authorization)Exception")
_UNKNOWN_CALLER = re.compile(
    r"No accessKey is configured|No acl config for|Check signature failed|signed wrongly too often|"
    r"AuthenticationException"
)
_UNSUPPORTED = re.compile(r"does not support consumer to filter|not support(ed)? filter")


@dataclass(frozen=True, slots=True)
class Kind:
    """The problems of one status."""

    slug: str
    title: str
    hint: str | None = None
    retryable: bool = False


KINDS: Mapping[int, Kind] = {
    400: Kind("invalid-request", "The request is not valid"),
    401: Kind(
        "unauthenticated", "The brokers do not know this caller",
        "send the access key and the secret of an account as Basic authentication",
    ),
    403: Kind("forbidden", "The account may not do this", "have an administrator permit it: orbitmq acl set"),
    404: Kind("not-found", "There is no such thing", "check the name, or create it first"),
    405: Kind("method-not-allowed", "The path has no such method", "use a method of the header Allow"),
    413: Kind("too-large", "The request is too large", "send it in parts"),
    415: Kind("unsupported-media-type", "The body is not JSON", "send Content-Type: application/json"),
    421: Kind("wrong-host", "The gateway does not have this name", "start it with --allowed-host for the name"),
    429: Kind("too-many-requests", "A limit of the gateway is reached", "wait, then try again", retryable=True),
    500: Kind("internal", "The gateway failed", "see the log of the gateway"),
    501: Kind("not-supported", "The brokers cannot do this",
        "it needs brokers of orbitmq, or of RocketMQ 5; SQL92 needs enablePropertyFilter=true there",),
    502: Kind("broker-failed", "A broker refused the request"),
    503: Kind("unavailable", "The brokers cannot be reached, or are busy", "try again", retryable=True),
    504: Kind("timeout", "A broker did not respond in time", "try again", retryable=True),
}  # fmt: skip
"""Status -> its problems. All that the gateway responds with."""

_BY_CODE: Mapping[int, int] = {
    ResponseCode.MESSAGE_ILLEGAL: 400,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: 400,
    ResponseCode.INVALID_PARAMETER: 400,
    ResponseCode.NO_PERMISSION: 403,
    ResponseCode.TOPIC_NOT_EXIST: 404,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: 404,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: 501,
    ResponseCode.SYSTEM_BUSY: 503,
    ResponseCode.SERVICE_NOT_AVAILABLE: 503,
    ResponseCode.FLOW_CONTROL: 503,
    ResponseCode.POLLING_FULL: 503,
    CONNECT_FAILED: 503,
    TIMED_OUT: 504,
    BROKER_MISSING: 503,
    NO_NAME_SERVER: 503,
    NO_ROUTE: 404,
}
_BY_CLASS: Sequence[tuple[type[OrbitMQError], int]] = (
    (RemotingTimeout, 504),
    (TooManyRequestsError, 503),
    (RemotingError, 503),
    (StatusError, 400),
    (MessageError, 400),
)


class Refused(HTTPException):
    """A request that the gateway itself refuses."""

    def __init__(self, status: int, detail: str, hint: str | None = None) -> None:
        super().__init__(status, detail)
        self.hint = hint


def status_of(error: OrbitMQError) -> int:
    """The status of an error that a client, a broker or the network raised."""
    if (known := text_status(str(error))) is not None:
        return known
    if isinstance(error, BrokerError | ClientError):
        return _BY_CODE.get(error.code, 502)
    return next((status for kind, status in _BY_CLASS if isinstance(error, kind)), 502)


def text_status(text: str) -> int | None:
    """The status of an error whose text says more than the code of the response, which is the general one; None for any
    other.
    """
    if _UNSUPPORTED.search(text):
        return 501
    if not _REFUSED.search(text):
        return None
    return 401 if _UNKNOWN_CALLER.search(text) else 403


def problem_of(error: OrbitMQError) -> Problem:
    """The problem of such an error."""
    return problem(status_of(error), str(error))


def problem(status: int, detail: str, hint: str | None = None) -> Problem:
    """The problem of a status, with the hint of all of its kind unless there is a better one."""
    kind = KINDS[status]
    return Problem(
        type=f"urn:orbitmq:problem:{kind.slug}", title=kind.title, status=status, detail=detail,
        hint=hint or kind.hint, retryable=kind.retryable,
    )  # fmt: skip


def response(found: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """The response that holds a problem."""
    added = dict(headers or {})
    if found.status == HTTPStatus.UNAUTHORIZED:
        added["www-authenticate"] = CHALLENGE
    if found.retryable:
        added["retry-after"] = str(RETRY_SECONDS)
    return Response(msgspec.json.encode(found), found.status, added, CONTENT_TYPE)
