"""TLS files and options: what is read, what is refused, and in which words."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.net.tls import ServerTls, client_context, outgoing_context, server_context
from orbitmq.net.tls_options import TlsOptions, with_tls_file
from tests.support.certificates import PASSWORD, Authority


def test_a_key_may_have_a_password_and_may_stand_beside_the_certificate(tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue("server", password=PASSWORD)
    server_context(TlsOptions(cert_path=str(pair.certificate), key_path=str(pair.key), key_password=PASSWORD))
    both = tmp_path / "both.pem"
    both.write_bytes(pair.certificate.read_bytes() + pair.key.read_bytes())
    server_context(TlsOptions(cert_path=str(both), key_password=PASSWORD))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cert_path": "{home}/none.pem"}, r"option tls\.server\.certPath: .*/none\.pem is not a file"),
        ({"key_path": "{home}/none.key"}, r"option tls\.server\.keyPath: .*/none\.key is not a file"),
        ({"key_password": "wrong"}, r"option tls\.server\.certPath: .*server\.crt with the key of .*server\.key"),
        ({"key_password": ""}, r"option tls\.server\.certPath: .* cannot be used"),
        ({"key_path": "{home}/other.key"}, r"cannot be used: key values mismatch"),
        ({"cert_path": "{home}/garbage"}, r"option tls\.server\.certPath: .*garbage .* cannot be used"),
        ({"client_auth": "require"}, r"option tls\.server\.need\.client\.auth: value 'require' .*authClient=true"),
        ({"verify_clients": True, "trust_path": "{home}/none"}, r"option tls\.server\.trustCertPath: .*/none"),
        ({"verify_clients": True, "trust_path": "{home}/garbage"}, r"option tls\.server\.trustCertPath: .*garbage"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server", password=PASSWORD)
    authority.issue("other")
    (tmp_path / "garbage").write_text("garbage")
    placed = {name: v.format(home=tmp_path) if isinstance(v, str) else v for name, v in changes.items()}
    good = {"cert_path": str(pair.certificate), "key_path": str(pair.key), "key_password": PASSWORD}
    with pytest.raises(ConfigurationError, match=said) as refused:
        server_context(TlsOptions(**{**good, **placed}))
    assert PASSWORD not in str(refused.value)


def test_old_versions_of_the_protocol_are_not_spoken(tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue("server")
    for context in (
        server_context(TlsOptions(cert_path=str(pair.certificate), key_path=str(pair.key))),
        client_context(TlsOptions()),
    ):
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
        assert context.options & ssl.OP_NO_RENEGOTIATION


def test_those_who_ask_verify_what_they_are_told_to() -> None:
    assert client_context(TlsOptions()).verify_mode == ssl.CERT_NONE
    assert client_context(TlsOptions(test_mode=False)).verify_mode == ssl.CERT_NONE
    assert client_context(TlsOptions(test_mode=False, verify_servers=True)).verify_mode == ssl.CERT_REQUIRED
    assert outgoing_context(verify=True, check_host=True, trusted="").check_hostname
    with pytest.raises(ConfigurationError, match=r"option tls\.client\.trustCertPath: /nowhere"):
        outgoing_context(verify=True, check_host=True, trusted="/nowhere")


def test_enforcing_without_a_certificate_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigurationError, match="enforcing needs a certificate"):
        ServerTls(TlsOptions(mode="enforcing", test_mode=False)).load()
    ServerTls(TlsOptions(mode="permissive", test_mode=False)).load()
    ServerTls(TlsOptions(mode="disabled", cert_path="/nowhere")).load()


def test_a_broker_that_takes_encrypted_connections_only_asks_that_way() -> None:
    assert TlsOptions(mode="enforcing").uses_tls
    assert not TlsOptions().uses_tls
    assert TlsOptions(use_tls="true").uses_tls
    assert not TlsOptions(mode="enforcing", use_tls="false").uses_tls


def test_keys_of_the_tls_file_stand_below_the_daemons_own(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text("tls.test.mode.enable=false\ntls.server.mode=enforcing\nlistenPort=1\n")
    pairs = with_tls_file({"tls.config.file": str(file), "tls.server.mode": "disabled", "listenPort": "2"})
    options = TlsOptions.parse(pairs)
    assert (options.test_mode, options.mode, pairs["listenPort"]) == (False, "disabled", "2")
    with pytest.raises(ConfigurationError, match=r"option tls\.config\.file: /nowhere is not a file"):
        with_tls_file({"tls.config.file": "/nowhere"})
    assert with_tls_file({"listenPort": "2"}) == {"listenPort": "2"}


def test_a_password_is_shown_to_nobody() -> None:
    assert PASSWORD not in repr(TlsOptions(key_password=PASSWORD, client_key_password=PASSWORD))
