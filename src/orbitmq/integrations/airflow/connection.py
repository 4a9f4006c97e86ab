"""What a connection of Airflow means to clients. Pure; knows nothing of Airflow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Protocol, cast

from orbitmq.client.settings import ClientSettings, options_of
from orbitmq.errors import ConfigurationError

NAME_SERVER_PORT: Final = 9876
_LOGIN: Final = {"access_key": "login", "secret_key": "password"}
"""Settings that the connection has fields for, which Airflow hides."""


class Fields(Protocol):
    """A connection of Airflow."""

    conn_id: str
    host: str | None
    port: int | None
    login: str | None
    password: str | None

    @property
    def extra_dejson(self) -> Mapping[str, Any]: ...


def client_arguments(connection: Fields) -> tuple[str, ClientSettings]:
    """The addresses of the name servers, and settings of every client. ConfigurationError names the connection and what
    is wrong in it, but no secret.
    """
    settings = _settings(connection)
    servers = _servers(connection)
    if not servers and not settings.get("namesrv_domain"):
        raise ConfigurationError(
            f"connection {connection.conn_id} has no name server; set its host, for example 10.0.0.1:9876"
        )
    return servers, settings


def _servers(connection: Fields) -> str:
    port = connection.port or NAME_SERVER_PORT
    parts = [part.strip() for part in re.split(r"[;,]", connection.host or "") if part.strip()]
    return ";".join(part if re.search(r":\d+$", part) else f"{part}:{port}" for part in parts)


def _settings(connection: Fields) -> ClientSettings:
    declared = options_of(ClientSettings)
    settings: dict[str, object] = {}
    for given, value in connection.extra_dejson.items():
        name = "tls" if given == "use_tls" else given
        where = f"extra {given!r} of connection {connection.conn_id}"
        if name in _LOGIN:
            raise ConfigurationError(f"{where} is not allowed; use its field {_LOGIN[name]}")
        if value is None:  # a field of the form that is empty
            continue
        if name not in declared:
            raise ConfigurationError(f"{where} is not known; it may have use_tls, {', '.join(sorted(declared))}")
        # A connection that is written as a URI has only text.
        settings[name] = replace(declared[name], key=where).parse(value) if isinstance(value, str) else value
    for name, field in _LOGIN.items():
        if value := getattr(connection, field):
            settings[name] = value
    return cast("ClientSettings", settings)
