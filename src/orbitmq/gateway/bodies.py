"""What requests and responses hold, as the OpenAPI document describes it. Pure; knows no HTTP and no broker.

Names are written in camel case. A field that is left out has its default; a field that is not known is refused.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from orbitmq.message.pop import MAX_MESSAGES
from orbitmq.message.properties import PROPERTIES_SIZE_MAX, RESERVED
from orbitmq.message.topics import CONSUMER_GROUP_LENGTH_MAX, TOPIC_LENGTH_MAX

BATCH_MAX: Final = 1000  # messages; their sum is limited by the broker's largest message anyway
DELAY_LEVELS_MAX: Final = 64  # RocketMQ has 18; a broker may be configured to have more
KEYS_MAX: Final = 64  # of a message: each is an entry of the broker's index
DELAY_SECONDS_MAX: Final = 40 * 365 * 86_400  # beyond any broker's limit, which it names when it refuses
INVISIBLE_SECONDS_MAX: Final = 12 * 3600  # RocketMQ's
WAIT_SECONDS_MAX: Final = 30  # less than the minute after which proxies cut connections
STREAM_SECONDS_MAX: Final = 3600  # a client of events connects again by itself, so balancers can move it
HANDLE_LENGTH_MAX: Final = 800  # broker name, nine numbers, as base64

_NAME = "^[%|a-zA-Z0-9_-]+$"
# No pattern has two ways to match a text, or the time would grow with the square of its length.
_TEXT = r"^\s*[^\s\x01\x02][^\x01\x02]*$"  # RocketMQ separates properties by these two
_FILTER = r"^(?:\||[^\S\x00-\x1f])*[^\s|\x00-\x1f][^\x00-\x1f]*$"
_BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"  # checked when it is decoded, much faster

Topic = Annotated[str, Meta(pattern=_NAME, min_length=1, max_length=TOPIC_LENGTH_MAX, description="Name of the topic.")]
Group = Annotated[
    str,
    Meta(pattern=_NAME, min_length=1, max_length=CONSUMER_GROUP_LENGTH_MAX, description="Name of the consumer group."),
]
Handle = Annotated[
    str,
    Meta(
        min_length=1, max_length=HANDLE_LENGTH_MAX, pattern="^[A-Za-z0-9_-]+$",
        description="What names one delivery of a message. Return it as it was received.",
    ),
]  # fmt: skip
Invisible = Annotated[
    float,
    Meta(
        gt=0, le=INVISIBLE_SECONDS_MAX,
        description="Seconds in which no other consumer gets the messages. Not acknowledged, they come again.",
    ),
]  # fmt: skip
Filter = Annotated[
    str,
    Meta(
        min_length=1, max_length=4096, pattern=_FILTER,
        description="`*` for all, tags as `a || b`, or a SQL92 expression if filterType is SQL92.",
    ),
]  # fmt: skip
FilterType = Annotated[
    Literal["TAG", "SQL92"], Meta(description="SQL92 needs enablePropertyFilter=true at the brokers.")
]
_ONE_BODY: dict[str, Any] = {"oneOf": [{"required": ["body"]}, {"required": ["bodyBase64"]}]}
_NOT_RESERVED = {"propertyNames": {"pattern": _TEXT, "not": {"enum": sorted(RESERVED)}}}


class Shape(Struct, rename="camel", forbid_unknown_fields=True):
    """Base of what callers send."""


class ResponseShape(Struct, rename="camel"):
    """Base of what the gateway sends."""


# --------------------------------------------------------------------------------------------------------------- paths


class TopicPath(Shape):
    """A topic."""

    topic: Topic


class GroupPath(Shape):
    """A consumer group and the topic that it consumes."""

    topic: Topic
    group: Group


class Nothing(Shape):
    """No parameters."""


# ---------------------------------------------------------------------------------------------------------------- sends


class PlainMessage(Shape):
    """A message of a batch. It has either `body` or `bodyBase64`."""

    body: Annotated[str, Meta(min_length=1, description="The body as text, stored as UTF-8.")] | UnsetType = UNSET
    body_base64: (
        Annotated[
            str,
            Meta(
                min_length=4,
                description="The body as base64.",
                extra_json_schema={"contentEncoding": "base64", "pattern": _BASE64},
            ),
        ]
        | UnsetType
    ) = UNSET
    tag: Annotated[str, Meta(min_length=1, max_length=255, pattern=_TEXT)] | UnsetType = UNSET
    keys: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[^\s\x01\x02]+$")]],
        Meta(max_length=KEYS_MAX, description="By these the message can be found. No key holds a space."),
    ] = field(default_factory=list)
    properties: Annotated[
        dict[str, Annotated[str, Meta(min_length=1, pattern=_TEXT)]],
        Meta(
            description=f"Your own. All together, with tag and keys, take {PROPERTIES_SIZE_MAX} bytes at most.",
            extra_json_schema=_NOT_RESERVED,
        ),
    ] = field(default_factory=dict)


class NewMessage(PlainMessage):
    """A message to send. It has either `body` or `bodyBase64`, and at most one of the three delays."""

    delay_seconds: (
        Annotated[
            float,
            Meta(ge=0, le=DELAY_SECONDS_MAX, description="Deliver so much later. Not for brokers of RocketMQ 4.9."),
        ]
        | UnsetType
    ) = UNSET
    deliver_at: (
        Annotated[datetime, Meta(tz=True, description="Deliver at this time. Not for brokers of RocketMQ 4.9.")]
        | UnsetType
    ) = UNSET
    delay_level: (
        Annotated[int, Meta(ge=1, le=DELAY_LEVELS_MAX, description="Deliver by a delay level of the broker.")]
        | UnsetType
    ) = UNSET
    sharding_key: (
        Annotated[
            str,
            Meta(min_length=1, max_length=255, description="Messages with the same key share a queue, in their order."),
        ]
        | UnsetType
    ) = UNSET


OneMessage = Annotated[NewMessage, Meta(extra_json_schema=_ONE_BODY)]
OneOfBatch = Annotated[PlainMessage, Meta(extra_json_schema=_ONE_BODY)]


class NewBatch(Shape):
    """Messages that are stored in one queue, all or none. None is delayed, and a sharding key is that of all."""

    messages: Annotated[list[OneOfBatch], Meta(min_length=1, max_length=BATCH_MAX)]
    sharding_key: Annotated[str, Meta(min_length=1, max_length=255)] | UnsetType = UNSET


class Place(ResponseShape):
    """Where a message is stored."""

    broker_name: str
    queue_id: int
    queue_offset: int


class SentMessage(ResponseShape, omit_defaults=True):
    """A message that a broker has stored."""

    message_id: str
    """The unique id that the gateway has assigned."""
    offset_message_id: str
    status: Literal["SEND_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"]
    """Other than SEND_OK: stored, but not confirmed on disk or by a slave in time."""
    place: Place
    recall_handle: str | None = None


class SentBatch(ResponseShape):
    """A batch that a broker has stored."""

    messages: list[SentMessage]


# ------------------------------------------------------------------------------------------------------------- receives


class Receive(Shape):
    """What to receive."""

    max_messages: Annotated[int, Meta(ge=1, le=MAX_MESSAGES)] = 10
    invisible_seconds: Invisible = 30.0
    wait_seconds: Annotated[
        float, Meta(ge=0, le=WAIT_SECONDS_MAX, description="How long to wait if there are no messages.")
    ] = 5.0
    filter: Filter = "*"
    filter_type: FilterType = "TAG"
    start_from: Annotated[
        Literal["first", "last"], Meta(description="Where a group begins that has consumed nothing yet.")
    ] = "first"


class Message(ResponseShape, omit_defaults=True):
    """A message as it was sent. `body` is its text if it is UTF-8, else `bodyBase64` has its bytes."""

    message_id: str
    topic: str
    place: Place
    body: str | None = None
    body_base64: str | None = None
    tag: str | None = None
    keys: list[str] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    born_at: str | None = None
    """By the sender's clock."""
    stored_at: str | None = None
    """By the broker's clock."""


class Delivery(Message, omit_defaults=True, kw_only=True):
    """A message that is delivered to a group until it is acknowledged."""

    handle: str
    attempt: int
    """1 for the first delivery of the message to the group."""


class Received(ResponseShape):
    """Messages; none if there were none in time."""

    messages: list[Delivery]


class Handles(Shape):
    """Deliveries of messages."""

    handles: Annotated[list[Handle], Meta(min_length=1, max_length=MAX_MESSAGES)]


class Problem(ResponseShape, omit_defaults=True):
    """Why a request failed: RFC 9457."""

    type: str
    """A name that stays, `urn:orbitmq:problem:…`."""
    title: str
    status: int
    detail: str
    """What is wrong, and with which name or value."""
    hint: str | None = None
    """What to do about it."""
    retryable: bool = False
    """Whether the same request may succeed later."""


class Unsettled(ResponseShape):
    """A delivery with which a request has failed."""

    handle: str
    problem: Problem


class Settled(ResponseShape):
    """How many deliveries a request has settled. The others can be tried again."""

    settled: int
    failures: list[Unsettled]


class Visibility(Shape):
    """When a delivery ends."""

    handle: Handle
    invisible_seconds: Annotated[
        float, Meta(ge=0, le=INVISIBLE_SECONDS_MAX, description="Seconds from now; 0 gives the message back.")
    ]


class Renewed(ResponseShape):
    """The handle that takes the place of the old one."""

    handle: str


# -------------------------------------------------------------------------------------------------------------- streams


class StreamSeconds(Shape):
    """How long a stream lasts."""

    seconds: Annotated[
        float, Meta(gt=0, le=STREAM_SECONDS_MAX, description="The stream ends after so many seconds; connect again.")
    ] = float(STREAM_SECONDS_MAX)


class Tail(StreamSeconds):
    """What of a topic to follow."""

    start: Annotated[
        Literal["end", "begin"], Meta(description="Where to begin in each queue without a Last-Event-ID.")
    ] = "end"
    tags: Annotated[str, Meta(min_length=1, max_length=4096, pattern=_FILTER)] = "*"
    reader: Annotated[
        Group, Meta(description="The group in whose name the topic is read. Nothing is committed for it.")
    ] = "TOOLS_CONSUMER"


class Deliver(StreamSeconds):
    """What to deliver to a group."""

    prefetch: Annotated[
        int, Meta(ge=1, le=MAX_MESSAGES, description="Messages that may be delivered and not acknowledged yet.")
    ] = MAX_MESSAGES
    invisible_seconds: Invisible = 30.0
    filter: Filter = "*"
    filter_type: FilterType = "TAG"
    start_from: Literal["first", "last"] = "first"


# ------------------------------------------------------------------------------------------------------------------ lag


class LagInQueue(ResponseShape):
    """The lag in one queue."""

    broker_name: str
    queue_id: int
    is_retry: bool
    """Whether it holds messages that are delivered again."""
    lag: int


class Lag(ResponseShape):
    """How far a group is behind in a topic."""

    topic: str
    group: str
    lag: int
    """Messages from the group's offsets on, those to be delivered again included."""
    oldest_seconds: float
    """Age of the oldest of them; 0 without any."""
    in_flight: int | None
    """Messages delivered and not acknowledged; null if the brokers do not say, as RocketMQ's do not."""
    backlog: int
    """Both together: consumers are needed while it is not 0."""
    queues: list[LagInQueue]


class Health(ResponseShape):
    """Whether the gateway serves."""

    status: Literal["ok"]
