"""The commands of the guide do what the guide says, one after another."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from tests.support.gateways import OrbitGateway
from tests.support.orbit_process import OrbitUp

GUIDE = Path(__file__).parents[2] / "docs" / "gateway.md"
PORT = "8083"


def test_the_commands_of_the_guide_run(tmp_path: Path) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    with OrbitUp() as up, OrbitGateway(up.namesrv_address) as gateway:

        def run(block: str) -> str:
            script = block.replace(f"127.0.0.1:{PORT}", gateway.address)
            command = ["bash", "-euc", script]
            ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
            assert ended.returncode == 0, f"{script}\n{ended.stdout}{ended.stderr}"
            return ended.stdout

        sent, batch, _, acknowledged, events = map(run, blocks)
        assert json.loads(sent)["status"] == "SEND_OK"
        assert len(json.loads(batch)["messages"]) == 2
        (received,) = json.loads((tmp_path / "received.json").read_text())["messages"]
        assert received["body"] in ('{"amount": 4990}', "first", "second")
        assert json.loads(acknowledged) == {"settled": 1, "failures": []}
        assert events.count("event: message\n") == 3
