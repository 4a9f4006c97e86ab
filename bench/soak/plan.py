"""Which faults, in which order, for how long: drawn from a seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

KILL, FREEZE, RESTART = "kill -9", "freeze", "restart"
CUT, SILENCE, SLOW = "cut link", "silent link", "slow link"
CUT_COPY, SILENCE_COPY, SLOW_COPY = "cut replication", "silent replication", "slow replication"
FILL = "full disk"
PROMOTE = "master dead for good"
THAW = "frozen master replaced"
WORKER = "SIGTERM of a worker"

NAME_SERVER_KINDS = (KILL, FREEZE, RESTART)
CLIENT_LINKS = (CUT, SILENCE, SLOW)
REPLICATION_LINKS = (CUT_COPY, SILENCE_COPY, SLOW_COPY)
# How often, in relation to one another: a kill is what a store and a copy are made for.
WEIGHTS = {
    KILL: 6,
    FREEZE: 4,
    RESTART: 3,
    FILL: 3,
    **dict.fromkeys((*CLIENT_LINKS, *REPLICATION_LINKS), 2),
    PROMOTE: 2,
    THAW: 2,
    WORKER: 6,
}
KINDS = tuple(WEIGHTS)
NAME_SERVERS_SHARE = 0.15  # of all faults


class Step(NamedTuple):
    """One fault: it lasts `hold` seconds, and as long as the node takes to serve again; then nothing for `pause`."""

    kind: str
    target: str
    hold: float
    pause: float


def plan(
    seed: int,
    *,
    name_servers: Sequence[str],
    targets: Mapping[str, Sequence[str]],
    hold_max: float,
    pause_max: float,
) -> Iterator[Step]:
    """Without an end. `targets` are the brokers, or the pairs, that a kind may hit; without any it does not happen."""
    dice = random.Random(seed)
    kinds = [kind for kind in KINDS if targets.get(kind)]
    weights = [WEIGHTS[kind] for kind in kinds]
    while True:
        if dice.random() < NAME_SERVERS_SHARE:
            kind, target = dice.choice(NAME_SERVER_KINDS), dice.choice(name_servers)
        else:
            (kind,) = dice.choices(kinds, weights)
            target = dice.choice(targets[kind])
        yield Step(kind, target, dice.uniform(0.1, hold_max), dice.uniform(0, pause_max))
