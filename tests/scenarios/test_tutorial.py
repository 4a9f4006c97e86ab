"""The tutorial is followed from its first line to its last but Spark, which has a test beside its session; the Chinese
one says the same.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from tests.support.process import free_port
from tests.support.tutorial import Reader, blocks, steps, without_network

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"
UP, CONSUME = "orbitmq up", "python consume.py"


@pytest.mark.timeout(600)  # it starts Spark several times, beside other tests
@pytest.mark.long
def test_who_follows_the_tutorial_sees_what_it_says(tmp_path: Path) -> None:
    port = free_port()
    endless = {UP: f"{UP} --namesrv-port {port} --broker-port {free_port(-2, 1)} --dashboard-port 0", CONSUME: CONSUME}
    packages = Path(sysconfig.get_path("purelib"))
    with Reader(tmp_path, ROOT, without_network(packages), f"127.0.0.1:{port}", endless) as reader:
        for block, prints in steps(TUTORIAL):
            if "orders.py" not in block.text:
                reader.follow(block, prints)
            if block.text.strip() == CONSUME:
                reader.interrupt()


def test_the_chinese_tutorial_has_the_same_blocks() -> None:
    assert blocks(ROOT / "docs" / "zh" / "tutorial.md") == blocks(TUTORIAL)
