"""Which half messages are decided, in a bit each, and where the newest copy of one is. Pure.

Offsets are those of the half queue. Everything below `position` is done: decided, copied to the end, or abandoned. From
there on a bit says whether an op message exists.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from enum import Enum, auto

from orbitmq.broker.transactions.half import Identity

WINDOW_MAX = 1 << 28  # half messages between the oldest open one and the newest: 32 MB of bits, hours of heavy load
COPIES_MAX = 100_000  # transactions whose copies are remembered, some 30 MB; a producer that is well leaves none
OPS_MAX = 100_000  # op messages cached until they are applied; others are read again
TRIM_BYTES = 4096  # bits are dropped in pieces of this size
STEPS = 64  # offsets checked one by one before whole bytes are skipped
PIECE_BYTES = 1 << 16  # counted at a time


class Decided:
    """A set of offsets that are close together."""

    def __init__(self, base: int) -> None:
        self._base = base & ~7
        self._bits = bytearray()

    def add(self, offset: int) -> None:
        """Offsets below the base are no longer of interest."""
        place = offset - self._base
        if place >= 0:
            missing = (place >> 3) + 1 - len(self._bits)
            if missing > 0:
                self._bits.extend(bytes(missing))
            self._bits[place >> 3] |= 1 << (place & 7)

    def __contains__(self, offset: int) -> bool:
        place = offset - self._base
        return 0 <= place < len(self._bits) << 3 and bool(self._bits[place >> 3] >> (place & 7) & 1)

    def first_missing(self, offset: int) -> int:
        """The first offset from `offset` on that is not in the set."""
        for candidate in range(offset, offset + STEPS):
            if candidate not in self:
                return candidate
        start = (offset + STEPS - 1 - self._base) >> 3
        rest = bytes(memoryview(self._bits)[start:])
        offset = self._base + ((start + len(rest) - len(rest.lstrip(b"\xff"))) << 3)
        while offset in self:
            offset += 1
        return offset

    def missing(self, first: int, end: int) -> Iterator[int]:
        """How many of the offsets from `first` on, and before `end`, are not in the set, in pieces whose numbers add
        up: each takes no more than a millisecond.
        """
        while first < end:
            start = max(0, first - self._base)
            stop = min(end - self._base, (start | 7) + 1 + (PIECE_BYTES << 3))
            bits = int.from_bytes(self._bits[start >> 3 : (stop + 7) >> 3], "little") >> (start & 7)
            size = stop - start
            yield size - (bits & ((1 << size) - 1)).bit_count()
            first = self._base + stop

    def forget_below(self, offset: int) -> None:
        """Give memory back."""
        size = (offset - self._base) >> 3
        if size >= TRIM_BYTES:
            del self._bits[:size]
            self._base += size << 3


class State(Enum):
    """The state of a half message that a producer or a round names."""

    OPEN = auto()
    DECIDED = auto()
    OVER = auto()  # below the position, and nothing more is known


_DECIDED, _GIVEN_UP = -1, -2  # in place of the offset of a newest copy


class Ledger:
    """`position`: the half queue's progress. `op_position`: op messages below it refer to nothing above `position`."""

    def __init__(self) -> None:
        self.begin(0, 0)

    def begin(self, position: int, op_position: int) -> None:
        """Clear all state and start at these offsets."""
        self.position = position
        self.op_position = op_position
        self._decided = Decided(position)
        self._copies: OrderedDict[Identity, int] = OrderedDict()
        self._ops: deque[int] = deque()  # what op messages in a row decide,
        self._ops_from = 0  # from this one on

    def state(self, offset: int, identity: Identity | None) -> tuple[State, int]:
        """The state of the half message at `offset`, and the offset of its newest copy."""
        newest = self._copies.get(identity) if identity is not None and self._copies else None
        if newest == _DECIDED or offset in self._decided:
            return State.DECIDED, offset
        if newest == _GIVEN_UP:
            return State.OPEN, offset
        if newest is not None and newest > offset:
            return State.OPEN, newest
        return (State.OPEN if offset >= self.position else State.OVER), offset

    def is_decided(self, identity: Identity | None) -> bool:
        """Whether a message that was copied or abandoned is known to be decided."""
        return identity is not None and self._copies.get(identity) == _DECIDED

    def decide(self, offset: int, identity: Identity | None) -> None:
        """An op message for `offset` is stored."""
        self._decided.add(offset)
        if identity is not None and identity in self._copies:
            self._remember(identity, _DECIDED)
        self.advance()

    def op_stored(self, op_offset: int, offset: int) -> None:
        """The op message at `op_offset` of its queue decides `offset`."""
        ops = self._ops
        if op_offset != self._ops_from + len(ops):
            ops.clear()
        if not ops:
            self._ops_from = op_offset
        ops.append(offset)
        if len(ops) > OPS_MAX:
            ops.popleft()
            self._ops_from += 1

    def pass_ops(self) -> bool:
        """Skip cached op messages that are applied; whether the next one is cached, and still needed."""
        ops, at, position = self._ops, self._ops_from, self.position
        while ops and at <= self.op_position and (at < self.op_position or ops[0] < position):
            ops.popleft()
            at += 1
            self.op_position = max(self.op_position, at)
        self._ops_from = at
        return bool(ops) and at == self.op_position

    def copied(self, offset: int, identity: Identity | None) -> None:
        """The newest copy of a message lies at `offset`."""
        if identity is not None:
            self._remember(identity, offset)

    def give_up(self, identity: Identity | None) -> None:
        """A late decision about an abandoned message still takes effect, although no round waits for it."""
        if identity is not None:
            self._remember(identity, _GIVEN_UP)

    def pass_over(self, offset: int) -> None:
        """The round is done with the message at `offset`, the first open one."""
        self.position = max(self.position, offset + 1)
        self.advance()

    def restore_decision(self, offset: int) -> None:
        """Take in an op message found after a start; `advance` ends that."""
        self._decided.add(offset)

    def restore_end(self, offset: int, identity: Identity | None) -> None:
        """Take in a decision whose op message was missing until now."""
        self._decided.add(offset)
        if identity is not None:
            self._remember(identity, _DECIDED)

    def restore_copy(self, offset: int, identity: Identity | None, origin: int | None = None) -> None:
        """Record a copy found after a start, with the offset of the original; in order, after all decisions."""
        if origin is not None and origin in self._decided:
            self._decided.add(offset)
        if identity is not None and self._copies.get(identity) != _DECIDED:
            self._remember(identity, _DECIDED if offset in self._decided else offset)

    def _remember(self, identity: Identity, newest: int) -> None:
        self._copies[identity] = newest
        self._copies.move_to_end(identity)
        if len(self._copies) > COPIES_MAX:
            self._copies.popitem(last=False)

    def undecided(self, end: int) -> Iterator[int]:
        """The number of pending half messages before `end`, in parts that add up."""
        return self._decided.missing(self.position, end)

    def advance(self) -> None:
        """Move the position to the first open message."""
        self.position = self._decided.first_missing(self.position)
        self._decided.forget_below(self.position)
