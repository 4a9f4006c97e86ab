"""The transport of kombu: exchanges and queues are those of its virtual transports, messages come from `link`."""

from __future__ import annotations

import select
import time
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from queue import Empty
from typing import Any, Final, NamedTuple

from amqp.protocol import queue_declare_ok_t
from kombu.transport import virtual
from kombu.transport.virtual.exchange import STANDARD_EXCHANGE_TYPES

from orbitmq import __version__
from orbitmq.errors import ClientError, ConfigurationError, PeerError, RemotingError
from orbitmq.integrations.celery.link import Link, Received, Settlement
from orbitmq.integrations.celery.readers import Prefetch
from orbitmq.integrations.celery.routing import DIRECT, Payload, level_of, name_of, topic_of, topic_of_exchange

DEFAULT_PORT: Final = 9876
OPTIONS: Final[Mapping[str, float]] = {
    "visibility_timeout": 60.0,
    "max_redeliveries": 16,
    "max_delay": 259_200.0,
    "queues": 1,
}
"""Transport options and their defaults.

`visibility_timeout`: seconds after which another worker gets what one that has died held; a living one prolongs it.
`max_redeliveries`: of a message before it is a dead letter.
`max_delay`: seconds for which brokers delay a message, `timerMaxDelaySec` there; an ETA may be later.
`queues`: of a topic that is created, at each broker. Any number of workers share one, and only one keeps the order.
"""


class QoS(virtual.QoS):  # type: ignore[misc]
    """What a channel has received and not settled. How much that may be decides `Prefetch`."""

    def can_consume(self) -> bool:
        return True

    def ack(self, delivery_tag: str) -> None:
        self.channel.link.settle(delivery_tag, Settlement.ACK)
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        self.channel.link.settle(delivery_tag, Settlement.REQUEUE if requeue else Settlement.REJECT)
        super().ack(delivery_tag)


class Consumer(NamedTuple):
    """A consumer of a queue on a channel."""

    no_ack: bool
    callback: Callable[[Payload], Any]


class Channel(virtual.Channel):  # type: ignore[misc]
    """A channel. A message that is rejected for good becomes a dead letter of its queue's group."""

    QoS = QoS
    supports_fanout = True

    def __init__(self, connection: Any, **more: Any) -> None:
        self.link: Link = connection.link
        self._durable: set[str] = connection.durable
        self._transient: set[str] = connection.transient
        self._prefetch = Prefetch()
        self._consumed: dict[str, dict[str, Consumer]] = {}  # by queue and consumer tag
        super().__init__(connection, **more)

    # --------------------------------------------------------------------------------------------------------- bodies

    def encode_body(self, body: Any, _encoding: str | None = None) -> tuple[Any, str | None]:
        """Text stays text, so that tools show it; other bytes are encoded."""
        if isinstance(body, bytes):
            try:
                return body.decode(), None
            except UnicodeDecodeError:
                encoded: tuple[str, str] = super().encode_body(body, "base64")
                return encoded
        return body, None

    # --------------------------------------------------------------------------------------------------------- queues

    def _new_queue(self, queue: str, **arguments: Any) -> None:
        if arguments.get("auto_delete") or arguments.get("exclusive"):
            self._transient.add(queue)
            self._follow(queue, DIRECT)
        elif queue not in self._durable:
            for topic in self._topics(queue):
                self.link.run(self.link.create(topic, self.connection.queues))
            self._durable.add(queue)

    def _topics(self, queue: str) -> list[str]:
        """Of a queue that stays, in the order of descending priority."""
        return [topic_of(queue, level) for level in reversed(self.connection.levels)]

    def _has_queue(self, queue: str, **_arguments: Any) -> bool:
        return queue in self._transient or self.link.run(self.link.exists(name_of(queue)))

    def _queue_bind(self, exchange: str, _routing_key: str, _pattern: str | None, queue: str) -> None:
        if queue in self._transient:
            self._follow(queue, topic_of_exchange(exchange))

    def _follow(self, queue: str, topic: str) -> None:
        self.link.run(self.link.follow(queue, topic, partial(wants, self.state, queue)))

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **_more: Any) -> None:  # noqa: ARG002 - of the base
        """Delete a queue. Its topic stays, without messages; a queue that goes with its consumer leaves nothing."""
        if if_empty and self._size(queue):
            return
        if queue not in self._transient and self._has_queue(queue):
            self._purge(queue)
        self.state.queue_bindings_delete(queue)
        self._forget(queue)

    def _forget(self, queue: str) -> None:
        self._consumed.pop(queue, None)
        self._durable.discard(queue)
        self._transient.discard(queue)
        self.link.run(self.link.forget(queue))

    def _size(self, queue: str) -> int:
        self._open(queue)
        return self.link.run(self.link.size(queue))

    def queue_declare(self, queue: str | None = None, passive: bool = False, **more: Any) -> Any:
        """Declare a queue. Its messages are counted only if that is all that is asked for (passive)."""
        if passive:
            return super().queue_declare(queue, passive=True, **more)
        queue = queue or f"amq.gen-{uuid.uuid4()}"
        self._new_queue(queue, **more)
        return queue_declare_ok_t(queue, 0, 0)

    def _purge(self, queue: str) -> int:
        self._open(queue)
        return self.link.run(self.link.purge(queue))

    def _open(self, queue: str) -> None:
        if queue not in self._transient:
            self.link.run(self.link.open_group(queue, self._topics(queue)))

    # -------------------------------------------------------------------------------------------------------- publish

    def basic_publish(self, message: Payload, exchange: str, routing_key: str, **_more: Any) -> None:
        """Put a message into the queues that are bound, and into the topic of the exchange for those of others."""
        self._inplace_augment_message(message, exchange, routing_key)
        if not exchange:
            self._put(routing_key, message)
            return
        queues = bound(self.state, exchange, routing_key) & self._durable
        for queue in queues:
            self._put(queue, message)
        if not queues or self.typeof(exchange).type == "fanout":
            topic = topic_of_exchange(exchange)
            self.link.run(self.link.create(topic, 1))
            self.link.run(self.link.send(topic, message))

    def _put(self, queue: str, message: Payload, **_more: Any) -> None:
        topic = topic_of(queue, level_of(message, self.connection.levels))
        if queue not in self._durable and not self.link.run(self.link.exists(topic)):
            topic = DIRECT
            self.link.run(self.link.create(topic, 1))
        self.link.run(self.link.send(topic, message))

    # -------------------------------------------------------------------------------------------------------- consume

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[[Any], Any], consumer_tag: str, **more: Any
    ) -> None:
        """Receive messages of a queue from now on."""
        super().basic_consume(queue, no_ack, callback, consumer_tag, **more)
        is_first = not self._consumed.get(queue)
        consumer = Consumer(no_ack, self.connection.callback_of(queue))
        self._consumed.setdefault(queue, {})[consumer_tag] = consumer
        if is_first:
            self._open(queue)
            self.link.run(self.link.consume(queue, self._prefetch))

    def basic_cancel(self, consumer_tag: str) -> None:
        """Receive no more; what was delivered stays to be settled."""
        queue = self._tag_to_queue.get(consumer_tag, "")
        super().basic_cancel(consumer_tag)
        consumers = self._consumed.get(queue, {})
        if consumers.pop(consumer_tag, None) is not None and not consumers:
            del self._consumed[queue]
            if self.link.is_own:
                self.link.run(self.link.cancel(queue, self._prefetch))

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        """How many messages the channel may hold; 0 for as many as are kept at most."""
        super().basic_qos(prefetch_size, prefetch_count, apply_global)
        self.link.limit(self._prefetch, prefetch_count)

    def _get(self, queue: str, **_more: Any) -> Payload:
        self._open(queue)
        received = self.link.run(self.link.get(queue))
        if received is None:
            raise Empty
        return received.payload

    def basic_get(self, queue: str, no_ack: bool = False, **more: Any) -> Any:
        """One message that is there, or None."""
        message = super().basic_get(queue, no_ack, **more)
        if message is not None and no_ack:
            self.link.settle(message.delivery_tag, Settlement.ACK)
        return message

    def deliver(self, received: Received) -> bool:
        """Call the latest consumer of a queue. False if this channel has none, or the message is another channel's."""
        consumers = self._consumed.get(received.queue)
        if not consumers or received.prefetch is not self._prefetch:
            return False
        no_ack, callback = consumers[next(reversed(consumers))]
        if no_ack:
            self.link.settle(received.tag, Settlement.ACK)
        callback(received.payload)
        return True

    def _restore(self, message: Any) -> None:
        """Give back what was received and not settled."""
        self.link.settle(message.delivery_tag, Settlement.REQUEUE)


class Transport(virtual.Transport):  # type: ignore[misc]
    """A connection. Options are `OPTIONS`, `name_servers` for more than the one of the URL (`host:port;host:port`),
    `client` for settings of the clients, and `priority_steps`, the priorities that get topics of their own ([0], or
    [0, 3, 6, 9]): each one costs a request that waits, and publishers and workers must agree.
    """

    Channel = Channel
    default_port = DEFAULT_PORT
    driver_type = "orbitmq"
    driver_name = "orbitmq"
    # What a new connection may mend: no wrong option, no message that is too large, and no call on the clients' loop.
    connection_errors = (*virtual.Transport.connection_errors, RemotingError, PeerError, ClientError)
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"]), heartbeats=False
    )

    def __init__(self, client: Any, **more: Any) -> None:
        super().__init__(client, **more)
        self.durable: set[str] = set()
        self.transient: set[str] = set()
        self.queues = int(option(client.transport_options, "queues"))
        self.levels = levels_of(client.transport_options)
        self._link: Link | None = None

    @property
    def link(self) -> Link:
        """The clients of this connection, which it opens."""
        if self._link is None:
            self._link = self._opened()
        return self._link

    def _opened(self) -> Link:
        options = self.client.transport_options
        if unknown := sorted(options.keys() - OPTIONS.keys() - OTHERS - OF_KOMBU):
            known = ", ".join(sorted({*OPTIONS, *OTHERS}))
            raise ConfigurationError(f"transport option {unknown[0]!r} is not known: use one of {known}")
        address = (
            options.get("name_servers") or f"{self.client.hostname or 'localhost'}:{self.client.port or DEFAULT_PORT}"
        )
        link = Link(
            address,
            settings_of(self.client),
            visibility_s=option(options, "visibility_timeout"),
            redeliveries_max=int(option(options, "max_redeliveries")),
            delay_max_s=option(options, "max_delay"),
        )
        try:
            link.run(link.open())
        except BaseException:
            link.close_files()
            raise
        return link

    def callback_of(self, queue: str) -> Callable[[Payload], Any]:
        """What the consumer of a queue does with a message."""
        found: Callable[[Payload], Any] = self._callbacks[queue]
        return found

    def driver_version(self) -> str:
        return __version__

    def close_connection(self, connection: Any) -> None:
        if self._link is not None and self._link.is_own:
            self._link.check_usable()  # before anything is closed
        try:
            super().close_connection(connection)
        finally:
            link, self._link = self._link, None
            if link is not None:
                try:
                    if link.is_own:
                        link.run(link.close())
                finally:
                    link.close_files()

    def drain_events(self, _connection: Any, timeout: float | None = None) -> None:
        """Deliver what was received; TimeoutError when that is nothing for so many seconds."""
        ends = None if timeout is None else time.monotonic() + timeout
        while not self._deliver_received():
            left = None if ends is None else ends - time.monotonic()
            if left is not None and left < 0:
                raise TimeoutError
            waiting = select.poll()  # `select` takes no file numbers over 1023
            waiting.register(self.link.fileno, select.POLLIN)
            waiting.poll(None if left is None else left * 1000)

    def _deliver_received(self) -> int:
        link, count = self.link, 0
        link.check_usable()
        link.hush()
        try:
            while link.received:
                received = link.received.popleft()
                count += 1
                if not any(channel.deliver(received) for channel in self.channels):
                    link.settle(received.tag, Settlement.REQUEUE)
        except BaseException:  # of a callback: the rest is for the next call
            link.ring()
            raise
        return count

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Deliver from the loop of a worker."""
        loop.add_reader(self.link.fileno, self.on_readable, connection, loop)

    def unregister_from_event_loop(self, _connection: Any, loop: Any) -> None:
        """Deliver no more from it."""
        if self._link is not None:
            loop.remove_reader(self._link.fileno)

    def on_readable(self, _connection: Any, _loop: Any) -> None:
        """Messages are there."""
        self._deliver_received()

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """The URL for logs."""
        from kombu.utils.url import maybe_sanitize_url

        shown: str = uri if include_password else maybe_sanitize_url(uri, mask)
        return shown


OF_KOMBU: Final = frozenset(
    {
        "polling_interval", "body_encoding", "deadletter_queue", "confirm_publish",
        "max_retries", "interval_start", "interval_step", "interval_max", "retry_errors",
    }
)  # fmt: skip
OTHERS: Final = frozenset({"name_servers", "client", "priority_steps"})


KINDS: Final = {name: kind(None) for name, kind in STANDARD_EXCHANGE_TYPES.items()}


def bound(state: virtual.BrokerState, exchange: str, routing_key: str) -> set[str]:
    """The queues that a message goes to, of those a connection knows."""
    declared = state.exchanges.get(exchange)
    if declared is None:
        return set()
    found: set[str] = KINDS[declared["type"]].lookup(declared["table"], exchange, routing_key, None)
    return found


def wants(state: virtual.BrokerState, queue: str, payload: Payload) -> bool:
    """Whether a message of the topics that a queue follows is for it."""
    info = payload["properties"]["delivery_info"]
    exchange, routing_key = info.get("exchange") or "", info.get("routing_key") or ""
    return routing_key == queue if not exchange else queue in bound(state, exchange, routing_key)


def option(options: Mapping[str, Any], name: str) -> float:
    """A transport option. ConfigurationError unless it is a number from 1 on."""
    value = options.get(name, OPTIONS[name])
    if not isinstance(value, int | float) or isinstance(value, bool) or not 1 <= value < 1 << 31:
        raise ConfigurationError(f"transport option {name} is {value!r}: use a number from 1 on")
    return float(value)


def levels_of(options: Mapping[str, Any]) -> list[int]:
    """The option `priority_steps`, with 0. ConfigurationError unless these are priorities from 0 to 9."""
    steps = options.get("priority_steps", [0])
    if not isinstance(steps, list | tuple) or not all(isinstance(one, int) and 0 <= one <= 9 for one in steps):
        raise ConfigurationError(f"transport option priority_steps is {steps!r}: use a list of priorities from 0 to 9")
    return sorted({0, *steps})


def settings_of(client: Any) -> dict[str, Any]:
    """Settings of orbitmq's clients, by the URL, `ssl` of the connection and the option `client`."""
    settings = dict(client.transport_options.get("client", {}))
    if client.userid:
        settings.update(access_key=client.userid, secret_key=client.password or "")
    if namespace := (client.virtual_host or "").strip("/"):
        settings["namespace"] = namespace
    if client.ssl:
        settings["tls"] = True
        certificates = client.ssl if isinstance(client.ssl, dict) else {}
        names = {"ca_certs": "tls_ca_file", "certfile": "tls_cert_file", "keyfile": "tls_key_file"}
        settings.update({ours: certificates[theirs] for theirs, ours in names.items() if theirs in certificates})
    return settings
