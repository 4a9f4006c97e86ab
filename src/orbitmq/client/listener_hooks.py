"""Calls the hooks of a consumer around its listener. Knows no queue and no offset."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from orbitmq.client.core.hooks import ConsumeContext, ConsumeHook, each
from orbitmq.client.workers import Context, Listener, OrderlyListener, Status, is_coroutine
from orbitmq.message.model import MessageExt
from orbitmq.runtime.clock import Clock


def with_hooks(
    listener: Listener | OrderlyListener, hooks: Sequence[ConsumeHook], group: str, clock: Clock
) -> Listener | OrderlyListener:
    """The listener with `hooks` around every call; hooks that are added later count, too."""

    def begin(messages: Sequence[MessageExt], listener_context: Context) -> ConsumeContext:
        context = ConsumeContext(group, listener_context.message_queue, messages, listener_context, clock.now_ms())
        each(hooks, lambda hook, seen: hook.before(seen), context)
        return context

    def end(context: ConsumeContext) -> None:
        context.cost_ms = clock.now_ms() - context.began_ms
        each(hooks, lambda hook, seen: hook.after(seen), context)

    def function(messages: Sequence[MessageExt], listener_context: Context) -> Status | None:
        context = begin(messages, listener_context)
        try:
            context.status = cast("Callable[..., Status | None]", listener)(messages, listener_context)
            return context.status
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            context.error = error
            raise
        finally:
            end(context)

    async def coroutine(messages: Sequence[MessageExt], listener_context: Context) -> Status | None:
        context = begin(messages, listener_context)
        try:
            context.status = await cast("Callable[..., Awaitable[Status | None]]", listener)(messages, listener_context)
            return context.status
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            context.error = error
            raise
        finally:
            end(context)

    return cast("Listener | OrderlyListener", coroutine if is_coroutine(listener) else function)
