"""What an application may look at around every send and every delivery. Pure data and protocols.

A hook sees; it does not decide, but for the one that forbids. What a hook raises is logged and does no harm.
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
from orbitmq.client.core.outgoing_message import Outgoing
from orbitmq.message.flags import TRANSACTION_PREPARED
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.message.properties import DELAY, NAME_END, PAIR_END

_log = logging.getLogger(__name__)

_DELAYED = f"{PAIR_END}{DELAY}{NAME_END}"

H = TypeVar("H")
C = TypeVar("C")


class MessageKind(IntEnum):
    """What sort of message is sent; numbers as in RocketMQ's traces."""

    NORMAL = 0
    """Nothing special, or a batch."""
    HALF = 1
    """The first half of a transaction."""
    COMMIT = 2
    """The decision of one; in traces only."""
    DELAYED = 3
    """It has a delay level."""


@dataclass(slots=True)
class SendContext:
    """One attempt to send a message: a retry is another one. `result` or `error` is there afterwards."""

    group: str
    message: Outgoing
    """As it goes out: its body may be compressed, `original_size` tells what it was."""
    queue: MessageQueue
    """Where this attempt goes."""
    broker_address: str
    """`host:port`."""
    kind: MessageKind
    """What sort of message it is."""
    oneway: bool = False
    """Whether nobody waits for an answer."""
    began_ms: int = 0
    """Milliseconds since the epoch."""
    cost_ms: int = 0
    """What the attempt took, in milliseconds; there afterwards."""
    result: SendResult | None = None
    """None after a oneway send, of which nothing is known."""
    error: BaseException | None = None


@dataclass(slots=True)
class ConsumeContext:
    """One call of a listener. `status`, or the `error` it raised, is there afterwards."""

    group: str
    queue: MessageQueue
    """Where the messages came from."""
    messages: Sequence[MessageExt]
    """What the listener gets."""
    listener: ConcurrentContext | OrderlyContext
    """Its own context, with what it set there."""
    began_ms: int = 0
    """Milliseconds since the epoch."""
    cost_ms: int = 0
    """What the call took, in milliseconds; there afterwards."""
    status: ConsumeConcurrentlyStatus | ConsumeOrderlyStatus | None = None
    error: BaseException | None = None


def message_kind(message: Outgoing) -> MessageKind:
    """What sort of message this is."""
    if message.sys_flag & TRANSACTION_PREPARED:
        return MessageKind.HALF
    delayed = not message.batch and _DELAYED in f"{PAIR_END}{message.properties}"
    return MessageKind.DELAYED if delayed else MessageKind.NORMAL


@dataclass(frozen=True, slots=True)
class ReceiveContext:
    """One pull that brought messages."""

    group: str
    queue: MessageQueue
    """Where they came from."""
    messages: Sequence[MessageExt]
    """In the order of the queue."""
    began_ms: int
    """When the broker was asked; milliseconds since the epoch."""
    cost_ms: int
    """From the question to the answer: mostly the time the broker had nothing."""


@dataclass(frozen=True, slots=True)
class FilterContext:
    """What one pull brought, before anybody gets it."""

    group: str
    queue: MessageQueue
    """Where they came from."""
    messages: list[MessageExt]
    """Those whose tag is subscribed. A hook takes out of this list what the group shall not get; it counts as done."""


FilterHook = Callable[[FilterContext], object]
"""Called on the event loop for every pull that brought messages, before those who only look; it must not wait."""

ReceiveHook = Callable[[ReceiveContext], object]
"""Called on the event loop for every pull that brought messages; it must not wait."""


class SendHook(Protocol):
    """Called on the event loop around every attempt; it must not wait."""

    def before(self, context: SendContext, /) -> None:
        """An attempt is about to be made. What this raises is logged and changes nothing."""

    def after(self, context: SendContext, /) -> None:
        """It succeeded (`result`) or failed (`error`). What this raises is logged and changes nothing."""


class ConsumeHook(Protocol):
    """Called around every call of the listener, in the listener's thread, or on the loop for a coroutine."""

    def before(self, context: ConsumeContext, /) -> None:
        """The listener is about to be called. What this raises is logged and changes nothing."""

    def after(self, context: ConsumeContext, /) -> None:
        """It gave a `status` or raised the `error`. What this raises is logged and changes nothing."""


ForbiddenHook = Callable[[SendContext], object]
"""Raises what the sender shall get when a message must not be sent; no other attempt is made then."""


def each(hooks: Sequence[H], call: Callable[[H, C], object], context: C) -> None:
    """Call every hook; what one raises keeps the others from nothing."""
    for hook in hooks:
        try:
            call(hook, context)
        except Exception:  # the application's code
            _log.exception("event=hook_failed hook=%s", type(hook).__name__)
