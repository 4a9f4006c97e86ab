"""The systems under test: RocketMQ 4.9.7, the oracle, and orbitmq from its command line. Each test holds for both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from tests.support.java_rocketmq import ROCKETMQ_4, JavaSystem
from tests.support.orbit_process import OrbitUp

System: TypeAlias = JavaSystem | OrbitUp

# Retries wait for delay level 3; every level is short here, so that a retried message comes back within a second.
SHORT_DELAYS = " ".join(["1s"] * 18)
_OPTIONS = {"messageDelayLevel": SHORT_DELAYS, "enablePropertyFilter": "true", "traceTopicEnable": "true"}
_SYSTEMS: dict[str, Callable[[], System]] = {
    "java": lambda: JavaSystem(ROCKETMQ_4, **_OPTIONS),
    "orbitmq": lambda: OrbitUp(**_OPTIONS),
}


@pytest.fixture(scope="session", params=_SYSTEMS)
def system(request: pytest.FixtureRequest) -> Iterator[System]:
    """One running name server with one broker, shared by all tests: each uses topics and groups of its own."""
    with _SYSTEMS[request.param]() as running:
        yield running


@pytest.fixture
def label(request: pytest.FixtureRequest) -> str:
    """A name for the topic, the group and the run of this test alone."""
    name = f"{request.node.path.stem.removeprefix('test_')}-{request.node.name}"  # two files may use one test name
    return "".join(c if c.isalnum() else "-" for c in name).strip("-")[:100]
