"""The gateway against requests that schemathesis makes of its own OpenAPI document, right ones and wrong ones."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.access import GROUP, OWNER, TOPIC, write_acl
from tests.support.gateways import OrbitGateway
from tests.support.orbit_process import OrbitUp

ROOT = Path(__file__).parents[2]
SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")
KNOWN = f'[parameters]\n"path.topic" = "{TOPIC}"\n"path.group" = "{GROUP}"\n'
# A query with a list of one value reads like one with the value, so it is no wrong one.
LISTS = '[[operations]]\ninclude-path-regex = "/events$"\nchecks.negative_data_rejection.enabled = false\n'


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OrbitGateway]:
    home = tmp_path_factory.mktemp("home")
    write_acl(home)
    with (
        OrbitUp(aclEnable="true", enablePropertyFilter="true", rocketmqHome=home) as up,
        OrbitGateway(up.namesrv_address) as running,
    ):
        assert running.caller(OWNER).post(f"/v1/topics/{TOPIC}/messages", {"body": "x"}).status == 200
        yield running


def fuzzed(gateway: OrbitGateway, directory: Path, settings: str, examples: int, seed: int) -> int:
    """The number of requests, of which none is answered otherwise than the document says, or with a server error."""
    config = directory / "schemathesis.toml"
    config.write_text(f"{settings}\n{LISTS}", encoding="utf-8")
    report = directory / "report.ndjson"
    command: list[object] = [
        *(SCHEMATHESIS, "--config-file", config, "run", f"{gateway.url}/openapi.json"),
        *("--auth", f"{OWNER.access_key}:{OWNER.secret_key}", "--seed", seed),
        *("--max-examples", examples, "--request-timeout", 60, "--no-color", "--report-ndjson-path", report),
        # Brokers have rules that no schema can say, such as how far ahead a message may be delivered. Server errors are
        # looked for in the report.
        *("--exclude-checks", "positive_data_acceptance,not_a_server_error"),
    ]
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "tests.support.gateway_hooks", "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, cwd=directory, timeout=270, env=environment
    )
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]
    counted = re.search(r"(\d+) generated, (\d+) passed", ended.stdout)
    assert counted is not None, ended.stdout[-2000:]
    assert counted[1] == counted[2]
    print(f"schemathesis: {counted[0]}, {len(_server_errors(report))} server errors")
    assert not _server_errors(report)
    return int(counted[1])


def _server_errors(report: Path) -> list[str]:
    """503 and 504 are none: the document says that they may be tried again, and a busy broker causes them rightly."""
    found = []
    for line in report.read_text(encoding="utf-8").splitlines():
        found += re.findall(r'"status_code": ?(50[0-2])', line)
    return found


def test_no_request_of_its_own_document_is_a_server_error(gateway: OrbitGateway, tmp_path: Path) -> None:
    assert fuzzed(gateway, tmp_path, KNOWN, 3, 1) > 200
    assert gateway.caller(OWNER).get("/readyz").status == 200


@pytest.mark.long
@pytest.mark.parametrize("settings", [KNOWN, ""], ids=["a topic that exists", "any topic"])
def test_no_request_of_many_is_a_server_error(gateway: OrbitGateway, tmp_path: Path, settings: str) -> None:
    assert fuzzed(gateway, tmp_path, settings, 100, 2) > 1000
