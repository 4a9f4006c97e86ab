"""Simulations of replicas with faults, each from a seed.

`ORBITMQ_SIMULATIONS=1000000` runs more of them: an hour and a half.
"""

from __future__ import annotations

import os

import pytest

from tests.failover.world import Broken, World

SEEDS = int(os.environ.get("ORBITMQ_SIMULATIONS", "10000"))
PARTS = 10
LONG = 4000, 30
"""Milliseconds and faults of one simulation in ten: some things take many faults."""


def simulation(seed: int) -> World:
    world = World(seed, replicas=2 + seed % 2, min_in_sync=1 + (seed // 2) % 2, by_leases=seed % 3 == 2)
    try:
        world.simulate(*(LONG if seed % 100 < PARTS else ()))
    except Broken as error:
        raise Broken(f"seed {seed}: {error}") from error
    return world


@pytest.mark.parametrize("part", range(PARTS))
def test_invariants_hold_whatever_goes_wrong(part: int) -> None:
    steps = elections = in_maintenance = acknowledged = 0
    for seed in range(part, SEEDS, PARTS):
        world = simulation(seed)
        steps += world.steps
        elections += world.checker.elections
        in_maintenance += world.checker.elected_in_maintenance
        acknowledged += len(world.checker.acknowledged_ids)
    print(
        f"seeds {SEEDS // PARTS}, steps {steps}, elections {elections}, in maintenance {in_maintenance}, "
        f"acknowledged {acknowledged}"
    )
    assert steps >= 100 * len(range(part, SEEDS, PARTS))
