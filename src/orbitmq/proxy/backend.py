"""What the front needs of what is behind it: one broker in the same process, or a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from orbitmq.message.topic_types import MessageType
from orbitmq.net.remoting import Remoting
from orbitmq.net.routing import Router
from orbitmq.proxy.settings import GroupRules
from orbitmq.wire.bodies import TopicRouteData

Peer = tuple[str, int]


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The queues of a topic by broker, and the type of its messages."""

    data: TopicRouteData
    message_type: MessageType


class Accounts(Protocol):
    """The accounts of clients."""

    def secret(self, access_key: str) -> str | None:
        """The secret key of an account, None if there is none."""

    def may_send(self, access_key: str, topic: str) -> bool:
        """Whether an account may send to a topic."""


class Backend(Protocol):
    """Brokers, their topics, groups and accounts."""

    delay_max_ms: int
    """How far ahead a message may be delivered."""

    def known(self, topic: str) -> TopicRoute | None:
        """The route if it needs no wait; None if it has to be looked up."""

    async def route(self, topic: str) -> TopicRoute | None:
        """The route, None if the topic does not exist. RemotingError, BrokerError."""

    def doubt(self, topic: str) -> None:
        """A broker of the route does not respond: look the route up again at its next use."""

    async def group(self, name: str) -> GroupRules | None:
        """What the configuration of a consumer group says, None if it has none. RemotingError, BrokerError."""

    async def half_messages(self, address: str, transaction_id: str) -> bytes:
        """The half messages at a broker that have this id, and perhaps others, as they are stored, the oldest first.
        The front asks for itself: clients need no permission for the topic of all half messages. RemotingError,
        BrokerError.
        """

    def remoting(self, router: Router, peer: Peer, access_key: str | None) -> Remoting:
        """Connections of a client's own: brokers know it by them. They have the address `peer` where that can be, and
        sign with the account of `access_key`.
        """

    def drop_pop(self, remoting: Remoting, address: str, number: int) -> bool:
        """Have a broker forget a POP_MESSAGE that waits there, by its number; whether it will never respond."""

    def secret(self, access_key: str) -> str | None:
        """The secret key of an account, None if there is none."""

    def may_send(self, access_key: str | None, topic: str) -> bool:
        """Whether an account may send to a topic, as far as that is known here."""

    @property
    def has_accounts(self) -> bool:
        """Whether signatures are checked. Brokers decide who needs one, and what an account may do."""
