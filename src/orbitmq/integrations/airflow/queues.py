"""The provider for Airflow's common messaging: `MessageQueueTrigger(scheme="rocketmq", ...)`."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from airflow.providers.common.messaging.providers.base_provider import BaseMessageQueueProvider

from orbitmq.integrations.airflow.triggers import AwaitMessageTrigger

SCHEME: Final = "rocketmq"


class RocketMQMessageQueueProvider(BaseMessageQueueProvider):  # type: ignore[misc]
    """Makes an AwaitMessageTrigger of the arguments of `MessageQueueTrigger`.

    With its deprecated argument `queue`, `rocketmq://CONNECTION/TOPIC,TOPIC` names the connection, by default
    `rocketmq_default`, and the topics.
    """

    scheme = SCHEME

    def queue_matches(self, queue: str) -> bool:
        """Whether a URI is one of RocketMQ."""
        return urlsplit(queue).scheme == SCHEME

    def trigger_class(self) -> type[AwaitMessageTrigger]:
        """The trigger."""
        return AwaitMessageTrigger

    def trigger_kwargs(self, queue: str, **given: Any) -> dict[str, Any]:
        """What the URI says and the arguments do not."""
        parts = urlsplit(queue)
        said: dict[str, Any] = {"topics": parts.path.lstrip("/").split(",")}
        if parts.netloc:
            said["rocketmq_conn_id"] = parts.netloc
        return {name: value for name, value in said.items() if name not in given}
