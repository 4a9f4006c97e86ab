"""`orbitmq gateway` as an operator starts it: on which addresses, with which certificate, with whose account."""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.support.access import ADMIN, write_acl
from tests.support.certificates import Authority
from tests.support.commands import orbitmq
from tests.support.gateways import OrbitGateway
from tests.support.orbit_process import ORBITMQ, OrbitUp
from tests.support.process import free_port

NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--host", "0.0.0.0"), "--plain"),
        (("--host", "::", "--proxy", "10.0.0.8"), "--tls-cert"),
        (("--tls-cert", "c.pem"), "belong together"),
        (("--tls-cert", "c.pem", "--tls-key", "k.pem"), "c.pem"),
        (("--proxy", "*"), "--proxy"),
        (("--context", "none"), "none"),
    ],
)
def test_another_address_needs_tls_or_a_word(options: tuple[str, ...], text: str, tmp_path: Path) -> None:
    servers = () if "--context" in options else ("-n", NOBODY)
    command = [ORBITMQ, "gateway", *servers, "--port", str(free_port()), *options]  # it would set up logging here
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert text in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_context_whose_brokers_are_reached_elsewhere_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    orbitmq("context", "add", "far", "-n", NOBODY, "--map-addr", "10.0.0.1:10911=127.0.0.1:10911")
    assert "maps addresses" in orbitmq("gateway", "--context", "far", "--port", 0, code=2).stderr


def test_with_a_certificate_it_speaks_https_under_any_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    pair = authority.issue("gateway")
    with OrbitGateway(NOBODY, "--tls-cert", pair.certificate, "--tls-key", pair.key) as gateway:
        context = ssl.create_default_context(cafile=str(authority.path))
        context.check_hostname = False
        request = urllib.request.Request(f"https://127.0.0.1:{gateway.port}/healthz", headers={"Host": "any.example"})
        with urllib.request.urlopen(request, context=context, timeout=60) as response:
            assert json.loads(response.read()) == {"status": "ok"}


def test_without_one_it_has_the_names_it_is_given_and_addresses(tmp_path: Path) -> None:
    options = ("--host", "0.0.0.0", "--plain", "--allowed-host", "gateway.example")
    with OrbitGateway(NOBODY, *options) as gateway:
        found = {}
        for host in ("gateway.example", "10.1.2.3", "localhost", "evil.example"):
            peer = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
            peer.request("GET", "/healthz", headers={"Host": host})
            found[host] = peer.getresponse().status
            peer.close()
        assert found == {"gateway.example": 200, "10.1.2.3": 200, "localhost": 200, "evil.example": 421}


def test_an_account_of_the_operator_is_not_lent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORBITMQ_ACCESS_KEY", ADMIN.access_key)
    monkeypatch.setenv("ORBITMQ_SECRET_KEY", ADMIN.secret_key)
    write_acl(tmp_path)
    with (
        OrbitUp(aclEnable="true", rocketmqHome=tmp_path) as up,
        OrbitGateway(up.namesrv_address) as gateway,
    ):
        reply = gateway.caller().post("/v1/topics/orders/messages", {"body": "x"})
        assert (reply.status, "No accessKey is configured" in reply.body["detail"]) == (401, True)
        assert gateway.caller(ADMIN).post("/v1/topics/orders/messages", {"body": "x"}).status == 200
