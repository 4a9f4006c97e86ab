"""pytest finds the fixtures by itself, in a project that has only installed orbitmq."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROJECT = """
import pytest
from orbitmq.client import Message
from orbitmq.client.sync import Producer

seen = []

def send(cluster, topic="T"):
    with Producer("p", cluster.namesrv_address) as producer:
        producer.send(Message(topic, b"1"))
    return cluster.message_count(topic)

def test_each_has_one_of_its_own(orbitmq):
    assert send(orbitmq) == 1

def test_nothing_of_another_test_is_in_it(orbitmq):
    assert send(orbitmq) == 1

@pytest.mark.orbitmq_options(autoCreateTopicEnable=False)
def test_options(orbitmq):
    with pytest.raises(Exception, match="no route"):
        send(orbitmq)

@pytest.mark.parametrize("count", [1, 2])
def test_one_is_shared(orbitmq_shared, count):
    assert send(orbitmq_shared) == count
"""


def test_the_fixtures_work_in_another_project(tmp_path: Path) -> None:
    (tmp_path / "test_project.py").write_text(PROJECT)
    command = [sys.executable, "-m", "pytest", "-q", "--strict-markers", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_nothing_is_imported_for_those_who_do_not_use_them(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text("import sys\ndef test_it(): assert 'orbitmq.broker' not in sys.modules\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
