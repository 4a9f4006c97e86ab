"""However members come and go, every message of a group is delivered, and what was done in the end is committed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import pytest

from orbitmq.client import ConsumeFromWhere, ConsumeOrderlyStatus, LitePullConsumer, MessageExt, PushConsumer
from tests.client.test_push import SUCCESS
from tests.support.fake_system import FakeSystem, fake_system
from tests.support.loops import run, until

QUEUES, COUNT, STEPS, MEMBERS_MAX = 4, 240, 14, 4
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
Member = PushConsumer | LitePullConsumer


class Group:
    """Members of one kind, and what they got."""

    def __init__(self, system: FakeSystem, chance: random.Random, kind: str, offset_commit: str) -> None:
        self.system, self.chance, self.kind, self.offset_commit = system, chance, kind, offset_commit
        self.got: Counter[bytes] = Counter()
        self.at_work: defaultdict[int, int] = defaultdict(int)
        self.most = 0
        self.members: list[tuple[Member, asyncio.Task[None] | None]] = []

    async def join(self) -> None:
        settings: Any = {
            "consume_from_where": FIRST, "offset_commit": self.offset_commit, "pull_batch_size": 8,
            "persist_offset_interval_ms": 20,
        }  # fmt: skip
        task = None
        if self.kind == "lite":
            member: Member = LitePullConsumer(
                "g", self.system.address, poll_timeout_ms=20, auto_commit_interval_ms=1, **settings
            )
            member.subscribe("T")
            await member.start()
            task = asyncio.create_task(self._poll(member))
        else:
            member = PushConsumer("g", self.system.address, consume_threads=3, **settings)
            member.subscribe("T")
            member.set_listener(self._listen, orderly=self.kind == "in order")
            await member.start()
        self.members.append((member, task))
        self.system.notify("g")

    async def leave(self) -> None:
        member, task = self.members.pop(self.chance.randrange(len(self.members)))
        await member.shutdown()
        if task is not None:
            await task
        self.system.notify("g")

    async def _listen(self, messages: Sequence[MessageExt], context: Any) -> Any:
        (message,) = messages
        self.at_work[message.queue_id] += 1
        self.most = max(self.most, self.at_work[message.queue_id])
        await asyncio.sleep(self.chance.random() / 500)
        self.at_work[message.queue_id] -= 1
        self.got[message.body] += 1
        return ConsumeOrderlyStatus.SUCCESS if self.kind == "in order" else SUCCESS

    async def _poll(self, member: LitePullConsumer) -> None:
        while member.is_running:
            for message in await member.poll():
                self.got[message.body] += 1


@pytest.mark.parametrize("offset_commit", ["async", "sync"])
@pytest.mark.parametrize("kind", ["concurrently", "in order", "lite"])
@pytest.mark.parametrize("seed", range(2))
def test_members_come_and_go(kind: str, offset_commit: str, seed: int) -> None:
    async def scenario() -> None:
        chance = random.Random(f"{seed}-{kind}-{offset_commit}")
        async with fake_system() as system:
            system.topics["T"] = QUEUES
            everything = dict.fromkeys(range(QUEUES), COUNT // QUEUES)
            group = Group(system, chance, kind, offset_commit)
            await group.join()
            for step in range(STEPS):
                for number in range(step * COUNT // STEPS, (step + 1) * COUNT // STEPS):
                    system.put("T", number % QUEUES, b"%d" % number)
                if len(group.members) < MEMBERS_MAX and chance.random() < 0.6:
                    await group.join()
                elif len(group.members) > 1:
                    await group.leave()
                await asyncio.sleep(chance.random() / 50)
            await until(lambda: len(group.got) == COUNT, "every message")
            assert kind != "in order" or group.most == 1, "one at a time has a queue"
            while len(group.members) > 1:  # one that had read a queue in the middle commits that when it leaves
                await group.leave()
            await until(lambda: stored(system) == everything, "every offset")
            await group.leave()
            assert stored(system) == everything

    run(scenario())


def stored(system: FakeSystem) -> dict[int, int]:
    return {queue: offset for (_, topic, queue), offset in system.offsets.items() if topic == "T"}
