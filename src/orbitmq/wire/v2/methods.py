"""The methods of the service: names, paths, and whether a side streams. Pure."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

PACKAGE: Final = "apache.rocketmq.v2"
SERVICE: Final = f"{PACKAGE}.MessagingService"


class Kind(Enum):
    """Which side sends a stream of messages."""

    UNARY = "unary"
    SERVER_STREAM = "server stream"
    BIDIRECTIONAL = "bidirectional"


class Method(NamedTuple):
    """One method; request and response are names of messages."""

    name: str
    kind: Kind
    request: str
    response: str

    @property
    def path(self) -> str:
        """The path of the HTTP/2 request."""
        return f"/{SERVICE}/{self.name}"


_UNARY: Final = (
    "QueryRoute", "Heartbeat", "SendMessage", "QueryAssignment", "AckMessage", "ForwardMessageToDeadLetterQueue",
    "UpdateOffset", "GetOffset", "QueryOffset", "EndTransaction", "NotifyClientTermination", "ChangeInvisibleDuration",
    "RecallMessage", "SyncLiteSubscription",
)  # fmt: skip

METHODS: Final = {
    method.path: method
    for method in (
        *(Method(name, Kind.UNARY, f"{name}Request", f"{name}Response") for name in _UNARY),
        Method("ReceiveMessage", Kind.SERVER_STREAM, "ReceiveMessageRequest", "ReceiveMessageResponse"),
        Method("PullMessage", Kind.SERVER_STREAM, "PullMessageRequest", "PullMessageResponse"),
        Method("Telemetry", Kind.BIDIRECTIONAL, "TelemetryCommand", "TelemetryCommand"),
    )
}
"""By path."""
