"""Delayed messages of a Java producer come to a Java consumer when their level's time has passed, and as they were."""

from __future__ import annotations

from orbitmq.message.flags import PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.message.properties import decode_properties
from orbitmq.message.unit import decode_units
from orbitmq.wire.requests import RequestCode
from tests.interop.conftest import System
from tests.support.asking import Asker, asking
from tests.support.delivery import assert_each_once, by_queue, messages, results
from tests.support.java_rocketmq import run_driver
from tests.support.live import pull_header, send_header
from tests.support.messages import index_of

COUNT = 200
LEVEL_MS = 1000  # of the levels used here, see conftest.py


def test_delayed_messages_come_when_their_time_has_passed(system: System, label: str) -> None:
    client = ("--namesrv", system.namesrv_address, "--topic", label)
    sent = results(run_driver("send", *client, "--count", COUNT, "--run", label, "--delay-level", 2))
    received = messages(run_driver("consume", *client, "--group", label, "--expect", COUNT))

    assert_each_once(received, label, range(COUNT))
    places = {row["index"]: row for row in sent}
    for row in received:
        acknowledged = places[index_of(row)]
        assert row["storeTimestamp"] - row["bornTimestamp"] >= LEVEL_MS
        assert row["queueId"] == acknowledged["queueId"], "the producer is told the queue of its own topic"
        properties = row["properties"]
        assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == (label, str(row["queueId"]))
        assert properties["DELAY"] == "2"
        assert row["msgId"] == acknowledged["msgId"]
        assert row["commitLogOffset"] > int(acknowledged["offsetMsgId"][16:], 16), "it was stored a second time"
    for rows in by_queue(received).values():
        rows.sort(key=lambda row: row["queueOffset"])
        assert [row["queueOffset"] for row in rows] == list(range(len(rows)))
        assert [index_of(row) for row in rows] == sorted(map(index_of, rows)), "messages of a level keep their order"


def test_a_level_beyond_the_table_is_the_last_one(system: System, label: str) -> None:
    async def scenario(asker: Asker) -> None:
        header = send_header(label, {"DELAY": "99"})
        assert (await asker.ask(RequestCode.SEND_MESSAGE_V2, header, b"late")).code == 0
        flags = PULL_SUBSCRIPTION | PULL_SUSPEND
        answer = await asker.ask(RequestCode.PULL_MESSAGE, pull_header(label, sys_flag=flags))
        (unit,) = decode_units(answer.body)
        assert decode_properties(unit.properties)["DELAY"] == "18"

    asking(system.address, scenario)
