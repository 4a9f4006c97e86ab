"""Tasks that send messages, and that consume those which are there."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final, cast

from airflow.sdk import BaseOperator

from orbitmq.client.sync import PullConsumer, TopicRead
from orbitmq.errors import ConfigurationError
from orbitmq.integrations.airflow.hooks import GROUP, RocketMQHook
from orbitmq.integrations.airflow.messages import messages_of, selector_of
from orbitmq.message.config import TAG
from orbitmq.message.model import MessageExt, MessageQueue

AT_ONCE: Final = 1000  # sends that are not confirmed: as many as a producer has in flight


class ProduceOperator(BaseOperator):  # type: ignore[misc]
    """Sends messages to `topic`, and returns how many.

    `messages` is a value or a list of them, or else `producer_function` returns either, called with
    `producer_function_args` and `producer_function_kwargs`; it may also be a generator. Bytes and text are the body of
    a message as they are, a Message is sent as it is, other values become JSON. `keys`, `tags`, `properties` and
    `delay` (seconds, a timedelta, or a datetime with a time zone) are those of each message that is not a Message.

    The task succeeds when brokers have confirmed every message. One that fails may have sent some of them, and its next
    try sends all of them. ConfigurationError for arguments that are not valid; MessageIllegal, BrokerError,
    ClientError, RemotingError.
    """

    template_fields = (
        "topic", "messages", "producer_function_args", "producer_function_kwargs", "keys", "tags", "properties",
        "delay", "rocketmq_conn_id",
    )  # fmt: skip

    def __init__(
        self,
        *,
        topic: str,
        messages: Any = None,
        producer_function: Callable[..., Any] | None = None,
        producer_function_args: Sequence[Any] = (),
        producer_function_kwargs: Mapping[str, Any] | None = None,
        keys: str | Iterable[str] | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        delay: timedelta | datetime | float | str | None = None,
        producer_group: str = GROUP,
        rocketmq_conn_id: str = RocketMQHook.default_conn_name,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        if (messages is None) == (producer_function is None):
            raise ConfigurationError("give either messages or producer_function")
        self.topic = topic
        self.messages = messages
        self.producer_function = producer_function
        self.producer_function_args = producer_function_args
        self.producer_function_kwargs = producer_function_kwargs
        self.keys = keys
        self.tags = tags
        self.properties = properties
        self.delay = delay
        self.producer_group = producer_group
        self.rocketmq_conn_id = rocketmq_conn_id

    def execute(self, context: Mapping[str, Any]) -> int:  # noqa: ARG002 - as Airflow calls it
        """Send the messages."""
        given = self.messages
        if self.producer_function is not None:
            given = self.producer_function(*self.producer_function_args, **(self.producer_function_kwargs or {}))
        messages = messages_of(
            self.topic, given, keys=self.keys, tags=self.tags, properties=self.properties, delay=self.delay
        )
        sent = 0
        with RocketMQHook(self.rocketmq_conn_id).producer(self.producer_group) as producer:
            while some := [producer.send_async(message) for message in islice(messages, AT_ONCE)]:
                results = [one.result() for one in some]
                sent += len(results)
                self.log.info("sent %d messages, the last one is %s", sent, results[-1].msg_id)
        return sent


class ConsumeOperator(BaseOperator):  # type: ignore[misc]
    """Consumes what `group` has not consumed of `topics` when the task begins, up to `max_messages` of it, and returns
    how many messages that were. A group without offsets begins with the first message.

    `apply_function` is called with each message (a `MessageExt`), `apply_function_batch` with a list of up to
    `max_batch_size` messages, and either with `apply_function_args` and `apply_function_kwargs`. `expression` is a tag
    expression, or with the `expression_type` `SQL92` one of properties.

    The offsets of the group are stored after each batch, behind the last message for which the function returned. If it
    raises, the task fails, and its next try begins with that message: delivery is at least once, and in the order of
    each queue. Two tasks that run at the same time for one group would consume the same messages.

    ConfigurationError for arguments that are not valid; BrokerError, ClientError, RemotingError.
    """

    template_fields = (
        "topics", "group", "expression", "apply_function_args", "apply_function_kwargs", "max_messages",
        "rocketmq_conn_id",
    )  # fmt: skip

    def __init__(
        self,
        *,
        topics: str | Sequence[str],
        group: str,
        apply_function: Callable[..., object] | None = None,
        apply_function_batch: Callable[..., object] | None = None,
        apply_function_args: Sequence[Any] = (),
        apply_function_kwargs: Mapping[str, Any] | None = None,
        expression: str = "*",
        expression_type: str = TAG,
        max_messages: int | None = None,
        max_batch_size: int = 32,
        rocketmq_conn_id: str = RocketMQHook.default_conn_name,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        if (apply_function is None) == (apply_function_batch is None):
            raise ConfigurationError("give either apply_function or apply_function_batch")
        if max_batch_size < 1:
            raise ConfigurationError(f"max_batch_size {max_batch_size} is not allowed; use 1 or more")
        self.topics = topics
        self.group = group
        self.apply_function = apply_function
        self.apply_function_batch = apply_function_batch
        self.apply_function_args = apply_function_args
        self.apply_function_kwargs = apply_function_kwargs
        self.expression = expression
        self.expression_type = expression_type
        self.max_messages = max_messages
        self.max_batch_size = max_batch_size
        self.rocketmq_conn_id = rocketmq_conn_id

    def execute(self, context: Mapping[str, Any]) -> int:  # noqa: ARG002 - as Airflow calls it
        """Consume the messages."""
        most = None if self.max_messages is None else int(self.max_messages)
        topics = [self.topics] if isinstance(self.topics, str) else self.topics
        consumed = 0
        with RocketMQHook(self.rocketmq_conn_id).pull_consumer(self.group) as consumer:
            for topic in topics:
                consumed += self._consume(consumer, topic, None if most is None else most - consumed)
        self.log.info("group %s has consumed %d messages", self.group, consumed)
        return consumed

    def _consume(self, consumer: PullConsumer, topic: str, most: int | None) -> int:
        """What is there of a topic, up to so many messages."""
        read, consumed = self._backlog(consumer, topic), 0
        with closing(cast("Generator[MessageExt, None, None]", iter(read))) as messages:
            while most is None or consumed < most:
                room = self.max_batch_size if most is None else min(self.max_batch_size, most - consumed)
                if not (batch := list(islice(messages, room))):
                    _commit(consumer, read.ends)  # behind what the expression leaves out, too
                    break
                self._apply(consumer, batch)
                consumed += len(batch)
        return consumed

    def _backlog(self, consumer: PullConsumer, topic: str) -> TopicRead:
        starts = {}
        for queue in consumer.fetch_queues(topic):
            first, end = consumer.min_offset(queue), consumer.max_offset(queue)
            offset = consumer.fetch_offset(queue)
            starts[queue] = first if offset < 0 else min(max(offset, first), end)
            if 0 <= offset != starts[queue]:
                self.log.warning("%s has no message %d any more: going on at %d", queue, offset, starts[queue])
        return consumer.read_all(topic, selector_of(self.expression, self.expression_type), start=starts)

    def _apply(self, consumer: PullConsumer, batch: list[MessageExt]) -> None:
        """Call the function, and store the offsets behind what it has done."""
        more = self.apply_function_args, self.apply_function_kwargs or {}
        if self.apply_function_batch is not None:
            self.apply_function_batch(batch, *more[0], **more[1])
            _commit(consumer, _behind(batch))
            return
        assert self.apply_function is not None, "the constructor has seen one of them"
        done: list[MessageExt] = []
        try:
            for message in batch:
                self.apply_function(message, *more[0], **more[1])
                done.append(message)
        finally:
            _commit(consumer, _behind(done))


def _behind(messages: Iterable[MessageExt]) -> dict[MessageQueue, int]:
    """The next offset of each queue: its messages are in order."""
    return {message.queue: message.queue_offset + 1 for message in messages}


def _commit(consumer: PullConsumer, offsets: Mapping[MessageQueue, int]) -> None:
    for queue, offset in offsets.items():
        consumer.update_offset(queue, offset)
    consumer.store_offsets()
