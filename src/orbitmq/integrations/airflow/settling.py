"""Settles messages of watchers in the background: Airflow awaits one call of them at a time, and a broker that is away
would hold up the messages of the others. Knows no Airflow.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from orbitmq.client import SimpleConsumer
from orbitmq.client.settling import settle
from orbitmq.errors import OrbitMQError
from orbitmq.message.model import MessageExt

_log = logging.getLogger(__name__)

SETTLE_S: Final = 5.0  # before a trigger stops or goes on: what is not settled then is delivered again


class Settler:
    """Settles the messages of one consumer. An acknowledgement is tried again for `within_s` seconds; `ended` is called
    for each message, also if that has failed.
    """

    def __init__(self, consumer: SimpleConsumer, within_s: float, ended: Callable[[], None]) -> None:
        self._consumer = consumer
        self._within_s = within_s
        self._ended = ended
        self._tasks: set[asyncio.Task[None]] = set()
        self._away: set[str] = set()
        """Brokers that have settled nothing since one was logged."""

    def ack(self, message: MessageExt) -> None:
        """Acknowledge a message."""
        self._start(message, settle(self._consumer.ack, message, self._within_s))

    def redeliver(self, message: MessageExt, seconds: float) -> None:
        """Have a message delivered again after so many seconds; if that fails, when its time is over."""
        self._start(message, self._consumer.change_invisible(message, seconds))

    async def close(self) -> None:
        """Shut the consumer down when all is settled, and after some seconds in any case."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=SETTLE_S)
        await self._consumer.shutdown()
        await asyncio.gather(*self._tasks)  # without a consumer they end

    def _start(self, message: MessageExt, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._settled(message, work))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._ended()

    async def _settled(self, message: MessageExt, work: Coroutine[Any, Any, None]) -> None:
        broker = message.broker_name
        try:
            await work
        except OrbitMQError as error:
            if broker not in self._away:
                text = "event=not_settled broker=%s message=%s error=%s; messages of this broker are delivered again"
                _log.warning(text, broker, message.msg_id, error)
            self._away.add(broker)
        else:
            self._away.discard(broker)
