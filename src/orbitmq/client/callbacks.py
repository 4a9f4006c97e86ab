"""Tells callbacks of the synchronous classes what came of a send, on a thread that may wait for the application.

On the loop they would hold up every client of the process, and one that wants a lock which a thread holds while it
calls a client would stop both for ever.
"""

from __future__ import annotations

import logging
from functools import partial

from orbitmq.client.core.model import SendResult
from orbitmq.client.producer import CALLBACK, SendCallback
from orbitmq.client.sync_wrapper import loop_thread

_log = logging.getLogger(__name__)


def off_loop(callback: SendCallback | None) -> SendCallback | None:
    """What tells the callback on the thread, to be called anywhere. ConfigurationError for what is none."""
    if callback is None:
        return None
    CALLBACK.accept(callback)
    calls = loop_thread().callbacks
    return lambda result, error: calls.put(partial(_call, callback, result, error))


def _call(callback: SendCallback, result: SendResult | None, error: BaseException | None) -> None:
    try:
        callback(result, error)
    except BaseException:  # the application's code; others wait for the thread
        _log.exception("event=send_callback_failed")
