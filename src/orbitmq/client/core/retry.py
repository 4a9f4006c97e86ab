"""How often and how long a send is attempted: Java's send loops as a state machine. Pure.

One time limit covers all attempts. The caller reads the time left, makes an attempt, and reports its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from orbitmq.client.core.model import SendResult, SendStatus
from orbitmq.errors import (
    BrokerError,
    ClientError,
    ConnectError,
    OrbitMQError,
    RemotingError,
    RemotingTimeout,
    TooManyRequestsError,
)
from orbitmq.wire.codes import ResponseCode

RETRY_CODES: frozenset[int] = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)
"""Response codes after which another broker may still accept the message. SYSTEM_BUSY is not among them: it asks for
less load.
"""

ATTEMPT_MIN_MS = 5  # an attempt with less time could not get a response

CONNECT_FAILED, TIMED_OUT, BROKER_MISSING, NO_NAME_SERVER, NO_ROUTE = 10001, 10002, 10003, 10004, 10005


@dataclass(frozen=True, slots=True)
class RetryRules:
    """`attempts` in all, within `timeout_ms`."""

    attempts: int
    timeout_ms: int
    codes: AbstractSet[int] = RETRY_CODES
    other_broker_when_not_stored_safely: bool = False
    attempt_max_ms: int = -1
    """Time limit of an attempt that another one may follow; -1 gives each all the time left."""
    network_only: bool = False
    """Java's rules for asynchronous sends: only network errors are retried, also at a chosen queue."""

    def limit(self, left_ms: int, more: int) -> int:
        """Milliseconds for an attempt when so many are left, and so many attempts."""
        return min(left_ms, self.attempt_max_ms) if more > 1 and self.attempt_max_ms > 0 else left_ms

    def with_timeout(self, timeout_ms: int) -> RetryRules:
        """The same within another time."""
        return replace(self, timeout_ms=timeout_ms)


@dataclass(slots=True)
class SendLoop:
    """One send from its first attempt to its outcome."""

    rules: RetryRules
    started_ms: int
    topic: str = ""
    brokers: list[str] = field(default_factory=list)
    """The broker of each attempt so far."""
    doubted: str | None = None
    """Where the last attempt went, if the broker there may not be the master any more; "" if there was no master."""
    _unsafe: SendResult | None = None  # stored, but flush or replication was not confirmed
    _error: OrbitMQError | None = None
    _final: bool = False  # an error that another attempt cannot change
    _out_of_time: bool = False

    @property
    def last_broker(self) -> str | None:
        """The broker to avoid next."""
        return self.brokers[-1] if self.brokers else None

    def time_left(self, now_ms: int) -> int | None:
        """Milliseconds for the next attempt, None when there shall be none."""
        left = self.rules.timeout_ms - (now_ms - self.started_ms)
        self._out_of_time = left < (ATTEMPT_MIN_MS if self.brokers else 1)
        more = self.rules.attempts - len(self.brokers)
        if self._out_of_time or more <= 0:
            return None
        return self.rules.limit(left, more)

    def wait_ms(self, now_ms: int) -> float:
        """How long the next attempt may wait for another master: each that is left gets the same time. 0 if none is."""
        more = self.rules.attempts - len(self.brokers)
        left = self.rules.timeout_ms - (now_ms - self.started_ms)
        return left / (more + 1) if more > 0 else 0.0

    def attempt(self, broker: str) -> None:
        """An attempt at `broker` begins."""
        self.brokers.append(broker)

    def stored(self, result: SendResult) -> bool:
        """The broker stored the message. True: this is the outcome; False: try another broker."""
        if result.status is SendStatus.SEND_OK or not self.rules.other_broker_when_not_stored_safely:
            self._unsafe = result
            return True
        self._unsafe = result
        return False

    def failed(self, error: OrbitMQError) -> bool:
        """An attempt failed. True: another one may help."""
        self._error = error
        if self.rules.network_only:
            self._final = not isinstance(error, RemotingError)
        else:
            elsewhere = isinstance(error, (RemotingError, ClientError))
            self._final = not elsewhere and not (isinstance(error, BrokerError) and error.code in self.rules.codes)
        return not self._final

    def outcome(self) -> SendResult:
        """The result, or the error that says what failed, where and after how many attempts."""
        if self._unsafe is not None:
            return self._unsafe
        if self._final and self._error is not None:
            if isinstance(self._error, BrokerError):
                self._error.story = self._story(cause=False)
            raise self._error
        if self._out_of_time and not (self.rules.network_only and self._error):
            raise TooManyRequestsError(self._story(f" and {self.rules.timeout_ms} ms")) from self._error
        raise ClientError(_code_of(self._error), self._story()) from self._error

    def _story(self, time: str = "", *, cause: bool = True) -> str:
        where = ", ".join(self.brokers) or "no broker"
        what = f"message to topic {self.topic}" if self.topic else "message"
        last = f"; last error: {self._error}" if cause and self._error else ""
        help_ = remedy(self._error)
        return f"{what} not sent in {len(self.brokers)} attempts{time} ({where}){last}{f'; {help_}' if help_ else ''}"


def _code_of(error: OrbitMQError | None) -> int:
    """The number Java gives the failure of a send."""
    if isinstance(error, BrokerError):
        return error.code
    if isinstance(error, ConnectError):
        return CONNECT_FAILED
    if isinstance(error, RemotingTimeout):
        return TIMED_OUT
    return BROKER_MISSING


_REMEDIES: Mapping[int, str] = {
    ResponseCode.SYSTEM_BUSY: "the broker is overloaded: send fewer messages at a time, or try again later",
    ResponseCode.FLOW_CONTROL: "the broker limits this client: send fewer messages at a time, or try again later",
    ResponseCode.MESSAGE_ILLEGAL: "change the message: every broker would reject it",
    ResponseCode.NO_PERMISSION: "make the topic and its broker writable, or send to another topic",
    ResponseCode.TOPIC_NOT_EXIST: "create the topic, or enable autoCreateTopicEnable on the brokers",
    ResponseCode.SERVICE_NOT_AVAILABLE: "check the broker: it is shutting down, it is a slave, or its disk is full",
    ResponseCode.SYSTEM_ERROR: "check the log of the broker",
}
_CONNECT_REMEDY = (
    "check that the broker is running and that the address it registers (brokerIP1) can be reached from here"
)
_TIMEOUT_REMEDY = "increase send_timeout_ms, or check the load of the broker and the network"


def remedy(error: OrbitMQError | None) -> str:
    """A hint for the user about a failed send, in a few words; empty if there is none."""
    if isinstance(error, BrokerError):
        return _REMEDIES.get(error.code, "")
    if isinstance(error, ConnectError):
        return _CONNECT_REMEDY
    return _TIMEOUT_REMEDY if isinstance(error, RemotingTimeout) else ""
