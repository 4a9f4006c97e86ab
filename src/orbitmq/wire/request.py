"""The fields of a row of the request table. Plain data: each field names the room that applies it.

`wire.requests` is the table. A new request is a row there, and a handler that is added to a router by that row.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import Final, Self

from orbitmq.wire.header import Header

DENY: Final = 1
ANY: Final = 2
PUB: Final = 4
SUB: Final = 8
"""RocketMQ's numbers for permissions. ANY is only ever needed: either of PUB and SUB grants it."""

BODY_SIZE_MAX: Final = 1 << 20  # bytes: locks of some 10,000 queues; a file of settings is a few KiB
HEARTBEAT_SIZE_MAX: Final = 4 << 20  # some 8,000 groups with two topics each, and 20 ms to read

UNSTATED: Final = "an account"
"""What RocketMQ 4.9.7 requires if its code has no rule: any valid signature."""


class Peer(Flag):
    """Which nodes serve a request; no flag for a code that is only reserved."""

    NAME_SERVER = auto()
    BROKER = auto()
    CLIENT = auto()


class Slave(Enum):
    """What a slave does with a request. `broker.slave.refusals` has the refusals."""

    SERVES = "serves it"
    REFUSES_SEND = "refuses it: 14, SERVICE_NOT_AVAILABLE"
    REFUSES_CHANGE = "refuses it: 1, SYSTEM_ERROR"
    REFUSES_END = "refuses it: 11, SLAVE_NOT_AVAILABLE"


class Fenced(Enum):
    """Where a broker refuses a request while it serves no messages (`broker.mastership.fence`)."""

    NOWHERE = auto()
    AT_MASTER = auto()
    EVERYWHERE = auto()


class Queue(Enum):
    """The queue of RocketMQ that a request would wait in; the broker limits the wait in each."""

    OTHER = auto()
    SEND = auto()
    PULL = auto()
    HEARTBEAT = auto()
    TRANSACTION = auto()


class Resource(Enum):
    """Where a request names the resource it needs a permission for."""

    TOPIC = "a field with a topic"
    GROUP = "a field with a group"
    SENT_TOPIC = "a field with the topic of a send"
    HEARTBEAT = "every group and subscription of a heartbeat"
    POPPED = "the group and the topic of a message that was delivered"
    ASSIGNMENT = "the group and the topic of the queues"
    BATCH_ACK = "the group and the topic of each acknowledgement"
    LOCKS = "the group and the topics of the queues to lock"
    MESSAGE = "the topic of the message at the offset in a field"
    MESSAGE_ID = "the topic of the message whose offset id is in a field"


@dataclass(frozen=True)
class Need:
    """A permission on one resource. `properties` is the field with the properties of a message that is sent."""

    resource: Resource
    field: str = ""
    permission: int = SUB
    is_optional: bool = False
    properties: str = ""


def topic(field: str = "topic", permission: int = SUB, *, is_optional: bool = False) -> Need:
    return Need(Resource.TOPIC, field, permission, is_optional)


def group(field: str = "consumerGroup", *, is_optional: bool = False) -> Need:
    return Need(Resource.GROUP, field, SUB, is_optional)


def sent(field: str, properties: str) -> Need:
    return Need(Resource.SENT_TOPIC, field, PUB, properties=properties)


@dataclass(frozen=True)
class Access:
    """Who may send a request if access control is on. `text` describes `needs`; `original` is what RocketMQ 4.9.7
    requires if that differs, and `reason` says why. `broker.access` enforces it.
    """

    text: str
    needs: tuple[Need, ...] = ()
    is_admin: bool = False
    original: str = ""
    reason: str = ""


ACCOUNT: Final = Access("an account")


def admin(original: str = "", reason: str = "") -> Access:
    return Access("an administrator", is_admin=True, original=original, reason=reason)


ADMINISTRATOR: Final = admin()


class Request(int):
    """A request code with everything declared about the request. Equal to its code."""

    text: str
    """One sentence for the reference."""
    header: type[Header]
    """Its fields; `Header` itself where it has none."""
    served_by: Peer
    has_body: bool
    body_max: int | None
    """Maximum size of a body in bytes, an unexpected one included (`net.routing`); None for the limit of a frame."""
    access: Access
    is_exact: bool
    """Whether a signed request must have no other fields than its own, nor an unexpected body; always true if an
    administrator is needed (`broker.access.shapes`).
    """
    unread_fields: frozenset[str]
    """Fields that tools of RocketMQ 5 send and orbitmq does not read."""
    slave: Slave
    fenced: Fenced
    queue: Queue
    is_send: bool
    """Whether it is refused as sends are, with the fields of a send's response."""
    is_straight: bool
    """Whether its JSON is decoded straight into `header` (`wire.header_codec`): the requests that carry the load."""
    is_vip: bool
    """Whether clients send it over the VIP channel where that is on, as Java's do."""
    always_has_fields: bool
    """Whether every response has header fields, maybe an empty set: RocketMQ makes it with a header class."""

    def __new__(
        cls,
        code: int,
        text: str = "",
        header: type[Header] = Header,
        *,
        served_by: Peer = Peer.BROKER,
        has_body: bool = False,
        body_max: int | None = BODY_SIZE_MAX,
        access: Access = ADMINISTRATOR,
        is_exact: bool = False,
        unread_fields: tuple[str, ...] = (),
        slave: Slave = Slave.SERVES,
        fenced: Fenced = Fenced.NOWHERE,
        queue: Queue = Queue.OTHER,
        is_send: bool = False,
        is_straight: bool = False,
        is_vip: bool = False,
        always_has_fields: bool = False,
    ) -> Self:
        self = super().__new__(cls, code)
        self.text = text
        self.header = header
        self.served_by = served_by
        self.has_body = has_body
        self.body_max = body_max
        self.access = access
        self.is_exact = is_exact or access.is_admin
        self.unread_fields = frozenset(unread_fields)
        self.slave = slave
        self.fenced = fenced
        self.queue = queue
        self.is_send = is_send
        self.is_straight = is_straight
        self.is_vip = is_vip
        self.always_has_fields = always_has_fields
        return self
