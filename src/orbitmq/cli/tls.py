"""Account and TLS of a context's connections, the same for requests of commands and for clients they run."""

from __future__ import annotations

import ssl
from typing import Any

from orbitmq.cli.contexts import Context
from orbitmq.errors import ConfigurationError
from orbitmq.net.tls import client_context
from orbitmq.net.tls_options import TlsOptions


def tls_context(context: Context) -> ssl.SSLContext | None:
    """The TLS context of connections; None for plain ones. ConfigurationError names a file that cannot be used."""
    options = _options(context)
    return None if options is None else client_context(options)


def client_settings(context: Context) -> dict[str, Any]:
    """Settings of clients that reach the cluster as the commands do. ConfigurationError if that is impossible."""
    if context.addresses:
        raise ConfigurationError("clients reach brokers where they register: not with --map-addr")
    return protection(context)


def protection(context: Context) -> dict[str, Any]:
    """The same settings, even if clients may not reach all brokers. Host names are not checked, as in commands."""
    account = context.credentials()
    keys = {} if account is None else {"access_key": account.access_key, "secret_key": account.secret_key}
    return {**keys, **tls_settings(context)}


def tls_settings(context: Context) -> dict[str, Any]:
    """The same settings without the account."""
    tls = _options(context)
    if tls is None:
        return {"tls": False}
    return {
        "tls": True, "tls_verify": tls.verify_servers and not tls.test_mode, "tls_check_host": False,
        "tls_ca_file": tls.client_trust_path, "tls_cert_file": tls.client_cert_path,
        "tls_key_file": tls.client_key_path, "tls_key_password": tls.client_key_password,
    }  # fmt: skip


def _options(context: Context) -> TlsOptions | None:
    """RocketMQ's test mode disables all checks. It is off here unless set, so that `tls.client.authServer` works."""
    return None if context.tls is None else TlsOptions.parse({"tls.test.mode.enable": "false", **context.tls})
