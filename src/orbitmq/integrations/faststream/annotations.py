"""Annotations of arguments that handlers get from FastStream's context."""

from __future__ import annotations

from typing import Annotated

from faststream import Context, ContextRepo, Logger, NoCast

from orbitmq.integrations.faststream.broker import RocketMQBroker as Broker
from orbitmq.integrations.faststream.message import RocketMQMessage as Message

__all__ = ["ContextRepo", "Logger", "NoCast", "RocketMQBroker", "RocketMQMessage"]

RocketMQMessage = Annotated[Message, Context("message")]
"""The message that is being handled."""
RocketMQBroker = Annotated[Broker, Context("broker")]
"""The broker that the handler belongs to."""
