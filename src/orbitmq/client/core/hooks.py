"""What an application can observe around every send and every delivery. Pure data and protocols.

Hooks observe; only a `ForbiddenHook` and a `FilterHook` change what happens. What a hook raises is logged and changes
nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, TypeVar

from orbitmq.client.core.model import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    OrderlyContext,
    SendResult,
)
from orbitmq.client.core.outgoing import Outgoing
from orbitmq.message.flags import TRANSACTION_PREPARED
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.message.properties import DELAY, NAME_END, PAIR_END

_log = logging.getLogger(__name__)

_DELAYED = f"{PAIR_END}{DELAY}{NAME_END}"

H = TypeVar("H")
C = TypeVar("C")


class MessageKind(IntEnum):
    """The kind of a message; the numbers are those of RocketMQ's traces."""

    NORMAL = 0
    """A normal message, or a batch."""
    HALF = 1
    """The half message of a transaction."""
    COMMIT = 2
    """The decision of a transaction; in traces only."""
    DELAYED = 3
    """It has a delay level."""


@dataclass(slots=True)
class SendContext:
    """One attempt to send a message; a retry is another attempt. `result` or `error` is set afterwards."""

    group: str
    message: Outgoing
    """As it is sent: its body may be compressed, `original_size` is the size before."""
    queue: MessageQueue
    """The queue of this attempt."""
    broker_address: str
    """`host:port`."""
    kind: MessageKind
    """The kind of the message."""
    oneway: bool = False
    """Whether there is no response."""
    began_ms: int = 0
    """Milliseconds since the epoch."""
    cost_ms: int = 0
    """How long the attempt took, in milliseconds; set afterwards."""
    result: SendResult | None = None
    """None after a oneway send."""
    error: BaseException | None = None


@dataclass(slots=True)
class ConsumeContext:
    """One call of a listener. Its `status`, or the `error` that it raised, is set afterwards."""

    group: str
    queue: MessageQueue
    """Where the messages came from."""
    messages: Sequence[MessageExt]
    """The messages passed to the listener."""
    listener: ConcurrentContext | OrderlyContext
    """The listener's own context, with the values that it set."""
    began_ms: int = 0
    """Milliseconds since the epoch."""
    cost_ms: int = 0
    """How long the call took, in milliseconds; set afterwards."""
    status: ConsumeConcurrentlyStatus | ConsumeOrderlyStatus | None = None
    error: BaseException | None = None


def message_kind(message: Outgoing) -> MessageKind:
    """The kind of this message."""
    if message.sys_flag & TRANSACTION_PREPARED:
        return MessageKind.HALF
    delayed = not message.batch and _DELAYED in f"{PAIR_END}{message.properties}"
    return MessageKind.DELAYED if delayed else MessageKind.NORMAL


@dataclass(frozen=True, slots=True)
class ReceiveContext:
    """One pull that returned messages."""

    group: str
    queue: MessageQueue
    """Where they came from."""
    messages: Sequence[MessageExt]
    """In the order of the queue."""
    began_ms: int
    """When the request was sent; milliseconds since the epoch."""
    cost_ms: int
    """Milliseconds from request to response, including the time that the broker held the pull."""


@dataclass(frozen=True, slots=True)
class FilterContext:
    """The messages of one pull, before they are delivered."""

    group: str
    queue: MessageQueue
    """Where they came from."""
    messages: list[MessageExt]
    """Those whose tag is subscribed. A hook removes from this list what must not be delivered to the group; it counts
    as consumed.
    """


FilterHook = Callable[[FilterContext], object]
"""Called on the event loop for every pull that returned messages, before the receive hooks; it must not block."""

ReceiveHook = Callable[[ReceiveContext], object]
"""Called on the event loop for every pull that returned messages; it must not block."""


class SendHook(Protocol):
    """Called on the event loop around every attempt; it must not block."""

    def before(self, context: SendContext, /) -> None:
        """Called before an attempt. What this raises is logged and changes nothing."""

    def after(self, context: SendContext, /) -> None:
        """Called after the attempt succeeded (`result`) or failed (`error`). What this raises is logged and changes
        nothing.
        """


class ConsumeHook(Protocol):
    """Called around every call of the listener, in the listener's thread, or on the event loop for a coroutine."""

    def before(self, context: ConsumeContext, /) -> None:
        """Called before the listener. What this raises is logged and changes nothing."""

    def after(self, context: ConsumeContext, /) -> None:
        """Called after the listener returned a `status` or raised the `error`. What this raises is logged and changes
        nothing.
        """


ForbiddenHook = Callable[[SendContext], object]
"""Raises an error when a message must not be sent; the sender gets that error, and no other attempt is made."""


def call_before(hook: SendHook, context: SendContext) -> object:
    """In this module, which is not compiled: a hook may return what it likes."""
    return hook.before(context)  # type: ignore[func-returns-value]


def call_after(hook: SendHook, context: SendContext) -> object:
    return hook.after(context)  # type: ignore[func-returns-value]


def each(hooks: Sequence[H], call: Callable[[H, C], object], context: C) -> None:
    """Call every hook; what one raises is logged and does not affect the others."""
    for hook in hooks:
        try:
            call(hook, context)
        except Exception:  # the application's code
            _log.exception("event=hook_failed hook=%s", type(hook).__name__)
