"""Which faults, in which order, for how long: drawn from a seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

KILL, FREEZE, RESTART = "kill -9", "freeze", "restart"
CUT, SILENCE, SLOW = "cut link", "silent link", "slow link"
CUT_COPY, SILENCE_COPY, SLOW_COPY = "cut replication", "silent replication", "slow replication"
FILL = "full disk"

NAME_SERVER_KINDS = (KILL, FREEZE, RESTART)
CLIENT_LINKS = (CUT, SILENCE, SLOW)
REPLICATION_LINKS = (CUT_COPY, SILENCE_COPY, SLOW_COPY)
# How often, in relation to one another: a kill is what a store and a copy are made for.
WEIGHTS = {KILL: 6, FREEZE: 4, RESTART: 3, FILL: 3, **dict.fromkeys((*CLIENT_LINKS, *REPLICATION_LINKS), 2)}
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
    brokers: Sequence[str],
    slaves: Sequence[str],
    hold_max: float,
    pause_max: float,
    without: Sequence[str] = (),
) -> Iterator[Step]:
    """Without an end. Faults of replication are named by the slave. `without` are kinds this machine cannot do."""
    dice = random.Random(seed)
    kinds = [kind for kind in KINDS if kind not in without]
    weights = [WEIGHTS[kind] for kind in kinds]
    while True:
        if dice.random() < NAME_SERVERS_SHARE:
            kind, target = dice.choice(NAME_SERVER_KINDS), dice.choice(name_servers)
        else:
            (kind,) = dice.choices(kinds, weights)
            target = dice.choice(slaves if kind in REPLICATION_LINKS else brokers)
        yield Step(kind, target, dice.uniform(0.1, hold_max), dice.uniform(0, pause_max))
