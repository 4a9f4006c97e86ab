"""Recent latencies and failures of brokers, and which broker the next message should go to. Pure; time is passed in.

Besides round robin a producer has two options: avoid brokers for a while that were slow or failed, and prefer the
fastest one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from orbitmq.errors import ConfigurationError

LATENCY_MAX = (50, 100, 550, 1_000, 2_000, 3_000, 15_000)
NOT_AVAILABLE = (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000)
"""Milliseconds: a broker with at least this latency is avoided for the time at the same index. RocketMQ's values."""
ISOLATION_MS = 30_000  # the latency that a failure counts as


@dataclass(frozen=True, slots=True)
class Profile:
    """Times and rules of fault tolerance."""

    latency_max: tuple[int, ...] = LATENCY_MAX
    not_available: tuple[int, ...] = NOT_AVAILABLE
    isolation_ms: int = ISOLATION_MS
    probes: bool = False
    """A broker that the network did not reach counts as unreachable until a probe reaches it, and later measurements
    never shorten the time for which a broker is avoided.
    """


PROFILES: Mapping[str, Profile] = {
    "v4": Profile(),
    "v5": Profile(
        (50, 100, 550, 1_800, 3_000, 5_000, 15_000), (0, 0, 2_000, 5_000, 6_000, 10_000, 30_000), 10_000, probes=True
    ),
}
"""Those of RocketMQ 4.9 and of 5.3."""
PROBE_LOOK_S = 3.0  # between two checks for brokers to probe
PROBE_PAUSE_MS = 2_000  # between two probes of one broker
PROBE_TIMEOUT_MS = 200
"""RocketMQ 5.3's values."""

NEWEST_SHARE = 0.2  # weight of a response in the average: ten responses make most of it
HALF_LIFE_MS = 30_000  # a measurement of this age counts half, so that a slow broker is tried again


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """State of a broker by its last response, best first."""

    latency_ms: int
    """Its latency in milliseconds."""
    available_from_ms: int
    """Until when the broker is avoided; milliseconds since the epoch."""
    broker_name: str = ""
    """The name of the broker."""
    is_reachable: bool = field(default=True, compare=False)
    """False from a network failure until a probe reaches the broker, in profile v5."""


class FaultTable:
    """The brokers to avoid, by the rule of RocketMQ's latency fault tolerance."""

    def __init__(self, profile: Profile = PROFILES["v4"]) -> None:
        latency_max, not_available = profile.latency_max, profile.not_available
        if len(latency_max) != len(not_available) or list(latency_max) != sorted(latency_max):
            raise ConfigurationError(
                f"latency_max {latency_max} and not_available_duration {not_available} must have as many steps, rising"
            )
        self._steps = list(zip(latency_max, not_available, strict=True))
        self._isolation_ms = profile.isolation_ms
        self.probes = profile.probes
        self._probed_ms: dict[str, int] = {}
        self.faults: dict[str, Fault] = {}
        self._turn = 0

    def duration_ms(self, latency_ms: int) -> int:
        """How long a broker with this latency is avoided."""
        return next((duration for limit, duration in reversed(self._steps) if latency_ms >= limit), 0)

    def note(self, broker_name: str, latency_ms: int, now_ms: int, *, failed: bool, is_reachable: bool = True) -> None:
        """Record whether a broker responded, and how fast."""
        available_from_ms = now_ms + self.duration_ms(self._isolation_ms if failed else latency_ms)
        if self.probes and (before := self.faults.get(broker_name)) is not None:
            available_from_ms = max(available_from_ms, before.available_from_ms)
        self.faults[broker_name] = Fault(latency_ms, available_from_ms, broker_name, is_reachable or not self.probes)

    def is_reachable(self, broker_name: str, _now_ms: int = 0) -> bool:
        """Whether the network reached a broker last time; an unknown one counts as reachable."""
        fault = self.faults.get(broker_name)
        return fault is None or fault.is_reachable

    def to_probe(self, now_ms: int) -> list[str]:
        """Unreachable brokers to probe now; each counts as probed then."""
        due = [
            name
            for name, fault in self.faults.items()
            if not fault.is_reachable and now_ms - self._probed_ms.get(name, 0) >= PROBE_PAUSE_MS
        ]
        self._probed_ms = {name: self._probed_ms.get(name, 0) for name in self.faults if not self.is_reachable(name)}
        self._probed_ms.update(dict.fromkeys(due, now_ms))
        return due

    def probed(self, broker_name: str) -> None:
        """Note that a probe reached a broker."""
        if (fault := self.faults.get(broker_name)) is not None:
            self.faults[broker_name] = replace(fault, is_reachable=True)

    def is_available(self, broker_name: str, now_ms: int) -> bool:
        """Whether a broker may be used; an unknown one may."""
        fault = self.faults.get(broker_name)
        return fault is None or now_ms >= fault.available_from_ms

    def least_bad(self, broker_names: Collection[str]) -> str | None:
        """If all are avoided: one of the better half of them, in turn. None if all are unknown."""
        known = sorted(fault for name, fault in self.faults.items() if name in broker_names)
        if not known:
            return None
        self._turn += 1
        return known[self._turn % max(1, len(known) // 2)].broker_name


class BrokerLatencies:
    """The average latency of each broker; old measurements lose weight."""

    def __init__(self) -> None:
        self._averages: dict[str, tuple[float, int]] = {}  # broker -> average, when it was measured

    def note(self, broker_name: str, latency_ms: int, now_ms: int, *, failed: bool) -> None:
        """Record whether a broker responded, and how fast."""
        newest = float(ISOLATION_MS if failed else latency_ms)
        before = self._averages.get(broker_name)
        average = newest if before is None else NEWEST_SHARE * newest + (1 - NEWEST_SHARE) * before[0]
        self._averages[broker_name] = (average, now_ms)

    def of(self, broker_name: str, now_ms: int) -> float:
        """The expected latency in milliseconds; 0 for an untried broker, so that it is tried."""
        average, measured_ms = self._averages.get(broker_name, (0.0, now_ms))
        return average * math.exp2(-max(0, now_ms - measured_ms) / HALF_LIFE_MS)

    def fastest(self, broker_names: Iterable[str], now_ms: int) -> set[str]:
        """The brokers with the lowest expected latency; several only if it is equal."""
        expected = {name: self.of(name, now_ms) for name in broker_names}
        best = min(expected.values())
        return {name for name, latency in expected.items() if latency == best}


def steps(text: str) -> tuple[int, ...]:
    """Milliseconds separated by spaces or commas, as in settings. ConfigurationError for anything else."""
    try:
        return tuple(int(part) for part in text.replace(",", " ").split())
    except ValueError:
        raise ConfigurationError(f"{text!r} is no list of milliseconds; use integers, as in 50 100 550") from None
