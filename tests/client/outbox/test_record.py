"""What an outbox keeps comes back as it was, or is known to be damaged; and the usual rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.core.outgoing import Outgoing
from orbitmq.client.outbox.record import (
    PAUSE_MAX_S,
    AttemptHistory,
    LossReason,
    OutboxRecord,
    decode_history,
    decode_kept,
    doubling_pause,
    encode_history,
    encode_kept,
    new_kept,
    worth_keeping,
)
from orbitmq.errors import (
    BrokerError,
    ClientError,
    ConnectError,
    MessageIllegal,
    OrbitMQError,
    RemotingTimeout,
    TooManyRequestsError,
    UnitError,
)
from orbitmq.message.model import MessageQueue
from orbitmq.message.properties import KEYS, encode_properties
from orbitmq.wire.codes import ResponseCode

MESSAGE = Outgoing("T", b"\x00body", encode_properties({KEYS: "order-1"}), "ID", flag=3, sys_flag=1)
keys = st.none() | st.text() | st.integers() | st.binary()


@given(body=st.binary(min_size=1), key=keys, queue=st.none() | st.tuples(st.text(), st.integers(0, 9)))
def test_a_kept_message_comes_back(body: bytes, key: str | int | bytes | None, queue: tuple[str, int] | None) -> None:
    chosen = MessageQueue("T", *queue) if queue else None
    kept = new_kept(Outgoing("T", body, "p", "ID", batch=True), 5, "no route", chosen, key)
    again = decode_kept(encode_kept(kept))
    assert again == kept
    assert type(again.key) is type(key)
    assert again.key == key
    assert again.queue == chosen


@given(place=st.integers(0), bit=st.integers(0, 7))
def test_any_changed_bit_is_noticed(place: int, bit: int) -> None:
    data = bytearray(encode_kept(OutboxRecord(MESSAGE, 5, "no route")))
    data[place % len(data)] ^= 1 << bit
    with pytest.raises(UnitError):
        decode_kept(bytes(data))


@given(st.binary(max_size=40))
def test_other_bytes_are_no_message(data: bytes) -> None:
    with pytest.raises(UnitError):
        decode_kept(data)


def test_a_damaged_history_counts_as_none() -> None:
    history = AttemptHistory(3, 17, "busy")
    assert decode_history(encode_history(history)) == history
    assert decode_history(b"\xff") == AttemptHistory()


def test_messages_share_a_line_with_what_they_must_not_overtake() -> None:
    queue, other = MessageQueue("T", "b", 1), MessageQueue("T", "b", 2)
    targets = [(None, None), (None, "k"), (None, b"k"), (None, 1), (queue, None), (other, None)]
    lines = [new_kept(MESSAGE, 0, "", *target).line for target in targets]
    assert len(set(lines)) == len(lines)


def test_a_loss_says_which_message_it_was() -> None:
    loss = OutboxRecord(MESSAGE, 5, "no route").lost(LossReason.EXPIRED, "older than 3 s")
    assert (loss.topic, loss.msg_id, loss.keys, loss.body, loss.first_failed_ms) == (
        "T",
        "ID",
        "order-1",
        b"\x00body",
        5,
    )
    assert (loss.reason, loss.error, loss.count) == (LossReason.EXPIRED, "no route", 1)


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (ConnectError("refused"), True),
        (RemotingTimeout("late"), True),
        (TooManyRequestsError("no time"), True),
        (ClientError(10005, "no route"), True),
        (BrokerError(ResponseCode.SYSTEM_BUSY, "busy", "a"), True),
        (BrokerError(ResponseCode.SERVICE_NOT_AVAILABLE, "full", "a"), True),
        (BrokerError(ResponseCode.NO_PERMISSION, "no", "a"), False),
        (BrokerError(ResponseCode.MESSAGE_ILLEGAL, "no", "a"), False),
        (MessageIllegal("too large"), False),
    ],
)
def test_what_another_time_may_help_is_kept(error: OrbitMQError, kept: bool) -> None:
    assert worth_keeping(MESSAGE, error) is kept


def test_pauses_double_up_to_a_limit() -> None:
    assert [doubling_pause(n, 0) for n in (1, 2, 3, 4)] == [5, 10, 20, 40]
    assert doubling_pause(1000, 0) == PAUSE_MAX_S
    assert doubling_pause(1, 1) == 3.75
