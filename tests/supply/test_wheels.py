"""Each wheel of a release runs in an environment with its dependencies alone, and the Java client works with it.
`make release` runs these tests; without a release in dist/ there is nothing to test.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from supply.locks import ROOT, path
from supply.pythons import find
from tests.support.delivery import assert_as_acknowledged, assert_each_once, messages, results
from tests.support.java_rocketmq import run_driver
from tests.test_release import run, up

WHEELS = sorted((ROOT / "dist").glob("*-cp*-manylinux*.whl"))
COUNT = 1000

pytestmark = pytest.mark.skipif(not WHEELS, reason="there is no release in dist/: make release")


@pytest.mark.parametrize("wheel", WHEELS, ids=lambda wheel: wheel.name.split("-")[2])
def test_the_java_client_works_with_a_wheel(wheel: Path, tmp_path: Path) -> None:
    tag = wheel.name.split("-")[2]
    interpreter = find(f"3.{tag.removeprefix('cp3')}")
    assert interpreter is not None, f"this machine has built {wheel.name}"
    place = tmp_path / "environment"
    subprocess.run([interpreter, "-m", "venv", place], check=True)
    pip = (place / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    subprocess.run([*pip, "--require-hashes", "-r", path("runtime")], check=True)
    subprocess.run([*pip, "--no-deps", "--no-index", wheel], check=True)
    assert "(compiled)" in run(place / "bin" / "orbitmq", "--version")
    with up(place / "bin", tmp_path) as address:
        client = ("--namesrv", address, "--topic", "wheel")
        sent = results(run_driver("send", *client, "--count", COUNT, "--run", "wheel"))
        received = messages(run_driver("consume", *client, "--group", "wheel", "--expect", COUNT))
    assert_each_once(received, "wheel", range(COUNT))
    assert_as_acknowledged(received, sent)
