"""What Airflow reads of the provider at its start. Imports nothing of Airflow, and nothing heavy."""

from __future__ import annotations

from typing import Any, Final

_ROOM: Final = "orbitmq.integrations.airflow"
_NAME: Final = "Apache RocketMQ"


def get_provider_info() -> dict[str, Any]:
    """The description of the provider, in the form that Airflow checks with `provider_info.schema.json`."""

    def having(module: str) -> list[dict[str, Any]]:
        return [{"integration-name": _NAME, "python-modules": [f"{_ROOM}.{module}"]}]

    return {
        "package-name": "orbitmq",
        "name": _NAME,
        "description": "Messages of Apache RocketMQ and orbitmq.",
        "integrations": [
            {"integration-name": _NAME, "external-doc-url": "https://rocketmq.apache.org/", "tags": ["apache"]}
        ],
        **{kind: having(kind) for kind in ("hooks", "operators", "sensors", "triggers")},
        "connection-types": [
            {
                "connection-type": "rocketmq",
                "hook-class-name": f"{_ROOM}.hooks.RocketMQHook",
                "hook-name": _NAME,
                "ui-field-behaviour": {
                    "hidden-fields": ["schema"],
                    "relabeling": {"host": "Name servers", "login": "Access key", "password": "Secret key"},
                    "placeholders": {"host": "10.0.0.1:9876;10.0.0.2:9876", "port": "9876"},
                },
                "conn-fields": {
                    "use_tls": {"label": "Use TLS", "schema": {"type": ["boolean", "null"]}},
                    "namespace": {"label": "Namespace", "schema": {"type": ["string", "null"]}},
                },
            }
        ],
        "queues": [f"{_ROOM}.queues.RocketMQMessageQueueProvider"],
    }
