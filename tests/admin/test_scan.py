"""Which messages are wanted; a look that meets a broker that fails tells it and goes on with the others."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from orbitmq.admin import scan
from orbitmq.admin.results import Failure
from orbitmq.admin.scan import MessageFilter, QueueScan, Stretch, follow
from orbitmq.admin.session import Node, Session
from orbitmq.message.compression import compress, decompress
from orbitmq.message.flags import COMPRESSED
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.message.properties import encode_properties
from orbitmq.net.remoting import Remoting
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import BROKER, fake_system, refuse

MESSAGE = MessageExt("T", b"hello world", 0, {"TAGS": "red", "KEYS": "a b", "city": "Rome"}, store_timestamp=100)


@pytest.mark.parametrize(
    ("wanted", "is_taken"),
    [
        (MessageFilter(), True),
        (MessageFilter(begin_ms=100, end_ms=100, tag="red", key="b", property=("city", "Rome"), text="lo wo"), True),
        (MessageFilter(begin_ms=101), False),
        (MessageFilter(end_ms=99), False),
        (MessageFilter(tag="blue"), False),
        (MessageFilter(key="a b"), False),
        (MessageFilter(property=("city", "Oslo")), False),
        (MessageFilter(text="World"), False),
    ],
)
def test_conditions(wanted: MessageFilter, *, is_taken: bool) -> None:
    assert wanted.takes(MESSAGE) is is_taken


def test_a_packed_body_is_unpacked_to_look_for_text() -> None:
    assert MessageFilter(text="hello").takes(MessageExt("T", compress(b"hello"), sys_flag=COMPRESSED))


async def test_a_body_that_cannot_be_unpacked_ends_no_search() -> None:
    async with fake_system() as system:
        system.topics["Orders"] = 1
        for body in (b"lost", b"broken", compress(b"found"), b"broken too"):
            system.put("Orders", 0, body)
        queue = system.messages["Orders", 0]
        queue[1:] = [replace(unit, sys_flag=COMPRESSED) for unit in queue[1:]]
        remoting = Remoting()
        found = await scan.browse(Session(remoting, [system.address]), "Orders", MessageFilter(text="ound"))
        assert [decompress(one.body, one.sys_flag) for one in found.items] == [b"found"]
        (warning,) = found.warnings
        assert warning.startswith("what cannot be unpacked is not searched, the first is Orders/broker-a/0@3: ")
        await remoting.close()


async def test_what_was_read_is_shown_and_the_broker_that_failed_is_named() -> None:
    async with fake_system() as system:
        system.topics["Orders"] = 1
        for number in range(40):
            system.put("Orders", 0, b"%d" % number, encode_properties({"TAGS": "red"}))
        remoting = Remoting()
        well = Stretch(Node("C", BROKER, 0, system.address), MessageQueue("Orders", BROKER, 0), 0, 40)
        gone = Stretch(Node("C", "broker-b", 0, "127.0.0.1:1"), MessageQueue("Orders", "broker-b", 0), 0, 40)
        look = QueueScan(Session(remoting, [system.address]), [well, gone], newest_first=True)
        assert [message.body async for message in look] == [b"%d" % number for number in range(39, -1, -1)]
        assert [failure.target for failure in look.failures] == ["broker-b (127.0.0.1:1): Orders/broker-b/0"]
        assert (look.looked_at, look.warnings()) == (40, [])
        await remoting.close()


async def test_a_broker_that_does_not_answer_is_told_once_and_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "PAUSE_S", 0.0)
    failures: list[Failure] = []
    async with fake_system() as system:
        system.topics["Orders"] = 1
        system.put("Orders", 0, b"x")
        system.answers[RequestCode.PULL_MESSAGE] = refuse(1, times=3)
        remoting = Remoting()
        part = Stretch(Node("C", BROKER, 0, system.address), MessageQueue("Orders", BROKER, 0), 0, 0)
        coming = follow(Session(remoting, [system.address]), [part], on_failure=failures.append)
        assert (await anext(coming)).body == b"x"
        assert [failure.name for failure in failures] == ["SYSTEM_ERROR"]
        await coming.aclose()
        await remoting.close()
