"""The examples of the README, run as they stand against a live broker."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.support.orbit_process import OrbitUp
from tests.support.process import ChildProcess

README = Path(__file__).parents[2] / "README.md"
EXAMPLES = dict(re.findall(r"\n## ([^\n]+)\n\n```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL))


def start(example: str, namesrv: str, directory: Path) -> ChildProcess:
    program = EXAMPLES[example].replace("127.0.0.1:9876", namesrv)
    activated = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    return ChildProcess(["python", "-u", "-c", program], output=directory / example, environment=activated)


@pytest.mark.timeout(600)  # a loaded machine needs minutes to start Spark
def test_the_examples_work_one_after_the_other(tmp_path: Path) -> None:
    with OrbitUp() as up:
        sending = start("Send", up.namesrv_address, tmp_path)
        assert sending.wait(60) == 0, sending.errors()
        assert "SEND_OK" in sending.output()
        with start("Consume", up.namesrv_address, tmp_path) as consuming:
            consuming.wait_for(
                lambda: """OrderPaid O-2026-000042 b'{"amount": 4990}'""" in consuming.output(), 60, "it"
            )
        spark = start("Read with Spark", up.namesrv_address, tmp_path)
        assert spark.wait(400) == 0, spark.errors()
        assert re.search(r"\|OrderPaid\| +1\|", spark.output())


def test_the_examples_are_as_short_as_they_are_said_to_be() -> None:
    assert set(EXAMPLES) == {"Send", "Consume", "Read with Spark"}
    assert all(len([line for line in text.splitlines() if line]) <= 5 for text in EXAMPLES.values())
