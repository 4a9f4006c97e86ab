"""Frames come out of an inbox as they were sent, however they are cut; bodies stay as long as anybody has a view."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import FrameError
from orbitmq.spark import inbox
from orbitmq.spark.inbox import Inbox, Response
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FRAME_SIZE_MAX, encode_frame


def received(data: bytes, cuts: Iterator[int], box: Inbox) -> Iterator[Response]:
    at = 0
    while at < len(data):
        with box.room() as room:
            count = min(next(cuts, len(data)), len(room), len(data) - at)
            room[:count] = data[at : at + count]
        at += count
        yield from box.take(count)


def frame(number: int, body: bytes) -> bytes:
    command = Command(code=number, opaque=number, remark="r" * (number % 7))
    command.body = body
    return encode_frame(command)


@given(
    st.lists(st.binary(max_size=300), min_size=1, max_size=30),
    st.lists(st.integers(1, 200), max_size=200),
    st.lists(st.integers(0, 29), max_size=30),
)
def test_frames_come_as_they_were_sent(bodies: list[bytes], cuts: list[int], let_go: list[int]) -> None:
    sent = b"".join(frame(number, body) for number, body in enumerate(bodies))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inbox, "BLOCK_SIZE", 256)  # so that blocks are used again after few frames
        held: dict[int, memoryview] = {}
        for command, body in received(sent, iter(cuts), Inbox()):
            assert (command.code, command.remark, body) == (
                len(held),
                "r" * (command.code % 7),
                bodies[command.code],
            )
            held[command.code] = body
            if command.code in let_go:
                body.release()
        assert len(held) == len(bodies)
        for number in held.keys() - set(let_go):
            assert held[number] == bodies[number]


def test_blocks_are_used_again() -> None:
    box = Inbox()
    body = bytes(inbox.BLOCK_SIZE // 3)
    blocks = [view.obj for number in range(60) for _, view in received(frame(number, body), iter(()), box)]
    assert len(blocks) == 60
    assert len(set(map(id, blocks))) <= 1 + inbox.SPARE_MAX


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (struct.pack(">II", 3, 0), "frame of 7 bytes"),
        (struct.pack(">II", FRAME_SIZE_MAX, 0), "frame of 16777220 bytes"),
        (struct.pack(">II", 6, 7) + b"ab", "header of 7 bytes in a frame with 2 left"),
        (struct.pack(">II", 6, 9 << 24 | 2) + b"ab", "header serialization 9 is unknown"),
    ],
)
def test_what_is_no_frame_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(FrameError, match=text):
        list(received(data, iter(()), Inbox()))
