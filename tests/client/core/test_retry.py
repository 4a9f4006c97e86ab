"""The send loop gives up, goes on and reports as Java's does, within one budget of time."""

from __future__ import annotations

import pytest

from orbitmq.client.core.model import SendResult, SendStatus
from orbitmq.client.core.retry import RETRY_CODES, RetryRules, SendLoop
from orbitmq.errors import BrokerError, ClientError, ConnectError, OrbitMQError, RemotingTimeout, TooManyRequestsError
from orbitmq.message.model import MessageQueue
from orbitmq.wire.codes import ResponseCode


def result(status: SendStatus = SendStatus.SEND_OK) -> SendResult:
    return SendResult(status, "ID", "OFFSET", MessageQueue("T", "a", 0), 7)


def loop(attempts: int = 3, timeout_ms: int = 3000, *, other_broker: bool = False) -> SendLoop:
    return SendLoop(RetryRules(attempts, timeout_ms, other_broker_when_not_stored_safely=other_broker), started_ms=1000)


def test_one_budget_covers_all_attempts() -> None:
    sending = loop()
    assert sending.time_left(1000) == 3000
    sending.attempt("a")
    assert sending.failed(ConnectError("refused"))
    assert sending.time_left(3500) == 500
    sending.attempt("b")
    assert sending.failed(RemotingTimeout("silent"))
    assert sending.time_left(3995) == 5
    assert sending.time_left(3996) is None
    with pytest.raises(TooManyRequestsError, match=r"2 attempts and 3000 ms \(a, b\).*silent"):
        sending.outcome()


def test_the_first_attempt_may_be_short() -> None:
    assert loop(timeout_ms=1).time_left(1000) == 1
    assert loop(timeout_ms=0).time_left(1000) is None


def test_attempts_are_counted() -> None:
    sending = loop(attempts=2)
    for broker in ("a", "b"):
        assert sending.time_left(1000) == 3000
        sending.attempt(broker)
        assert sending.failed(ConnectError("refused"))
    assert sending.time_left(1000) is None
    assert sending.last_broker == "b"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConnectError("x"), 10001),
        (RemotingTimeout("x"), 10002),
        (ClientError(10003, "no master"), 10003),
        (BrokerError(14, "not now"), 14),
    ],
)
def test_the_last_error_gives_the_code(error: OrbitMQError, code: int) -> None:
    sending = loop(attempts=1)
    sending.attempt("a")
    sending.failed(error)
    with pytest.raises(ClientError, match="1 attempts") as raised:
        sending.outcome()
    assert raised.value.code == code
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, ResponseCode.MESSAGE_ILLEGAL, ResponseCode.FLOW_CONTROL])
def test_an_answer_that_another_broker_would_give_too_ends_the_send(code: int) -> None:
    sending = loop()
    sending.attempt("a")
    error = BrokerError(code, "no")
    assert not sending.failed(error)
    with pytest.raises(BrokerError) as raised:
        sending.outcome()
    assert raised.value is error


@pytest.mark.parametrize("code", sorted(RETRY_CODES))
def test_an_answer_of_one_broker_is_tried_on_another(code: int) -> None:
    assert loop().failed(BrokerError(code, "no"))


def test_a_stored_message_is_not_sent_again_unless_asked_for() -> None:
    assert loop().stored(result(SendStatus.FLUSH_DISK_TIMEOUT))
    sending = loop(other_broker=True)
    assert not sending.stored(result(SendStatus.SLAVE_NOT_AVAILABLE))
    assert sending.failed(ConnectError("x"))
    assert sending.outcome().status is SendStatus.SLAVE_NOT_AVAILABLE
    assert sending.stored(result())
    assert sending.outcome().status is SendStatus.SEND_OK


def test_an_asynchronous_send_tries_again_only_what_the_network_did() -> None:
    rules = RetryRules(3, 3000, network_only=True)
    sending = SendLoop(rules, 1000)
    sending.attempt("a")
    assert sending.failed(ConnectError("refused"))
    for final in (BrokerError(ResponseCode.SERVICE_NOT_AVAILABLE, "no"), ClientError(10003, "no master")):
        assert not SendLoop(rules, 1000).failed(final)


def test_an_asynchronous_send_that_runs_out_of_time_tells_what_went_wrong() -> None:
    sending = SendLoop(RetryRules(3, 100, network_only=True), 1000, "T")
    sending.attempt("a")
    sending.failed(RemotingTimeout("silent"))
    assert sending.time_left(1101) is None
    with pytest.raises(ClientError, match=r"message to topic T not sent in 1 attempts \(a\).*silent") as raised:
        sending.outcome()
    assert raised.value.code == 10002


def test_an_attempt_that_others_may_follow_has_a_time_of_its_own() -> None:
    sending = SendLoop(RetryRules(2, 3000, attempt_max_ms=700), 1000)
    assert sending.time_left(1000) == 700
    sending.attempt("a")
    assert sending.time_left(1700) == 2300, "the last one has all that is left"
    assert SendLoop(RetryRules(1, 3000, attempt_max_ms=700), 1000).time_left(1000) == 3000


def test_what_a_broker_refused_comes_with_its_story_and_a_remedy() -> None:
    sending = SendLoop(RetryRules(3, 3000), 1000, "T")
    sending.attempt("a")
    error = BrokerError(ResponseCode.SYSTEM_BUSY, "busy", "10.0.0.1:10911")
    sending.failed(error)
    with pytest.raises(
        BrokerError, match=r"DESC: busy FROM: 10.0.0.1:10911; message to topic T.*1 attempts \(a\); .*send fewer"
    ):
        sending.outcome()
    assert error.remark == "busy"
