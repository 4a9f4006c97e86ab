"""Messages found by what they are called: by key, unique id and offset id, by Java's client and by orbitmq's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

from orbitmq.client import Producer
from orbitmq.errors import ClientError
from orbitmq.message.unit import decode_units, message_of
from orbitmq.net.remoting import Remoting
from orbitmq.operations.queries import QueryReply, query_messages
from orbitmq.operations.sends import send
from orbitmq.wire.codes import ResponseCode
from tests.interop.conftest import System
from tests.support.delivery import Row, assert_content, assert_each_once, results
from tests.support.java_rocketmq import run_driver
from tests.support.live import send_header
from tests.support.messages import index_of
from tests.support.process import wait_until
from tests.support.python_client import until_indexed

COUNT = 200
CUSTOMERS = 97  # index % 97 is in the second key of each message
EVER_MS = (1 << 63) - 1
ANSWER_MAX = 64  # messages, however many are asked for
UNIQUE_MAX = 32


@pytest.fixture
def sent(system: System, label: str) -> Sequence[Row]:
    client = ("--namesrv", system.namesrv_address, "--topic", label)
    rows = results(run_driver("send", *client, "--count", COUNT, "--run", label))
    until_indexed(system.namesrv_address, label, f"order-{COUNT - 1}")
    return rows


def test_javas_client_finds_messages(system: System, label: str, sent: Sequence[Row]) -> None:
    client = ("admin", "--namesrv", system.namesrv_address, "--topic", label)
    keys = ("order-7", "order-199", "customer-5", "customer-90", "order-200", "order")
    rows = run_driver(*client, "--do", "query", "--keys", ",".join(keys))
    assert_content([row for row in rows if "code" not in row], label)
    found = {key: [index_of(row) for row in rows if row["key"] == key and "code" not in row] for key in keys}
    assert found == {
        "order-7": [7],
        "order-199": [199],
        "customer-5": [5, 102, 199],
        "customer-90": [90, 187],
        "order-200": [],
        "order": [],
    }
    assert [row["code"] for row in rows if "code" in row] == [ResponseCode.NO_MESSAGE] * 2
    newest = max(row["storeTimestamp"] for row in rows if "code" not in row)
    assert {row["indexEnd"] >= newest for row in rows if "code" not in row} == {True}

    some = sent[:: COUNT // 10]
    for name in ("msgId", "offsetMsgId"):
        viewed = run_driver(*client, "--do", "view", "--ids", ",".join(row[name] for row in some))
        assert_each_once(viewed, label, [row["index"] for row in some])


@pytest.mark.usefixtures("sent")
def test_javas_client_finds_the_newest_and_those_of_a_time(system: System, label: str) -> None:
    client = ("--namesrv", system.namesrv_address, "--topic", label)
    first = run_driver("admin", "--do", "query", *client, "--keys", "customer-5")
    end = max(row["storeTimestamp"] for row in first)
    # The index knows seconds, rounded down from its first message on.
    wait_until(lambda: time.time() * 1000 > end + 2000, 10, "two seconds to pass")
    run_driver("send", *client, "--first", COUNT, "--count", COUNT, "--run", label)
    until_indexed(system.namesrv_address, label, f"order-{2 * COUNT - 1}")

    def asked(*more: object) -> list[int]:
        rows = run_driver("admin", "--do", "query", *client, "--keys", "customer-5", *more)
        return [index_of(row) for row in rows if "code" not in row]

    assert asked("--end", end, "--max", 2) == [102, 199]
    assert asked("--begin", end + 1001) == [296, 393]


@pytest.mark.with_five
async def test_orbitmqs_client_finds_messages(system: System, label: str) -> None:
    async with Producer(label, system.namesrv_address) as client:
        answers = await asyncio.to_thread(
            run_driver, "send", "--namesrv", system.namesrv_address, "--topic", label, "--count", COUNT, "--run", label
        )
        sent = results(answers)
        await asyncio.to_thread(until_indexed, system.namesrv_address, label, f"order-{COUNT - 1}")

        async def indexes(key: str, *limits: int) -> list[str]:
            return [message.properties["index"] for message in await client.query_message(label, key, *limits)]

        assert await indexes("customer-5") == ["5", "102", "199"]
        assert await indexes("customer-5", 2) == ["102", "199"]
        assert await indexes("order-49") == ["49"], "a compressed one"
        for key in ("order-200", "order", ""):
            with pytest.raises(ClientError) as raised:
                await client.query_message(label, key)
            assert raised.value.code == ResponseCode.NO_MESSAGE
        with pytest.raises(ClientError):
            await client.query_message(label, "order-7", 32, 0, 1000)
        for row in sent[:: COUNT // 5]:
            for msg_id in (row["msgId"], row["offsetMsgId"]):
                message = await client.view_message(msg_id, label)
                assert message.properties["index"] == str(row["index"])
                assert (message.msg_id, message.offset_msg_id) == (row["msgId"], row["offsetMsgId"])
            assert (await client.view_message(row["offsetMsgId"])).msg_id == row["msgId"]
        with pytest.raises(ClientError) as raised:
            await client.view_message("7F0000010000000000000000000000FF", label)
        assert raised.value.code == ResponseCode.NO_MESSAGE


async def test_one_answer_has_so_many_messages_and_no_more(system: System, label: str) -> None:
    remoting = Remoting()
    for number in range(ANSWER_MAX + 6):
        header = send_header(label, {"KEYS": f"same n{number}", "UNIQ_KEY": f"U{number % 2}"}, queue_id=number % 4)
        await send(remoting, system.address, header, b"%d" % number, timeout_ms=30_000)

    async def asked(key: str, count: int, begin: int = 0, end: int = EVER_MS, *, unique: bool = False) -> QueryReply:
        return await query_messages(remoting, system.address, label, key, count, begin, end, unique=unique)

    async def numbers(key: str, count: int, *, unique: bool = False) -> list[int]:
        return [int(unit.body) for unit in decode_units((await asked(key, count, unique=unique)).body)]

    # RocketMQ answers a send before its index has the message.
    while not await numbers(f"n{ANSWER_MAX + 5}", 1):  # noqa: ASYNC110 - no event tells it
        await asyncio.sleep(0.05)
    everything = list(range(ANSWER_MAX + 6))
    assert await numbers("same", 1000) == everything[-ANSWER_MAX:]
    assert await numbers("same", 3) == everything[-3:]
    assert await numbers("n9", 32) == [9]
    assert await numbers("U1", 1, unique=True) == everything[1::2][-UNIQUE_MAX:]
    assert (await asked("same", 0)).body == b""
    reply = await asked("n9", 1)
    (unit,) = decode_units(reply.body)
    newest = decode_units((await asked("same", 1)).body)[0]
    assert reply.index_last_update_timestamp >= newest.store_timestamp
    assert reply.index_last_update_offset >= newest.physical_offset
    assert message_of(unit).keys == "same n9"
    assert await asked("n9", 32, 0, unit.store_timestamp - 60_000) == QueryReply(b"")
    assert await asked("n9", 32, unit.store_timestamp + 1, EVER_MS) == QueryReply(b"")
    await remoting.close()
