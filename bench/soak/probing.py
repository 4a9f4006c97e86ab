"""What clients ask of any broker, asked of one that must serve nothing."""

from __future__ import annotations

from orbitmq.errors import BrokerError, OrbitMQError
from orbitmq.message.model import MessageQueue
from orbitmq.net.remoting import Remoting
from orbitmq.operations.offsets import max_offset, update_consumer_offset
from orbitmq.operations.pops import pop
from orbitmq.operations.sends import send
from orbitmq.wire.headers import SendMessageV2Header
from orbitmq.wire.headers_pop import PopMessageHeader

TIMEOUT_MS = 3000
READERS, FAR = "soak-readers", 1 << 20  # progress that would have the group skip everything
OWN_TOPIC = "SoakProbe"  # of messages: those of the campaign are counted


async def probe(address: str, topic: str) -> dict[str, bool]:
    """Request -> whether it was served; those that got no answer are left out."""
    queue = MessageQueue(topic, "", 0)
    remoting = Remoting()
    header = SendMessageV2Header(
        producer_group="soak-probe", topic=OWN_TOPIC, default_topic="TBW102", default_topic_queue_nums=1, queue_id=0,
        sys_flag=0, born_timestamp=0, flag=0, properties="", reconsume_times=0,
    )  # fmt: skip
    popping = PopMessageHeader("soak-probe", topic, -1, 1, 1000, 0, 0, 0)
    asked = {
        "a read": max_offset(remoting, address, queue, timeout_ms=TIMEOUT_MS),
        "progress of a group": update_consumer_offset(remoting, address, READERS, queue, FAR, timeout_ms=TIMEOUT_MS),
        "a receive by POP": pop(remoting, address, popping, "", timeout_ms=TIMEOUT_MS),
        "a message": send(remoting, address, header, b"probe", timeout_ms=TIMEOUT_MS),
    }
    found: dict[str, bool] = {}
    for request, answer in asked.items():
        try:
            await answer
        except BrokerError:
            found[request] = False
        except OrbitMQError:
            continue
        else:
            found[request] = True
    await remoting.close()
    return found
