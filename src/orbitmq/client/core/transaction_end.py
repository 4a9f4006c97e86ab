"""What an application can observe when a transaction ends. Pure data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from orbitmq.client.core.hooks import MessageKind
from orbitmq.client.core.model import LocalTransactionState
from orbitmq.client.core.trace import TransactionEnded
from orbitmq.message.model import Message
from orbitmq.message.namespace import unwrapped
from orbitmq.message.properties import KEYS, MSG_REGION

DEFAULT_REGION = "DefaultRegion"

# RocketMQ's spelling, which readers of traces know.
STATE_NAMES = {state: state.name for state in LocalTransactionState} | {LocalTransactionState.UNKNOWN: "UNKNOW"}


@dataclass(frozen=True, slots=True)
class EndContext:
    """A decision that is about to be sent to a broker."""

    group: str
    message: Message
    """The half message."""
    msg_id: str
    """Its unique id."""
    transaction_id: str | None
    """The broker's id of the transaction."""
    broker_address: str
    """`host:port`."""
    state: LocalTransactionState
    """The decision."""
    from_check: bool
    """Whether it responds to a transaction check."""
    began_ms: int
    """Milliseconds since the epoch."""


EndTransactionHook: TypeAlias = Callable[[EndContext], object]
"""Called on the event loop; it must not block. What it raises is logged and changes nothing."""


def trace_of(context: EndContext) -> TransactionEnded:
    """The record of a message trace."""
    message = context.message
    return TransactionEnded(
        context.began_ms,
        message.properties.get(MSG_REGION, DEFAULT_REGION),
        unwrapped(context.group),
        unwrapped(message.topic),
        context.msg_id,
        message.tags,
        message.properties.get(KEYS),
        context.broker_address,
        int(MessageKind.COMMIT),
        context.transaction_id,
        STATE_NAMES[context.state],
        context.from_check,
    )
