"""A context's certificates count for what a command asks itself, and for the clients it begins."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.cli.contexts import Context
from orbitmq.cli.tls import client_settings, tls_context
from orbitmq.errors import ConfigurationError
from orbitmq.testing.cluster import Cluster
from tests.support.certificates import Authority
from tests.support.commands import orbitmq


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def shown(authority: Authority, name: str) -> dict[str, str]:
    """What a client of this authority says."""
    pair = authority.issue(name)
    return {
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(authority.path),
        "tls.client.certPath": str(pair.certificate),
        "tls.client.keyPath": str(pair.key),
    }


@pytest.fixture(scope="module")
def cluster(authority: Authority) -> Iterator[Cluster]:
    """It takes encrypted connections only, and only of those with a certificate of the authority."""
    pair = authority.issue("server")
    options = {
        "tls.server.mode": "enforcing",
        "tls.test.mode.enable": "false",
        "tls.server.certPath": str(pair.certificate),
        "tls.server.keyPath": str(pair.key),
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": str(authority.path),
        **shown(authority, "broker"),
    }
    with Cluster(options=options) as running:
        yield running


def kept(path: Path, cluster: Cluster, tls: dict[str, str]) -> str:
    """A file with one context."""
    pairs = ", ".join(f'"{key}" = "{value}"' for key, value in tls.items())
    path.write_text(f'[contexts.c]\nnameServers = ["{cluster.namesrv_address}"]\ntls = {{ {pairs} }}\n')
    return str(path)


def test_a_load_shows_the_certificate_of_its_context(
    cluster: Cluster, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = ("bench", "send", "--messages", 3, "--warm-up", 0, "-s", 20, "--context", "c")
    monkeypatch.setenv("ORBITMQ_CONFIG", kept(tmp_path / "right.toml", cluster, shown(authority, "administrator")))
    orbitmq("topic", "list", "--context", "c")
    orbitmq(*load)


def test_a_server_of_another_authority_is_not_believed_by_a_context_that_checks(
    cluster: Cluster, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Authority(tmp_path, "other")
    tls = {**shown(authority, "administrator"), "tls.client.trustCertPath": str(other.path)}
    monkeypatch.setenv("ORBITMQ_CONFIG", kept(tmp_path / "wrong.toml", cluster, tls))
    assert "verif" in orbitmq("topic", "list", "--context", "c", code=5).stderr


def test_a_context_without_checks_has_none_in_clients_either() -> None:
    settings = client_settings(Context(tls={}))
    assert (settings["tls"], settings["tls_verify"], settings["tls_check_host"]) == (True, False, False)
    made = tls_context(Context(tls={}))
    assert made is not None
    assert made.verify_mode is ssl.CERT_NONE
    assert (client_settings(Context()), tls_context(Context())) == ({"tls": False}, None)
    tested = {"tls.client.authServer": "true", "tls.test.mode.enable": "true"}
    assert not client_settings(Context(tls=tested))["tls_verify"]


def test_clients_are_none_where_addresses_are_mapped() -> None:
    with pytest.raises(ConfigurationError, match="--map-addr"):
        client_settings(Context(addresses={"a:1": "b:1"}))
