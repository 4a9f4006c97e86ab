"""How a client protects its connections, by its settings: a signature on each request, and TLS.

Knows nothing of the requests.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial

from orbitmq.client.settings import ClientSettings
from orbitmq.errors import ConfigurationError
from orbitmq.net.tls import outgoing_context
from orbitmq.wire.command import Command
from orbitmq.wire.signature import Credentials, sign

PROTECTION = (
    "access_key",
    "secret_key",
    "security_token",
    "tls",
    "tls_verify",
    "tls_check_host",
    "tls_ca_file",
    "tls_cert_file",
    "tls_key_file",
    "tls_key_password",
)
"""Settings that two clients must share before they may share connections."""


def signer_of(settings: ClientSettings) -> Callable[[Command], None] | None:
    """What signs every request; None without an account. ConfigurationError when one of the two keys is missing."""
    access_key, secret_key = settings["access_key"], settings["secret_key"]
    if not access_key and not secret_key:
        return None
    if not access_key or not secret_key:
        raise ConfigurationError("settings access_key and secret_key: set both or none")
    return partial(sign, credentials=Credentials(access_key, secret_key, settings["security_token"]))


def tls_of(settings: ClientSettings) -> ssl.SSLContext | None:
    """What encrypts every connection; None for plain ones. ConfigurationError names a file that cannot be used."""
    if not settings["tls"]:
        return None
    return outgoing_context(
        verify=settings["tls_verify"],
        check_host=settings["tls_check_host"],
        trusted=settings["tls_ca_file"],
        certificate=settings["tls_cert_file"],
        key=settings["tls_key_file"],
        password=settings["tls_key_password"],
    )
