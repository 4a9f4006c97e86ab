"""Reports the losses of an outbox. Knows neither files nor connections."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from orbitmq.client.outbox.record import Loss, LossReason

_log = logging.getLogger(__name__)

LOSSES_WAITING_MAX = 10_000  # for a slow `on_loss`; more are logged and counted only
CLOSE_SECONDS = 5.0  # for the losses that were not reported yet

OnLoss = Callable[[Loss], Awaitable[None] | None]
"""Called for each message that an outbox loses: a function, on a thread of its own, or a coroutine function. What it
raises is logged.
"""


class Losses:
    """Counts, logs and reports losses, in order, in the background."""

    def __init__(self, on_loss: OnLoss | None) -> None:
        self.counts: Counter[LossReason] = Counter()
        self._on_loss = on_loss
        self._thread: ThreadPoolExecutor | None = None
        self._queue: asyncio.Queue[Loss | None] = asyncio.Queue(LOSSES_WAITING_MAX)
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        if self._on_loss is not None:
            self._task = asyncio.get_running_loop().create_task(self._report_all(self._on_loss))

    def tell(self, loss: Loss) -> None:
        """Report a loss."""
        self.counts[loss.reason] += loss.count
        _log.warning(
            "event=outbox_loss reason=%s count=%d topic=%s msg_id=%s keys=%s detail=%s",
            loss.reason.name, loss.count, loss.topic, loss.msg_id, loss.keys, loss.detail,
        )  # fmt: skip
        if self._task is not None:
            try:
                self._queue.put_nowait(loss)
            except asyncio.QueueFull:
                _log.error("event=outbox_on_loss_too_slow waiting=%d msg_id=%s", self._queue.qsize(), loss.msg_id)

    async def _report_all(self, on_loss: OnLoss) -> None:
        call = on_loss if inspect.iscoroutinefunction(on_loss) else self._on_a_thread(on_loss)
        try:
            while (loss := await self._queue.get()) is not None:
                try:
                    await call(loss)
                except Exception:  # the application's code; the next loss must still be reported
                    _log.exception("event=outbox_on_loss_failed msg_id=%s", loss.msg_id)
        finally:
            if self._thread is not None:
                self._thread.shutdown(wait=False)  # user code that hangs must not hold up the loop

    def _on_a_thread(self, on_loss: Callable[[Loss], object]) -> Callable[[Loss], Awaitable[object]]:
        self._thread = thread = ThreadPoolExecutor(1, "orbitmq-outbox-loss")
        loop = asyncio.get_running_loop()
        return lambda loss: loop.run_in_executor(thread, on_loss, loss)

    async def close(self) -> None:
        """Report pending losses, within a limit."""
        task, self._task = self._task, None
        if task is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._queue.put(None)
                    await task
            task.cancel()
