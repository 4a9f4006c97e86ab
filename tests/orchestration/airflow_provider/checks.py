"""What `test_airflow_provider` has the Python of Airflow do: one function of it, whose result it prints as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from orbitmq.client import SimpleConsumer
from orbitmq.client.sync import Producer
from orbitmq.integrations.airflow.triggers import AwaitMessageTrigger
from orbitmq.message.model import Message, MessageExt


def provider() -> dict[str, Any]:
    """How Airflow finds the provider."""
    from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
    from airflow.providers_manager import ProvidersManager

    manager = ProvidersManager()
    hook = manager.hooks["rocketmq"]
    path, arguments = MessageQueueTrigger(scheme="rocketmq", topics="orders", group="billing").serialize()
    return {
        "is_listed": "orbitmq" in manager.providers,
        "hook": hook and [hook.hook_class_name, hook.hook_name, hook.connection_testable],
        "relabeled": manager.field_behaviours["rocketmq"]["relabeling"],
        "trigger": path,
        "arguments": arguments,
        "again": AwaitMessageTrigger(**arguments).serialize() == (path, arguments),
    }


def connection(identifier: str) -> list[Any]:
    """The test of a connection, as the page of Airflow calls it."""
    from airflow.models.connection import Connection

    return list(Connection.get_connection_from_secrets(identifier).test_connection())


BEGUN = asyncio.Event()


async def slow(message: MessageExt) -> str:
    """Has no end the first time."""
    if not BEGUN.is_set():
        BEGUN.set()
        await asyncio.Event().wait()  # until it is cancelled
    return message.body.decode()


async def _cancelled(address: str) -> list[Any]:
    trigger = AwaitMessageTrigger(
        topics="Cancelled", group="cancelled", apply_function="__main__.slow", visibility_timeout=3600
    )
    waiting = asyncio.ensure_future(anext(trigger.run()))
    begun = asyncio.ensure_future(BEGUN.wait())
    await asyncio.wait([waiting, begun], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    second = trigger.run()
    event = await anext(second)
    await second.aclose()
    async with SimpleConsumer("cancelled", address) as consumer:
        consumer.subscribe("Cancelled")
        others = await consumer.receive(1, timeout=2)
    return [waiting.cancelled(), event.payload["value"], len(others), sorted(event.payload["receipt"])]


def cancelled(address: str) -> list[Any]:
    """A trigger of a task is cancelled while its function works. The next one gets the message, and no other
    consumer does while the task may acknowledge it.
    """
    with Producer("checks", address) as producer:
        producer.send(Message("Cancelled", b"kept"))
    return asyncio.run(_cancelled(address))


def pick(message: MessageExt, path: str) -> dict[str, str] | None:
    """For a watcher: a message `skipped` is of no interest, and one `bad` fails once."""
    failed = Path(path) / "picked"
    if message.body == b"bad" and not failed.exists():
        failed.touch()
        raise ValueError("bad")
    return None if message.body == b"skipped" else {"body": f"picked {message.body.decode()}"}


if __name__ == "__main__":
    print(f"\n{json.dumps(globals()[sys.argv[1]](*sys.argv[2:]))}")
