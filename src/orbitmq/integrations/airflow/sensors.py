"""A task that waits for a message, and takes no worker meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseSensorOperator

from orbitmq.integrations.airflow.hooks import RocketMQHook
from orbitmq.integrations.airflow.messages import received, selector_of
from orbitmq.integrations.airflow.triggers import AwaitMessageTrigger
from orbitmq.message.config import TAG


class AwaitMessageSensor(BaseSensorOperator):  # type: ignore[misc]
    """Waits in the triggerer for a message of `topics` that `group` has not consumed, and returns it.

    Arguments are those of AwaitMessageTrigger, and of every sensor: after `timeout` seconds it fails, or with
    `soft_fail` it is skipped. It acknowledges the message when it goes on, so `visibility_timeout` has to be longer
    than the time from the event until a worker takes the task: a message whose time is over is delivered again.
    """

    template_fields = (
        "topics", "group", "expression", "apply_function", "apply_function_args", "apply_function_kwargs",
        "rocketmq_conn_id",
    )  # fmt: skip

    def __init__(
        self,
        *,
        topics: str | Sequence[str],
        group: str,
        expression: str = "*",
        expression_type: str = TAG,
        apply_function: str | None = None,
        apply_function_args: Sequence[Any] = (),
        apply_function_kwargs: Mapping[str, Any] | None = None,
        visibility_timeout: float = 600.0,
        rocketmq_conn_id: str = RocketMQHook.default_conn_name,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self.topics = topics
        self.group = group
        self.expression = expression
        self.expression_type = expression_type
        self.apply_function = apply_function
        self.apply_function_args = apply_function_args
        self.apply_function_kwargs = apply_function_kwargs
        self.visibility_timeout = visibility_timeout
        self.rocketmq_conn_id = rocketmq_conn_id

    def execute(self, context: Mapping[str, Any]) -> None:  # noqa: ARG002 - as Airflow calls it
        """Wait in the triggerer."""
        self.defer(
            trigger=self._trigger(),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout) if self.timeout else None,
        )

    def execute_complete(self, context: Mapping[str, Any], event: Mapping[str, Any]) -> Any:  # noqa: ARG002 - the same
        """Acknowledge the message, and return the value of its event. BrokerError, ClientError, RemotingError."""
        with RocketMQHook(self.rocketmq_conn_id).simple_consumer(self.group) as consumer:
            for topic in self._trigger().topics:  # of all members of a group a broker expects the same
                consumer.subscribe(topic, selector_of(self.expression, self.expression_type))
            consumer.ack(received(event["receipt"]))
        return event["value"]

    def _trigger(self) -> AwaitMessageTrigger:
        return AwaitMessageTrigger(
            topics=self.topics,
            group=self.group,
            expression=self.expression,
            expression_type=self.expression_type,
            apply_function=self.apply_function,
            apply_function_args=self.apply_function_args,
            apply_function_kwargs=self.apply_function_kwargs,
            visibility_timeout=self.visibility_timeout,
            rocketmq_conn_id=self.rocketmq_conn_id,
        )
