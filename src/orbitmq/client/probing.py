"""Asks brokers that the network did not reach whether it does by now. Knows no message."""

from __future__ import annotations

import asyncio

from orbitmq.client.background import one_round
from orbitmq.client.core.latency import PROBE_LOOK_S, PROBE_TIMEOUT_MS, FaultTable
from orbitmq.client.instance import Instance
from orbitmq.errors import BrokerError, OrbitMQError
from orbitmq.message.model import MASTER_ID, MessageQueue
from orbitmq.message.topics import AUTO_CREATE_TOPIC
from orbitmq.operations import offsets


async def probe_regularly(instance: Instance, faults: FaultTable) -> None:
    """Look for such brokers, until it is cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(PROBE_LOOK_S)
        due = faults.to_probe(int(loop.time() * 1000))
        with one_round(instance.client_id, "probing"):
            await asyncio.gather(*(_probe(instance, faults, name) for name in due))


async def _probe(instance: Instance, faults: FaultTable, broker_name: str) -> None:
    address = instance.routes.addresses(broker_name).get(MASTER_ID)
    if address is None:
        return
    try:
        queue = MessageQueue(AUTO_CREATE_TOPIC, broker_name, 0)
        await offsets.max_offset(instance.remoting, address, queue, timeout_ms=PROBE_TIMEOUT_MS)
    except BrokerError:
        pass  # a refusal is an answer
    except OrbitMQError:
        return
    faults.probed(broker_name)
