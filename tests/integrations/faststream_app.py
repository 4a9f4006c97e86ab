"""The application that `test_faststream_restarts` ends: each message is noted when it has been handled."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from faststream import FastStream

from orbitmq.integrations.faststream import RocketMQBroker

broker = RocketMQBroker(os.environ["NAMESRV_ADDR"])
app = FastStream(broker)
notes = (Path(os.environ["ORBITMQ_FASTSTREAM_NOTES"]) / str(os.getpid())).open("a", buffering=1)


@broker.subscriber("work", group="workers", max_workers=8)
async def work(number: int) -> None:
    notes.write(f"begin {number}\n")
    await asyncio.sleep(0.02)
    notes.write(f"end {number}\n")


if __name__ == "__main__":
    asyncio.run(app.run())
