"""The operations of the gateway: method, path, shapes and text of each. Routes and the OpenAPI document follow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orbitmq.gateway import bodies, operations
from orbitmq.gateway.operations import Call, EventStream

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
_ALWAYS: Final = (400, 401, 403, 404, 421, 429, 500, 502, 503, 504)
_WITH_BODY: Final = (413, 415)
_POP: Final = (501,)


@dataclass(frozen=True, slots=True)
class Operation:
    """One of them."""

    name: str
    method: str
    path: str
    text: str
    work: Callable[[Call[Any, Any, Any]], Awaitable[bodies.ResponseShape | EventStream]]
    path_shape: type[bodies.Shape]
    response: type[bodies.ResponseShape] | None = None
    """None: a stream of events."""
    body: Any = None
    """The shape of the body; None if there is none."""
    query: type[bodies.Shape] = bodies.Nothing
    event: type[bodies.Message] = bodies.Message
    """The shape of the messages of a stream."""
    waits: bool = False
    """Whether it may wait for messages, and so takes a place among those that do."""
    more_statuses: tuple[int, ...] = ()

    @property
    def problems(self) -> Sequence[int]:
        """The statuses of its problems."""
        return sorted({*_ALWAYS, *(_WITH_BODY if self.body is not None else ()), *self.more_statuses})


TABLE: Sequence[Operation] = (
    Operation(
        "sendMessage", "POST", "/v1/topics/{topic}/messages", "Send a message. It is stored when the response comes.",
        operations.send, bodies.TopicPath, bodies.SentMessage, bodies.OneMessage,
    ),
    Operation(
        "sendBatch", "POST", "/v1/topics/{topic}/batches",
        "Send messages that are stored in one queue, in their order, all or none.",
        operations.send_batch, bodies.TopicPath, bodies.SentBatch, bodies.NewBatch,
    ),
    Operation(
        "receiveMessages", "POST", "/v1/topics/{topic}/groups/{group}/receive",
        "Receive messages for a group. What is not acknowledged in time is delivered again, and after 16 times it is "
        "a dead letter.",
        operations.receive, bodies.GroupPath, bodies.Received, bodies.Receive, waits=True, more_statuses=_POP,
    ),
    Operation(
        "acknowledgeMessages", "POST", "/v1/topics/{topic}/groups/{group}/acknowledge",
        "Acknowledge messages: they are not delivered to the group any more.",
        operations.acknowledge, bodies.GroupPath, bodies.Settled, bodies.Handles, more_statuses=_POP,
    ),
    Operation(
        "changeVisibility", "POST", "/v1/topics/{topic}/groups/{group}/visibility",
        "Change when a message is delivered again: later for a long task, at once to give it back.",
        operations.change_visibility, bodies.GroupPath, bodies.Renewed, bodies.Visibility, more_statuses=_POP,
    ),
    Operation(
        "rejectMessages", "POST", "/v1/topics/{topic}/groups/{group}/reject",
        "Make dead letters of messages that no retry would help.",
        operations.reject, bodies.GroupPath, bodies.Settled, bodies.Handles, more_statuses=_POP,
    ),
    Operation(
        "followTopic", "GET", "/v1/topics/{topic}/events",
        "Follow a topic by server-sent events, for no group. The id of an event is a position in all queues: a "
        "connection with it as Last-Event-ID goes on there.",
        operations.tail, bodies.TopicPath, query=bodies.Tail,
    ),
    Operation(
        "deliverMessages", "GET", "/v1/topics/{topic}/groups/{group}/events",
        "Have messages delivered to a group by server-sent events. Acknowledge each by its handle.",
        operations.deliver, bodies.GroupPath, query=bodies.Deliver, event=bodies.Delivery,
        more_statuses=_POP,
    ),
    Operation(
        "readLag", "GET", "/v1/topics/{topic}/groups/{group}/lag",
        "The lag of a group in a topic, for autoscalers: KEDA's metrics-api reads `backlog`.",
        operations.lag, bodies.GroupPath, bodies.Lag,
    ),
)  # fmt: skip
