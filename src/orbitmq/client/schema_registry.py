"""The schema registry of a client, by its settings."""

from __future__ import annotations

from orbitmq.client.settings import ClientSettings
from orbitmq.operations.registry import RegistryOptions


def registry_options(settings: ClientSettings) -> RegistryOptions | None:
    """How the registry is reached; None without one. ConfigurationError for a URL that is none."""
    urls = [url.strip() for url in settings["schema_registry"].split(",") if url.strip()]
    if not urls:
        return None
    return RegistryOptions(
        urls,
        user=settings["schema_registry_user"],
        secret=settings["schema_registry_secret"],
        secret_file=settings["schema_registry_secret_file"],
        ca_file=settings["schema_registry_ca_file"],
        timeout_s=settings["schema_registry_timeout_ms"] / 1000,
    )
