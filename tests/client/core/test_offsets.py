"""Offsets in memory never fall back by accident, and their file is Java's."""

from __future__ import annotations

import pytest

from orbitmq.client.core.offsets import OffsetTable, decode_file, encode_file
from orbitmq.errors import BodyError
from orbitmq.message.model import MessageQueue
from tests.support.golden import manifest

Q = MessageQueue("T", "b", 0)


def test_only_a_deliberate_set_lowers_an_offset() -> None:
    table = OffsetTable()
    assert table.read(Q) == -1
    table.raise_to(Q, 0)
    table.raise_to(Q, 7)
    table.raise_to(Q, 5)
    assert table.read(Q) == 7
    table.set(Q, 5)
    assert table.read(Q) == 5
    assert table.of([Q, MessageQueue("T", "b", 1)]) == {Q: 5}
    table.forget(Q)
    assert Q not in table


def test_what_is_only_learned_is_not_this_consumers_to_store() -> None:
    table = OffsetTable()
    table.learn(Q, 7)
    assert (table.read(Q), table.own([Q])) == (7, {})
    table.raise_to(Q, 7)
    assert table.own([Q]) == {}
    table.raise_to(Q, 8)
    assert table.own([Q]) == {Q: 8}
    table.learn(Q, 3)
    assert table.own([Q]) == {Q: 8}
    table.set(Q, 2)
    assert table.own([Q]) == {Q: 2}
    table.forget(Q)
    table.learn(Q, 5)
    assert table.own([Q]) == {}


@pytest.mark.parametrize("text", manifest("broadcast")["clientOffsetFiles"].values())
def test_a_file_of_java_is_read_and_written_again(text: str) -> None:
    offsets = decode_file(text)
    assert offsets
    assert all(offset >= 0 for offset in offsets.values())
    assert encode_file(offsets) == text


def test_a_file_with_pairs_is_read() -> None:
    """What libraries write that know no objects as keys."""
    queues = (f'{{"brokerName":"b","queueId":{n},"topic":"T"}}' for n in range(2))
    text = '{{"offsetTable":[[{},11],[{},0]]}}'.format(*queues)
    assert decode_file(text) == {MessageQueue("T", "b", 0): 11, MessageQueue("T", "b", 1): 0}
    assert decode_file('{"offsetTable":[]}') == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"offsetTable":[7]}',
        '{"offsetTable":[[{},1,2]]}',
        '{"offsetTable":[["x",1]]}',
        '{"offsetTable":7}',
        "{",
    ],
)
def test_a_broken_file_is_refused(text: str) -> None:
    with pytest.raises(BodyError):
        decode_file(text)


def test_the_beginning_is_stored_though_it_was_only_learned() -> None:
    table = OffsetTable()
    table.learn(Q, 0)
    assert table.own([Q]) == {Q: 0}
    assert not table.is_own(Q)
    table.learn(Q, 9)
    assert table.own([Q]) == {}, "another member has advanced it"
    table.set(Q, 9)
    assert table.is_own(Q)
