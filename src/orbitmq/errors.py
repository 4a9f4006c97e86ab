"""Every error that orbitmq raises, in one tree. This module imports nothing of orbitmq.

The class says who is at fault. `response_code` is the remoting response code with which a broker or name server
responds when the error ends a request.

    OrbitMQError
    +-- ConfigurationError          the operator: an option or its value
    +-- MessageError                the caller: a message that cannot be stored or sent
    |   +-- MessageIllegal          too large, bad topic, bad properties
    |   +-- ExpressionIllegal       a subscription's expression that has no meaning; the text says where
    |   +-- SchemaIllegal           a schema that is not valid, or cannot be kept
    |   |   +-- SchemaIncompatible  one that may not follow the versions before it
    |   +-- WrongBody               a body that is not what its schema says
    |   +-- InvalidStateError       the caller used a client before start or after shutdown
    |   +-- ClientError             a client call that failed for a reason of its own (`code` 10001 and up)
    |       +-- RequestTimeout      request-reply without a reply in time
    +-- PeerError                   the peer: bytes or behaviour outside the protocol
    |   +-- FrameError              a frame that cannot be read from the stream; the connection closes
    |   +-- HeaderError             a header that cannot be decoded
    |   +-- BodyError               a body that is not what its request code promises
    |   |   +-- BodyTooLarge        one that is larger than its limit
    |   +-- UnitError               a stored message unit that cannot be decoded
    |   +-- Http2Error              what HTTP/2 does not allow; the connection closes
    |   |   +-- HpackError          headers that cannot be decompressed
    |   +-- GrpcError               a call that cannot go on; its status says why
    |   +-- BrokerError             the peer responded with a code that means failure
    +-- HookFailed                  the application: its hook failed a request
    +-- RemotingError               the network
    |   +-- ConnectError            no connection to the address
    |   |   +-- NoNameServer        none of the name servers can be reached
    |   |   +-- NotNameServer       a peer that is no name server
    |   |   +-- SchemasAway         nothing that keeps schemas can be reached; what needs one is tried again later
    |   |   +-- BrokerAway          a broker that was registered recently and is no more; no request is sent
    |   +-- SendRequestError        the connection broke before the request was written
    |   +-- RemotingTimeout         no response in time (also a TimeoutError)
    |   +-- TooManyRequestsError    a limit of the client is reached, or no time is left to send
    +-- StoreError                  the disk
    |   +-- StoreLocked             another process owns the directory
    |   +-- StoreDamaged            files that recovery must not repair on its own
    |   +-- StorePoisoned           a flush failed; nothing is accepted until restart
    |   +-- StoreStuck              the disk does not respond, so the store cannot be closed
    +-- AgreementError              the store where replicas agree on their master does not respond, or refuses
    +-- RequestRejected             a handler refuses a request: response code and remark
    +-- StatusError                 a request of a RocketMQ 5 client is refused: status code and text
    +-- SourceError                 a Spark read or write that fails; its text begins with an `ORBITMQ_` name
    +-- AdminError                  an administrative query or change that failed; with a hint
    |   +-- BadArgument             an argument is not valid; no request was sent
    |   +-- NotFound                the topic, group, broker or message does not exist
    |   +-- Conflict                the current state forbids it: it exists already, a group is online
    +-- LakeError                   archived messages that cannot be written, published or found
        +-- LakeConflict            two jobs changed the lake at the same time; run the second one again
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar


class OrbitMQError(Exception):
    """Root of the tree. `response_code` is the code of the response when a server knows no better one.

    Errors can be copied and pickled, so they pass between processes with their text and their fields.
    """

    response_code: ClassVar[int] = 1
    stored_locally: bool = False
    """Whether the message of a failed send is in the producer's outbox, which sends it again."""
    translate: ClassVar[Callable[[str], str] | None] = None
    """The text in the language of the user, for a note in tracebacks: `str` of an error is what programs compare."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        if OrbitMQError.translate is not None:
            text = Exception.__str__(self)
            note = OrbitMQError.translate(text)
            if note != text:
                self.add_note(note)

    def __reduce__(self) -> tuple[Callable[..., OrbitMQError], tuple[object, ...], dict[str, object]]:
        """Create the copy without `__init__`, whose parameters are not the `args` that Python would call it with."""
        return _made_anew, (type(self), *self.args), self.__dict__


class ConfigurationError(OrbitMQError):
    """An option is unknown where that matters, or its value is not allowed; the text names both."""


class MessageError(OrbitMQError):
    """The caller's message or call is at fault."""


class MessageIllegal(MessageError):
    """The message breaks a limit or a naming rule; the text names the limit."""

    response_code = 13


class ExpressionIllegal(MessageError):
    """A subscription expression that cannot be compiled; the text names the place."""

    response_code = 23


class SchemaIllegal(MessageError):
    """A schema that is not valid, or that cannot be kept; the text says why."""


class SchemaIncompatible(SchemaIllegal):
    """A schema may not follow the versions before it; the text names the fields and the rules."""


class WrongBody(MessageError):
    """A body that is not what its schema says; the text names the field if that is known."""


class InvalidStateError(MessageError):
    """The client is not in a state that allows the call (before start, after shutdown)."""


class ClientError(MessageError):
    """A client call failed. `code` follows Apache RocketMQ: 10001 connect, 10002 timeout, 10003 broker missing or
    client fault, 10004 no name server, 10005 no route, 10006 request timeout, 10007 reply cannot be created; 13 for an
    illegal message.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"CODE: {code} DESC: {message}")
        self.code = code
        """10001 and up, see above, or the response code of the last attempt to which a broker responded."""
        self.message = message
        """What failed, where, after how many attempts."""


class RequestTimeout(ClientError):
    """No reply arrived for a request-reply call within its time."""

    def __init__(self, message: str) -> None:
        super().__init__(10006, message)


class PeerError(OrbitMQError):
    """The peer violated the protocol, or refused the request."""


class FrameError(PeerError):
    """A frame is oversized or malformed; the rest of the stream cannot be read."""


class HeaderError(PeerError):
    """A command header, or one of its fields, cannot be decoded."""


class BodyError(PeerError):
    """A body does not have the form that its request code requires."""


class BodyTooLarge(BodyError):
    """A body that would exceed the limit of a request to the store; the text names the limit."""


class UnitError(PeerError):
    """A stored message unit is truncated or its lengths disagree."""


class Http2Error(PeerError):
    """Bytes or behaviour that HTTP/2, or a limit, does not allow. `code` is the error code of RFC 9113, section 7."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class HpackError(Http2Error):
    """A header block that cannot be decompressed; nor can any that follows."""

    def __init__(self, text: str) -> None:
        super().__init__(text, 9)  # COMPRESSION_ERROR


class GrpcError(PeerError):
    """A gRPC call that cannot go on: `status` is the status code with which it ends."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class BrokerError(PeerError):
    """The peer responded with a code that means failure."""

    def __init__(self, code: int, remark: str | None, address: str = "") -> None:
        where = f" FROM: {address}" if address else ""
        super().__init__(f"CODE: {code} DESC: {remark or ''}{where}")
        self.code = code
        """The response code, as in `orbitmq.wire.codes.ResponseCode`."""
        self.remark = remark or ""
        """The remark of the response; may be empty."""
        self.address = address
        """`host:port` of the peer, empty when unknown."""
        self.story = ""
        """What was tried and what may help, if more is known than the response says."""

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}; {self.story}" if self.story else text


class HookFailed(OrbitMQError):
    """A hook around requests raised, so the request failed; `__cause__` is what it raised."""


class RemotingError(OrbitMQError):
    """The network is at fault."""


class ConnectError(RemotingError):
    """No connection to the address could be made."""


class NoNameServer(ConnectError):
    """None of the name servers can be reached; the text names each with its reason."""


class SchemasAway(ConnectError):
    """Nothing that keeps schemas responds as it should, be it name servers or a registry, so nothing is known of a
    schema. Messages that need it are delivered again, which does not count as a failure of theirs.
    """


class NotNameServer(ConnectError):
    """A peer that serves no requests for name servers: the port of a broker, for example."""


class BrokerAway(ConnectError):
    """A broker that was registered recently and that no name server knows any more. No request is sent: its address may
    belong to another process by now.
    """

    def __init__(self, text: str, hint: str) -> None:
        super().__init__(text)
        self.hint = hint
        """What to do about it."""


class SendRequestError(RemotingError):
    """The connection broke before or while the request was sent."""


class RemotingTimeout(RemotingError, TimeoutError):
    """The peer did not respond in time."""


class TooManyRequestsError(RemotingError):
    """A limit of the client is reached, or the call has no time left to be sent."""


class StoreError(OrbitMQError):
    """The disk, or the files on it, are at fault."""

    response_code = 14


class StoreLocked(StoreError):
    """Another process owns the store directory."""


class StoreDamaged(StoreError):
    """The files are in a state that recovery must not repair on its own."""


class StorePoisoned(StoreError):
    """A flush failed: what reached the disk is unknown, so no write is accepted until restart."""


class StoreStuck(StoreError):
    """The disk did not finish the writes of a stop in time. Threads still wait for it; you can only end the process."""


class LogsDiffer(StoreError):
    """A slave's log is not a prefix of its master's; only the operator may decide to delete any of it."""


class AgreementError(OrbitMQError):
    """What was asked for may have happened, or may happen yet."""


class RequestRejected(OrbitMQError):
    """A handler refuses a request: `code` and `remark` become the response."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class StatusError(OrbitMQError):
    """A request of a RocketMQ 5 client is refused: `code` and `text` become the status of its response.

    The text names the culprit and the remedy; it reaches the application.
    """

    def __init__(self, code: int, text: str, delay_s: float = 0.0) -> None:
        super().__init__(text)
        self.code = code
        """A number of `wire.v2.enums.Code`."""
        self.text = text
        self.delay_s = delay_s
        """Seconds by which the response is delayed."""


class SourceError(OrbitMQError):
    """A Spark read or write failed.

    Spark passes only the text of an error on, so the text begins with a `name` that you can match:
    `ORBITMQ_BAD_OPTION`, `ORBITMQ_BAD_SCHEMA`, `ORBITMQ_WORKER_PYTHON`, `ORBITMQ_SPARK_VERSION`,
    `ORBITMQ_NAMESERVER_UNAVAILABLE`, `ORBITMQ_BROKER_UNAVAILABLE`, `ORBITMQ_BROKER_REFUSED`, `ORBITMQ_NO_PERMISSION`,
    `ORBITMQ_GROUP_MISSING`, `ORBITMQ_TOPIC_NOT_FOUND`, `ORBITMQ_DATA_LOSS`, `ORBITMQ_CORRUPT_RECORD`,
    `ORBITMQ_BAD_CHECKPOINT`, `ORBITMQ_STORE_UNREADABLE`, `ORBITMQ_LAKE_UNREADABLE`, `ORBITMQ_BAD_BODY`, of the
    archive `ORBITMQ_BAD_MODE`, and of writes `ORBITMQ_BAD_ROW`, `ORBITMQ_OVERSIZE`, `ORBITMQ_NOT_SAFE`,
    `ORBITMQ_REPLAY_TOO_LARGE`.
    """

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name
        self.text = text


class AdminError(OrbitMQError):
    """An administrative query or change failed."""

    def __init__(self, text: str, hint: str | None = None) -> None:
        super().__init__(text)
        self.hint = hint
        """What to do about it: usually the next command."""


class BadArgument(AdminError):
    """An argument is not valid; no request was sent."""


class NotFound(AdminError):
    """The topic, group, broker or message does not exist."""


class Conflict(AdminError):
    """The current state forbids the change; the text names what stands in the way."""


class BadField(AdminError):
    """A field of a form, or of the address of a page, is not valid."""


class Forbidden(AdminError):
    """The user has no permission for this."""


class LakeError(OrbitMQError):
    """The location, the files or the log of the lake are not valid; the text names the file and the remedy."""


class LakeConflict(LakeError):
    """Another job has published a change since this one started; nothing was published. Run it again."""


def cause_of(error: BaseException) -> BaseException | None:
    """The error from which this one was raised. Compiled modules set no `__cause__`, but `__context__`."""
    return error.__cause__ or error.__context__


def _made_anew(kind: type[OrbitMQError], *args: object) -> OrbitMQError:
    made = kind.__new__(kind, *args)
    made.args = args  # which an OSError leaves to `__init__`
    return made
