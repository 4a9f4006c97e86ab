"""The table of messages that were delivered, and the records it is made of."""

from __future__ import annotations

import pytest

from orbitmq.broker.pop import in_flight as module
from orbitmq.broker.pop.in_flight import Checkpoint, InFlight, Key
from orbitmq.broker.pop.records import CheckpointBody, MarkBody, ack_body, checkpoint_body, read_record
from orbitmq.errors import BodyError, MessageIllegal
from orbitmq.message.pop import Receipt, pop_retry_topic

KEY = Key("T", "G", 1, 10, 1_000)


def made(start: int, *offsets: int, pop_ms: int = 1_000, invisible_ms: int = 500, done: int = 0) -> Checkpoint:
    return Checkpoint(Key("T", "G", 1, start, pop_ms), invisible_ms, offsets, done)


def test_what_is_acknowledged_is_in_flight_no_more() -> None:
    table = InFlight()
    table.add(made(10, 10, 12, 13))
    assert table.messages["T", "G", 1] == 3
    assert table.acknowledge(KEY, [12, 12, 99]) == [12]
    assert table.messages["T", "G", 1] == 2
    assert table.acknowledge(KEY, [10, 13]) == [10, 13]
    assert (len(table), table.messages, table.next_due_ms()) == (0, {}, None)
    assert table.acknowledge(KEY, [10]) == []


def test_the_one_that_is_due_first_comes_first_and_stays_until_it_is_dropped() -> None:
    table = InFlight()
    late, early = made(10, 10, invisible_ms=900), made(11, 11, invisible_ms=100)
    table.add(late)
    table.add(early)
    assert (table.due(1099), table.due(1100), table.due(1100), table.oldest()) == (None, early, early, late)
    table.drop(early.key)
    assert table.due(1900) is late


def test_a_record_that_is_written_again_takes_the_place_of_the_old_one() -> None:
    table = InFlight()
    table.add(made(10, 10, 11))
    table.add(made(20, 20))
    table.add(made(10, 10, 11, done=0b01))
    assert [one.key.start for one in table] == [20, 10]
    assert table.messages["T", "G", 1] == 2
    assert table.due(5_000) is not None
    table.add(made(10, 10, 11, done=0b11))
    assert [one.key.start for one in table] == [20]


def test_a_key_is_free_some_milliseconds_later() -> None:
    table = InFlight()
    table.add(made(10, 10))
    assert table.free(KEY).pop_ms == 1001
    assert table.free(KEY._replace(start=11)).pop_ms == 1000


def test_what_is_done_does_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STALE_MIN", 10)
    table = InFlight()
    table.add(made(0, 0, pop_ms=0))
    for start in range(1, 1000):
        table.add(made(start, start))
        table.acknowledge(Key("T", "G", 1, start, 1_000), [start])
    assert len(table._heap) < 30
    assert table.next_due_ms() == 500


def test_records_are_read_as_they_were_written() -> None:
    checkpoint = made(10, 10, 12, done=0b10)
    body = read_record("ck", checkpoint_body(checkpoint, "broker-a", 14, None, 0))
    assert isinstance(body, CheckpointBody)
    again = body.checkpoint()
    assert (again.key, again.offsets, again.done, again.due_ms) == (KEY, (10, 12), 0b10, 1500)
    assert (body.following, body.leaves) == (14, None)
    moved = read_record("ck", checkpoint_body(checkpoint, "broker-a", -1, None, 1))
    hidden = read_record("ck", checkpoint_body(checkpoint, "broker-a", -1, KEY._replace(start=3), 0))
    assert isinstance(moved, CheckpointBody)
    assert isinstance(hidden, CheckpointBody)
    assert (moved.following, hidden.following, hidden.leaves) == (-1, -1, KEY._replace(start=3))
    assert read_record("bAck", ack_body(KEY, [10, 12], "broker-a")).key == KEY  # type: ignore[union-attr]
    assert read_record("orbitmq-mark", b'{"first":7}') == MarkBody(7)
    assert read_record("other", b"?") is None


def test_records_of_rocketmq_are_read() -> None:
    body = (
        b'{"bm":0,"bn":"broker-a","c":"G","d":[0,1,2],"it":3000,"n":3,"pt":1795939450602,"q":1,"ro":0,"so":4,"t":"T"}'
    )
    found = read_record("ck", body)
    assert isinstance(found, CheckpointBody)
    assert (found.checkpoint().offsets, found.following) == ((4, 5, 6), 7)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"so":"x"}'])
def test_a_damaged_record_is_refused(body: bytes) -> None:
    with pytest.raises(BodyError):
        read_record("ck", body)


@pytest.mark.parametrize("d", [list(range(33)), [0]])
def test_a_checkpoint_has_a_bit_for_each_message(d: list[int]) -> None:
    with pytest.raises(BodyError, match="32 messages"):
        CheckpointBody(0, 0, 0, len(d), 0, "T", "G", "b", d, bm=1 << len(d)).checkpoint()


def test_a_receipt_names_one_delivery() -> None:
    receipt = Receipt(4, 1795939460807, 3000, 0, "1", "broker-a", 0, 5)
    assert Receipt.decode("4 1795939460807 3000 0 1 broker-a 0 5") == receipt
    assert receipt.encode() == "4 1795939460807 3000 0 1 broker-a 0 5"
    assert Receipt.decode("4 1795939460807 3000 0 1 broker-a 0 5 77").offset == 5, "the gRPC front adds a place"
    assert Receipt.decode("4 1795939460807 3000 999 0 broker-a 0").offset == -1
    assert pop_retry_topic("T", "G") == "%RETRY%G_T"


@pytest.mark.parametrize("text", ["", "a b c", "x 1 2 3 0 b 0 5", "4 1 2 3 0 b 0 99999999999999999999"])
def test_what_is_no_receipt_is_refused(text: str) -> None:
    with pytest.raises(MessageIllegal, match="receipt"):
        Receipt.decode(text)
