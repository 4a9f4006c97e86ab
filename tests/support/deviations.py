"""Where orbitmq answers otherwise than RocketMQ on purpose, and why: for all tests that replay captures to a broker."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.wire.codes import ResponseCode, SerializeType
from orbitmq.wire.command import Command
from orbitmq.wire.requests import RequestCode

OWN_QUESTIONS = SerializeType.JSON  # RocketMQ asks clients in what it was started with; every client reads JSON

OWN_FIELDS = {"boundaryType", "transactionId"}
"""Of answers: RocketMQ does not say which boundary it has found, and 4.9 finds none. Only 5.x tells the id of a
transaction.
"""


@dataclass(frozen=True)
class Deviation:
    """A kind of question, and orbitmq's code where RocketMQ's is another."""

    questions: tuple[RequestCode, ...]
    ours: ResponseCode
    reason: str
    java: ResponseCode | None = None  # only where RocketMQ answered so
    subscriptions: tuple[str, ...] = ()  # only where the question has one of these


DEVIATIONS = (
    Deviation(
        (RequestCode.LITE_PULL_MESSAGE,),
        ResponseCode.SUCCESS,
        "5.x clients pull with code 361; RocketMQ 4.9 does not know it, orbitmq does",
        java=ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    ),
    Deviation(
        (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE),
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        "RocketMQ gives everything to a pull whose own expression means nothing; orbitmq refuses it",
        subscriptions=("a > ", "amount between"),
    ),
)


def deviation(question: Command, java: Command) -> Deviation | None:
    """What is known to be otherwise between this captured question and its answer."""
    subscription = (question.ext or {}).get("subscription")
    for one in DEVIATIONS:
        answered = one.java is None or one.java == java.code
        if question.code in one.questions and answered and (not one.subscriptions or subscription in one.subscriptions):
            return one
    return None
