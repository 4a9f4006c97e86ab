"""Named clusters, and which one a command uses: flags first, then the environment, then a context of the file.

The file is TOML, `~/.config/orbitmq/config.toml` (XDG_CONFIG_HOME and ORBITMQ_CONFIG are followed):

    current = "production"

    [contexts.production]
    nameServers = ["10.0.0.1:9876", "10.0.0.2:9876"]
    cluster = "DefaultCluster"            # if the name servers know several
    accessKey = "admin"
    secretKey = { env = "ROCKETMQ_SECRET" }   # or file = "/path", or command = ["pass", "show", "rocketmq"]
    protected = true                      # every change prompts for the context's name, even with --yes
    readonly = true                       # no change at all
    mapAddr = { "172.17.0.2:10911" = "127.0.0.1:10911" }
    remember = "72h"                      # how long a stopped broker is reported as missing; "0" for not at all
    tls = { "tls.client.authServer" = "true" }  # keys as in tls.properties; an empty table is TLS without checks

Secrets are only referenced there. Must not know what commands do with the cluster.
"""

from __future__ import annotations

import os
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orbitmq.admin.memory import KEEP_MS
from orbitmq.admin.time_texts import span_ms
from orbitmq.errors import AdminError, ConfigurationError
from orbitmq.wire.signature import Credentials

DEFAULT_NAME_SERVER = "127.0.0.1:9876"
SECRET_COMMAND_SECONDS = 30
"""Timeout of a command that prints a secret: a password manager may prompt its user."""
FILE_BYTES_MAX = 1 << 20
"""Limit of the file, which is read into memory."""
_KEYS = {"nameServers", "cluster", "accessKey", "secretKey", "protected", "readonly", "mapAddr", "tls", "remember"}
_REFERENCES = ("env", "file", "command")


@dataclass(frozen=True, slots=True)
class Context:
    """How to reach one cluster."""

    name: str = ""
    """Empty if only flags and the environment were used."""
    name_servers: tuple[str, ...] = (DEFAULT_NAME_SERVER,)
    cluster: str | None = None
    access_key: str = ""
    secret: Mapping[str, Any] | str = field(default="", repr=False)
    """The secret key, or where it is stored."""
    protected: bool = False
    readonly: bool = False
    addresses: Mapping[str, str] = field(default_factory=dict)
    """`host:port` that brokers register -> their address as seen from here."""
    tls: Mapping[str, str] | None = None
    """None: connections are not encrypted."""
    remember: str | None = None
    """How long a stopped broker is reported as missing, for example `72h`; None for the default, 72 hours."""

    def remember_ms(self, environment: Mapping[str, str] = os.environ) -> int:
        """ORBITMQ_REMEMBER overrides the file. ConfigurationError if it is not a time span."""
        text = environment.get("ORBITMQ_REMEMBER") or self.remember
        try:
            return KEEP_MS if text is None else span_ms(text)
        except AdminError as error:
            raise ConfigurationError(f"remember: {error}; {error.hint}") from error

    def credentials(self) -> Credentials | None:
        """The account; its secret is fetched now. ConfigurationError if that fails."""
        if not self.access_key:
            return None
        return Credentials(self.access_key, _secret(self.name, self.secret))


def choose(
    name_servers: Sequence[str],
    context: str | None,
    cluster: str | None,
    mapped: Sequence[str] = (),
    environment: Mapping[str, str] = os.environ,
) -> Context:
    """The cluster to use. A given name server (flag, else NAMESRV_ADDR) overrides those of the current context; then
    the context's account is not used, because it belongs to another cluster. A named context (flag or ORBITMQ_CONTEXT)
    overrides NAMESRV_ADDR."""
    given = split_addresses(name_servers)
    context = context or (None if given else environment.get("ORBITMQ_CONTEXT") or None)
    if not given and context is None:
        given = split_addresses([environment.get("NAMESRV_ADDR", "")])
    if given and context is None:
        chosen = Context(name_servers=given)
    else:
        chosen = _stored(context, environment)
        chosen = replace(chosen, name_servers=given) if given else chosen
    if not chosen.access_key:
        access_key, secret = _account_of(environment)
        chosen = replace(chosen, access_key=access_key, secret=secret)
    addresses = {**chosen.addresses, **dict(map(address_pair, mapped))}
    return replace(chosen, cluster=cluster or chosen.cluster, addresses=addresses)


def split_addresses(texts: Sequence[str]) -> tuple[str, ...]:
    """`host:port` each, separated by `;` or `,`, because `;` needs quotes in a shell."""
    found = tuple(part.strip() for text in texts for part in text.replace(",", ";").split(";") if part.strip())
    for address in found:
        host, _, port = address.rpartition(":")
        if not host or "/" in host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ConfigurationError(f"name server {address!r}: use host:port, for example 127.0.0.1:9876")
    return found


def path_of(environment: Mapping[str, str] = os.environ) -> Path:
    """The path of the file of contexts."""
    if named := environment.get("ORBITMQ_CONFIG"):
        return Path(named).expanduser()
    home = environment.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "orbitmq" / "config.toml"


def load(path: Path) -> dict[str, Any]:
    """The file's tables; empty if there is no file. ConfigurationError names the file and the position."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return {}
    if len(data) > FILE_BYTES_MAX:
        raise ConfigurationError(f"{path}: larger than {FILE_BYTES_MAX} bytes; this is not a file of contexts")
    if not data:
        raise ConfigurationError(f"{path}: the file is empty, its contexts are lost; restore or remove it")
    try:
        return tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: {error}") from error


def _stored(name: str | None, environment: Mapping[str, str]) -> Context:
    path = path_of(environment)
    tables = load(path)
    name = name or tables.get("current")
    if name is None:
        return Context()
    found = tables.get("contexts", {}).get(name)
    if found is None:
        known = ", ".join(tables.get("contexts", {})) or "none"
        raise ConfigurationError(f"there is no context {name} in {path} (known: {known}); orbitmq context add {name}")
    return parse(name, found, path)


def parse(name: str, table: Mapping[str, Any], path: Path) -> Context:
    """One context of the file. ConfigurationError for an unknown key or a value of the wrong type."""
    where = f"{path}: context {name}"
    if odd := set(table) - _KEYS:
        raise ConfigurationError(
            f"{where}: unknown key {', '.join(sorted(odd))}; known keys: {', '.join(sorted(_KEYS))}"
        )
    if isinstance(table.get("secretKey"), str):
        raise ConfigurationError(
            f'{where}: a secret must not be in the file; use secretKey = {{ env = "NAME" }}, file or command'
        )
    servers = table.get("nameServers", [DEFAULT_NAME_SERVER])
    made = Context(
        name=name,
        name_servers=split_addresses([servers] if isinstance(servers, str) else servers),
        cluster=table.get("cluster"),
        access_key=table.get("accessKey", ""),
        secret=table.get("secretKey", ""),
        protected=bool(table.get("protected")),
        readonly=bool(table.get("readonly")),
        addresses=dict(table.get("mapAddr", {})),
        remember=None if "remember" not in table else str(table["remember"]),
        tls=None if "tls" not in table else {str(key): str(value) for key, value in table["tls"].items()},
    )
    made.remember_ms({})
    return made


def _secret(context: str, reference: Mapping[str, Any] | str) -> str:
    if isinstance(reference, str):
        return reference
    where = f"context {context}: secretKey"
    kind = next((kind for kind in _REFERENCES if kind in reference), None)
    if kind == "env":
        secret = os.environ.get(reference["env"], "")
        if not secret:
            raise ConfigurationError(f"{where}: the environment has no {reference['env']}")
        return secret
    if kind == "file":
        path = Path(reference["file"]).expanduser()
        try:
            return path.read_text().strip()
        except OSError as error:
            raise ConfigurationError(f"{where}: {path}: {error.strerror}") from error
    if kind == "command":
        return _command_output(reference["command"], where)
    raise ConfigurationError(f"{where}: use one of {', '.join(_REFERENCES)}")


def _command_output(command: Sequence[str], where: str) -> str:
    if isinstance(command, str):
        raise ConfigurationError(f'{where}: use a list, ["pass", "show", "rocketmq"]')
    try:
        ended = subprocess.run(  # noqa: S603 -- the command is from the user's own file, and no shell reads it
            list(command), capture_output=True, text=True, timeout=SECRET_COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(f"{where}: {command[0]}: {error}") from error
    if ended.returncode:
        raise ConfigurationError(f"{where}: {command[0]} ended with {ended.returncode}: {ended.stderr.strip()[:200]}")
    return ended.stdout.strip()


def _account_of(environment: Mapping[str, str]) -> tuple[str, str]:
    """From ORBITMQ_ACCESS_KEY and ORBITMQ_SECRET_KEY, else from `$ROCKETMQ_HOME/conf/tools.yml`, as in mqadmin."""
    if access_key := environment.get("ORBITMQ_ACCESS_KEY", ""):
        return access_key, environment.get("ORBITMQ_SECRET_KEY", "")
    home = environment.get("ROCKETMQ_HOME")
    path = Path(home, "conf", "tools.yml") if home else None
    if path is None or not path.is_file():
        return "", ""
    import yaml

    try:
        account = yaml.safe_load(path.read_text()) or {}
        return str(account.get("accessKey") or ""), str(account.get("secretKey") or "")
    except (OSError, yaml.YAMLError, AttributeError) as error:
        raise ConfigurationError(f"{path}: {error}") from error


def address_pair(text: str) -> tuple[str, str]:
    """FROM=TO of --map-addr."""
    from_, equals, to = text.partition("=")
    if not equals:
        raise ConfigurationError(f"--map-addr {text}: use FROM=TO, for example 172.17.0.2:10911=127.0.0.1:10911")
    return from_.strip(), to.strip()
