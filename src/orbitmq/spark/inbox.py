"""Receives frames into large blocks, in which their bodies stay: a body is a view of its block. Pure.

Bodies that arrive one after another lie one after another, so that a run of them is decoded where it was received.
A block is used again when nobody has a view of it any more.
"""

from __future__ import annotations

import struct
from collections import deque

from orbitmq.errors import FrameError
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FRAME_SIZE_MAX, FrameDecoder

BLOCK_SIZE = 4 << 20  # some thousand messages: enough for column operations, which process a block at a time
HEAD = struct.Struct(">II")  # bytes after this number; serialization and size of the header
LENGTH_SIZE = 4
HEADER_SIZE_MASK = 0xFFFFFF  # the size in the second number
SPARE_MAX = 2  # full blocks that may be used again: one is being decoded, another waits for that

Response = tuple[Command, memoryview]
"""A command without its body, and the body."""


class Inbox:
    """The bytes of one connection, and the frames in them. Holds one incomplete frame, of FRAME_SIZE_MAX at most."""

    def __init__(self) -> None:
        self._spare: deque[bytearray] = deque(maxlen=SPARE_MAX)
        self._block = bytearray(BLOCK_SIZE)
        self._start = 0  # of the first frame that was not taken
        self._end = 0  # of the bytes received

    def room(self) -> memoryview:
        """Where the next bytes go. Call `take` with their number."""
        return memoryview(self._block)[self._end :]

    def take(self, count: int) -> list[Response]:
        """The frames that are complete with `count` more bytes. FrameError and HeaderError: the stream is lost."""
        self._end += count
        found: list[Response] = []
        view = memoryview(self._block)
        wanted = HEAD.size
        while self._end - self._start >= HEAD.size:
            total, word = HEAD.unpack_from(view, self._start)
            size = total + LENGTH_SIZE
            if not HEAD.size <= size <= FRAME_SIZE_MAX:
                raise FrameError(f"frame of {size} bytes, {HEAD.size} to {FRAME_SIZE_MAX} are allowed")
            if self._end - self._start < size:
                wanted = size
                break
            found.append(_frame(view[self._start : self._start + size], word))
            self._start += size
        if self._start + wanted > len(self._block):
            self._move(wanted)
        return found

    def _move(self, size: int) -> None:
        """Go on in another block, with room for a frame of `size` bytes, which began in this one."""
        begun = self._block[self._start : self._end]
        full, self._block = self._block, self._free_block(size)
        self._spare.append(full)
        self._block[: len(begun)] = begun
        self._start, self._end = 0, len(begun)

    def _free_block(self, size: int) -> bytearray:
        for number, block in enumerate(self._spare):
            if len(block) >= size and _is_free(block):
                del self._spare[number]
                return block
        return bytearray(max(size, BLOCK_SIZE))


def _is_free(block: bytearray) -> bool:
    """Whether nobody has a view of the block: only then can its size change."""
    try:
        last = block.pop()
    except BufferError:
        return False
    block.append(last)  # where it was: a block keeps the memory of a byte that is taken away
    return True


def _frame(frame: memoryview, word: int) -> Response:
    """FrameError and HeaderError as in `wire.frame`."""
    body_at = HEAD.size + (word & HEADER_SIZE_MASK)
    if body_at > len(frame):
        raise FrameError(f"header of {body_at - HEAD.size} bytes in a frame with {len(frame) - HEAD.size} left")
    head = HEAD.pack(body_at - LENGTH_SIZE, word) + frame[HEAD.size : body_at]
    (command,) = FrameDecoder(typed=False).feed(head)
    return command, frame[body_at:]
