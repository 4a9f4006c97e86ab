"""The records by which the log remembers what is in flight: checkpoints and acknowledgements, as RocketMQ 5 has them.

Two kinds are orbitmq's own: how far back the records are that are still needed, and that a topic was deleted.
"""

from __future__ import annotations

from typing import Final

import msgspec

from orbitmq.broker.pop.in_flight import Checkpoint, Key
from orbitmq.errors import BodyError
from orbitmq.message.pop import MAX_MESSAGES

CHECKPOINT: Final = "ck"
ACK: Final = "ack"
BATCH_ACK: Final = "bAck"
MARK: Final = "orbitmq-mark"
FORGET: Final = "orbitmq-forget"


class CheckpointBody(msgspec.Struct, omit_defaults=True):
    """`d` are the messages' queue offsets behind `so`, `bm` has a bit for each that is acknowledged, `rp` says how
    often the record was written before. orbitmq's own: `nx` is where the group goes on in the queue, `ps` and `pp` are
    start and time of the checkpoint that a message leaves for this one.
    """

    so: int
    pt: int
    it: int
    n: int
    q: int
    t: str
    c: str
    bn: str
    d: list[int]
    bm: int = 0
    ro: int = 0
    rp: str = "0"
    nx: int = -1
    ps: int = -1
    pp: int = -1

    def checkpoint(self) -> Checkpoint:
        """BodyError if the numbers cannot be right."""
        offsets = tuple(self.so + one for one in self.d)
        if len(offsets) > MAX_MESSAGES or not 0 <= self.bm < 1 << max(1, len(offsets)):
            raise BodyError("a checkpoint has 32 messages at most, and a bit for each")
        return Checkpoint(Key(self.t, self.c, self.q, self.so, self.pt), self.it, offsets, self.bm)

    @property
    def leaves(self) -> Key | None:
        return Key(self.t, self.c, self.q, self.ps, self.pp) if self.pp >= 0 else None

    @property
    def following(self) -> int:
        """Where the group goes on in the queue; -1 if this record does not say so."""
        if self.nx >= 0 or self.pp >= 0 or self.rp != "0":
            return self.nx
        return self.so + max(self.d, default=-1) + 1


class AckBody(msgspec.Struct):
    """`aol` are the queue offsets of the messages."""

    so: int
    pt: int
    q: int
    t: str
    c: str
    bn: str
    ao: int
    aol: list[int] = []

    @property
    def key(self) -> Key:
        return Key(self.t, self.c, self.q, self.so, self.pt)


class MarkBody(msgspec.Struct):
    """`first`: the queue offset of the first record that is needed. Saved offsets know all records before `saved`.
    `is_last`: the broker was stopped after that, and had saved its offsets before.
    """

    first: int
    saved: int = 0
    is_last: bool = False


class ForgetBody(msgspec.Struct):
    """Nothing is in flight of topic `t`: it was deleted."""

    t: str


Body = CheckpointBody | AckBody | MarkBody | ForgetBody


def checkpoint_body(checkpoint: Checkpoint, broker_name: str, following: int, leaves: Key | None, times: int) -> bytes:
    """The body of a record; the parameters are those of `Journal.add`."""
    key = checkpoint.key
    return msgspec.json.encode(
        CheckpointBody(
            so=key.start,
            pt=key.pop_ms,
            it=checkpoint.invisible_ms,
            n=len(checkpoint.offsets),
            q=key.queue_id,
            t=key.topic,
            c=key.group,
            bn=broker_name,
            d=[offset - key.start for offset in checkpoint.offsets],
            bm=checkpoint.done,
            rp=str(times),
            nx=following,
            ps=-1 if leaves is None else leaves.start,
            pp=-1 if leaves is None else leaves.pop_ms,
        )
    )


def ack_body(key: Key, offsets: list[int], broker_name: str) -> bytes:
    return msgspec.json.encode(
        AckBody(key.start, key.pop_ms, key.queue_id, key.topic, key.group, broker_name, offsets[0], offsets)
    )


_CHECKPOINTS = msgspec.json.Decoder(CheckpointBody)
_ACKS = msgspec.json.Decoder(AckBody)
_FORGETS = msgspec.json.Decoder(ForgetBody)
_MARKS = msgspec.json.Decoder(MarkBody)


def read_record(tag: str, body: bytes) -> Body | None:
    """None for a kind that is not known. BodyError."""
    try:
        if tag == CHECKPOINT:
            return _CHECKPOINTS.decode(body)
        if tag in (ACK, BATCH_ACK):
            return _ACKS.decode(body)
        if tag == FORGET:
            return _FORGETS.decode(body)
        return _MARKS.decode(body) if tag == MARK else None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BodyError(f"a record of POP consumption is damaged: {error}") from error
