"""`orbitmq msg delayed`, `timers`, `find` and `recall` tell of messages that wait for their time, and stop one."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from orbitmq.client import Message
from orbitmq.client.sync import Producer
from tests.support.orbit_process import ORBITMQ, OrbitUp


def run(system: OrbitUp, *words: str) -> Any:
    command = [str(ORBITMQ), *words, "-n", system.namesrv_address]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout) if "json" in words else done.stdout


def test_commands_find_and_recall_what_waits() -> None:
    with OrbitUp(recallMessageEnable="true") as system, Producer("p", system.namesrv_address) as producer:
        first, second = (
            producer.send(Message(topic, b"body", keys=f"key-{topic}", deliver_after=after))
            for topic, after in (("Later", 600), ("Sooner", 300))
        )
        waiting = run(system, "msg", "timers", "-o", "json")["items"]
        assert [(one["topic"], one["msgId"], one["keys"]) for one in waiting] == [
            ("Sooner", second.msg_id, ["key-Sooner"]),
            ("Later", first.msg_id, ["key-Later"]),
        ]
        assert waiting[0]["recallHandle"] == second.recall_handle
        (row,) = run(system, "msg", "delayed", "-o", "json")["items"]
        assert (row["level"], row["waitingMessages"], row["nextTopic"]) == (None, 2, "Sooner")
        found = run(system, "msg", "find", first.msg_id)
        assert "It waits for the time its sender named" in found
        run(system, "msg", "recall", second.recall_handle or "", "--yes")
        (left,) = run(system, "msg", "timers", "-t", "Later", "-o", "json")["items"]
        assert left["msgId"] == first.msg_id
