"""Who reads which queue: each member of a group computes it by the same strategy. All members must use the same one."""

from __future__ import annotations

import asyncio

from orbitmq.client import (
    AllocateAveragely,
    AllocateByCircle,
    AllocateConsistentHash,
    AllocateStrategy,
    LitePullConsumer,
    Message,
    Producer,
)

TOPIC = "ExampleAllocation"


async def main() -> None:
    async with Producer("example-allocation") as producer:
        await producer.send(Message(TOPIC, b"the topic has 4 queues from here on"))
    for strategy in (AllocateAveragely(), AllocateByCircle(), AllocateConsistentHash()):
        left, right = await two_members(strategy)
        print(f"{strategy.name}: {len(left | right)} queues, {len(left & right)} read twice; {numbers(left, right)}")


async def two_members(strategy: AllocateStrategy) -> tuple[set[int], set[int]]:
    group = f"example-{strategy.name.lower()}".replace("_", "-")
    members = [LitePullConsumer(group, allocate_strategy=strategy, client_ip=ip) for ip in ("10.0.0.1", "10.0.0.2")]
    for member in members:
        member.subscribe(TOPIC)
    async with members[0], members[1], asyncio.timeout(10):
        while True:
            left, right = ({queue.queue_id for queue in member.assignment()} for member in members)
            if len(left) + len(right) == len(left | right) == 4 and members_agree(strategy, left, right):
                return left, right
            await asyncio.sleep(0.02)


def members_agree(strategy: AllocateStrategy, left: set[int], right: set[int]) -> bool:
    """Whether both know of each other: a consistent hash may give one of them everything, the others never do."""
    return bool(left and right) or isinstance(strategy, AllocateConsistentHash)


def numbers(left: set[int], right: set[int]) -> str:
    return f"{sorted(left)} and {sorted(right)}"


asyncio.run(main())
