"""The examples print the same facts with RocketMQ 4.9.7."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.conftest import System
from tests.support.examples import EVERYWHERE, run_example


@pytest.mark.parametrize("system", ["java"], indirect=True, scope="session")
@pytest.mark.parametrize("name", EVERYWHERE)
def test_an_example_does_the_same_with_rocketmq(system: System, name: str, tmp_path: Path) -> None:
    run_example(name, system.namesrv_address, tmp_path)
