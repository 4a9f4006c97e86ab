"""Options of TLS, for servers and their clients. Keys are RocketMQ's: system properties or a file of their own there,
which the daemon's configuration file may contain as well here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orbitmq.errors import ConfigurationError
from orbitmq.runtime.options import Options, option, read_properties

CONFIG_FILE_KEY, DEFAULT_CONFIG_FILE = "tls.config.file", "/etc/rocketmq/tls.properties"
MODES = DISABLED, PERMISSIVE, ENFORCING = "disabled", "permissive", "enforcing"


@dataclass(frozen=True)
class TlsOptions(Options):
    """How connections are encrypted, on the port that serves plain ones as well."""

    config_file: str = option(
        CONFIG_FILE_KEY,
        DEFAULT_CONFIG_FILE,
        "File with further keys that begin with `tls.`; the daemon's own file takes precedence.",
    )
    mode: str = option(
        "tls.server.mode",
        PERMISSIVE,
        "Accept plain connections only, both kinds, or encrypted ones only.",
        choices=MODES,
    )
    test_mode: bool = option(
        "tls.test.mode.enable",
        True,
        "Servers without a certificate create a self-signed one; clients accept any certificate.",
    )
    cert_path: str = option(
        "tls.server.certPath", "", "Certificate chain of a server, PEM; read again when it changes."
    )
    key_path: str = option("tls.server.keyPath", "", "Its private key, PEM; empty if it is in the same file.")
    key_password: str = option("tls.server.keyPassword", "", "Password of the private key.", secret=True)
    client_auth: str = option(
        "tls.server.need.client.auth",
        "none",
        "Whether clients show a certificate.",
        choices=("none", "optional", "require"),
    )
    verify_clients: bool = option(
        "tls.server.authClient", False, "Check the certificates that clients show against tls.server.trustCertPath."
    )
    trust_path: str = option("tls.server.trustCertPath", "", "CA certificates that sign those of clients, PEM.")
    use_tls: str = option(
        "useTLS",
        "auto",
        "Whether the broker connects to name servers over TLS; auto: if it accepts only encrypted connections itself.",
        choices=("auto", "true", "false"),
    )
    verify_servers: bool = option(
        "tls.client.authServer", False, "Check the certificates of servers, unless tls.test.mode.enable is true."
    )
    client_trust_path: str = option("tls.client.trustCertPath", "", "CA certificates that sign those of servers, PEM.")
    client_cert_path: str = option("tls.client.certPath", "", "Certificate chain to show to servers, PEM.")
    client_key_path: str = option("tls.client.keyPath", "", "Its private key, PEM.")
    client_key_password: str = option("tls.client.keyPassword", "", "Password of that key.", secret=True)

    @property
    def uses_tls(self) -> bool:
        """Whether connections to others are encrypted."""
        return self.use_tls == "true" or (self.use_tls == "auto" and self.mode == ENFORCING)


def with_tls_file(pairs: Mapping[str, str]) -> dict[str, str]:
    """`pairs`, with those of the TLS file as defaults. ConfigurationError if a named file is missing."""
    named = pairs.get(CONFIG_FILE_KEY) or DEFAULT_CONFIG_FILE
    path = Path(named).expanduser()
    if not path.is_file():
        if named != DEFAULT_CONFIG_FILE:
            raise ConfigurationError(f"option {CONFIG_FILE_KEY}: {path} is not a file")
        return dict(pairs)
    return {key: value for key, value in read_properties(path).items() if key.startswith("tls.")} | dict(pairs)
