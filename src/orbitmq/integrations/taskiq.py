"""orbitmq as the broker of taskiq (`orbitmq[taskiq]`).

    from orbitmq.integrations.taskiq import OrbitMQBroker

    broker = OrbitMQBroker("127.0.0.1:9876")

It needs brokers of orbitmq, or of RocketMQ 5.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypedDict, Unpack

from taskiq import AckableMessage, AsyncBroker, BrokerMessage

from orbitmq.client import Producer, SimpleConsumer
from orbitmq.client.core.arguments import checks_arguments
from orbitmq.client.settings import ClientSettings
from orbitmq.client.settling import settle
from orbitmq.client.simple import release
from orbitmq.errors import ClientError, ConfigurationError, MessageIllegal, OrbitMQError
from orbitmq.message.model import Message, MessageExt

_log = logging.getLogger(__name__)

__all__ = ["OrbitMQBroker"]

PAUSE_S: Final = 1.0  # after a request for messages that failed
RETURN_S: Final = 5.0  # for giving back what is not acknowledged
AT_ONCE_S: Final = 0.001  # 0 is not allowed by brokers of RocketMQ
_TAG: Final = re.compile(r"[\w.@:/-]{1,100}")


class _Consumer(TypedDict):
    max_reconsume_times: int


class _Delivery(AckableMessage):
    """A task for taskiq, whose receiver takes `ack` in the asyncio task in which it handles this one. It leaves it
    without a call when a middleware raises, for example.
    """

    handled: Callable[[asyncio.Task[Any]], None]
    """Is called when that asyncio task has ended."""

    def __getattribute__(self, name: str) -> Any:
        if name == "ack" and (handler := asyncio.current_task()) is not None:
            handler.add_done_callback(self.handled)
        return super().__getattribute__(name)


class OrbitMQBroker(AsyncBroker):
    """Tasks are messages of the topic `queue`, whose workers are the group of the same name.

    A task is hidden from other workers until it is acknowledged: they get it `visibility_timeout` seconds after its
    worker died, and at once when its worker stops. After `max_redeliveries` redeliveries it is a dead letter. The topic
    is created with `queues` queues at each broker if it is not there. Further keywords are settings of every client.

    Of the labels of a task `delay` (seconds) and `eta` (a datetime with a time zone, or its ISO text) say when the
    broker delivers it; others are taskiq's own.

    ConfigurationError and MessageIllegal for values that are not allowed.
    """

    @checks_arguments
    def __init__(
        self,
        namesrv_addr: str | Iterable[str] | None = None,
        *,
        queue: str = "taskiq",
        visibility_timeout: float = 60.0,
        max_redeliveries: int = 16,
        queues: int = 4,
        **settings: Unpack[ClientSettings],
    ) -> None:
        super().__init__()
        if visibility_timeout < AT_ONCE_S:
            raise ConfigurationError(f"visibility_timeout {visibility_timeout} is not allowed; use more than 0 seconds")
        self._names = namesrv_addr if namesrv_addr is None or isinstance(namesrv_addr, str) else list(namesrv_addr)
        self._settings = settings
        self._redeliveries: _Consumer = {"max_reconsume_times": max_redeliveries}
        self.queue = queue
        self._visibility_s = visibility_timeout
        self._queues = queues
        self._make_clients()
        self._held: dict[int, MessageExt] = {}
        """What is not acknowledged, by identity."""
        self._receiving: set[asyncio.Task[MessageExt | None]] = set()

    def _make_clients(self) -> None:
        self._producer = Producer(self.queue, self._names, **self._settings)
        self._consumer = SimpleConsumer(self.queue, self._names, **self._redeliveries, **self._settings)
        self._consumer.subscribe(self.queue)

    async def startup(self) -> None:
        """Connect, and create the topic if it is not there. BrokerError, ClientError, RemotingError; it may be tried
        again. InvalidStateError if the broker is started already.
        """
        if not self._producer.is_running:
            self._make_clients()  # a client is started once
        await self._producer.start()
        try:
            await self._prepare()
        except BaseException:
            await self._leave()
            raise

    async def _prepare(self) -> None:
        try:
            await self._producer.fetch_queues(self.queue)
        except ClientError:
            await self._producer.create_topic(self.queue, queues=self._queues)
        if self.is_worker_process:
            await self._consumer.start()
        await super().startup()

    async def shutdown(self) -> None:
        """Give back what is not acknowledged, and leave the brokers. Every wait has a limit; errors are logged."""
        await super().shutdown()
        if self._receiving:
            await asyncio.wait(self._receiving, timeout=RETURN_S)
        held, self._held = self._held, {}
        if held:
            returns = asyncio.gather(*map(self._give_back, held.values()))
            await asyncio.wait([returns], timeout=RETURN_S)
        await self._leave()

    async def _leave(self) -> None:
        await self._consumer.shutdown()
        await self._producer.shutdown()

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task. ClientError, BrokerError, RemotingError; MessageIllegal for a delay that is no time."""
        task = message.task_name
        await self._producer.send(
            Message(
                self.queue,
                message.message,
                tags=task if _TAG.fullmatch(task) else None,
                keys=message.task_id if _TAG.fullmatch(message.task_id) else None,
                deliver_after=_seconds(message.labels.get("delay")),
                deliver_at=_time(message.labels.get("eta")),
            )
        )

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """One task after another, each of which is renewed until it is acknowledged or its handling has ended. A broker
        that is away is logged, and queried again.
        """
        if not self._consumer.is_running:
            await self._consumer.start()
        is_failing = False
        while True:
            receiving = asyncio.create_task(self._receive())
            self._receiving.add(receiving)
            receiving.add_done_callback(self._receiving.discard)
            try:
                # What a broker delivers to a request that is cancelled would be hidden until its time is over.
                message = await asyncio.shield(receiving)
                if message is None:
                    await self._consumer.wait()
            except OrbitMQError as error:
                if not is_failing:
                    _log.warning("event=receive_failed queue=%s error=%s", self.queue, error)
                is_failing = True
                await asyncio.sleep(PAUSE_S)
                continue
            is_failing = False
            if message is not None:
                ack, handled = partial(self._ack, message), partial(self._handled, message)
                yield _Delivery(data=message.body, ack=ack, handled=handled)

    async def _receive(self) -> MessageExt | None:
        """A task that is there: no more than taskiq has room for."""
        received = await self._consumer.receive(1, invisible=self._visibility_s, timeout=0, renew=True)
        for message in received:
            self._held[id(message)] = message
        return received[0] if received else None

    async def _ack(self, message: MessageExt) -> None:
        self._held.pop(id(message), None)
        try:
            await settle(self._consumer.ack, message, self._visibility_s)
        except OrbitMQError as error:
            text = "event=task_not_acknowledged queue=%s message=%s error=%s; it is delivered again"
            _log.warning(text, self.queue, message.msg_id, error)

    def _handled(self, message: MessageExt, _: asyncio.Task[Any]) -> None:
        """What is not acknowledged by now is delivered again when its time is over, or at once if the worker stops."""
        if id(message) in self._held:
            release(self._consumer, [message])
            asyncio.get_running_loop().call_later(self._visibility_s, self._held.pop, id(message), None)
            text = "event=task_left_unacknowledged queue=%s message=%s; it is delivered again"
            _log.warning(text, self.queue, message.msg_id)

    async def _give_back(self, message: MessageExt) -> None:
        try:
            await self._consumer.change_invisible(message, AT_ONCE_S)
        except OrbitMQError as error:
            text = "event=task_not_given_back queue=%s message=%s error=%s; it is delivered again later"
            _log.warning(text, self.queue, message.msg_id, error)


def _seconds(delay: object) -> float | None:
    """Labels are text in a message, whatever they were."""
    if delay is None:
        return None
    try:
        return max(0.0, float(str(delay)))
    except ValueError:
        raise MessageIllegal(f"label delay {delay!r} is no number of seconds") from None


def _time(eta: object) -> datetime | None:
    if eta is None:
        return None
    try:
        time = datetime.fromisoformat(str(eta))
    except ValueError:
        raise MessageIllegal(f"label eta {eta!r} is no time in ISO format") from None
    if time.tzinfo is None:
        raise MessageIllegal(f"label eta {eta!r} has no time zone; use datetime.now(UTC) and the like")
    return time.astimezone(UTC)
