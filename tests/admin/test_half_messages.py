"""A half message is decided when an op message names it, or when the broker says that it is not pending any more."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from orbitmq.admin.half_messages import half_of, plan_resume
from orbitmq.admin.message_history import HalfState
from orbitmq.admin.session import Session
from orbitmq.errors import AdminError
from orbitmq.message.hosts import encode_host
from orbitmq.message.ids import offset_message_id
from orbitmq.message.model import MessageExt
from orbitmq.message.topics import HALF_TOPIC
from orbitmq.message.unit import Unit, encode_unit
from orbitmq.net.connection import Connection
from orbitmq.net.remoting import Remoting
from orbitmq.wire.bodies import BrokerData, ClusterInfo, ConsumeQueueEntries, ConsumeQueueEntry
from orbitmq.wire.bodies_transaction import PendingTransaction, PendingTransactions
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers import (
    GetMaxOffsetResponseHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetResponseHeader,
    ViewMessageHeader,
)
from orbitmq.wire.headers_admin import QueryConsumeQueueHeader
from orbitmq.wire.objects import encode, encode_standard
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import BROKER, FakeSystem, answer_with, fake_system

OFFSET = 123
MESSAGE = MessageExt(HALF_TOPIC, b"x", 0, {"TRANSACTION_CHECK_TIMES": "2"}, broker_name=BROKER, queue_offset=OFFSET)
HOST = encode_host("127.0.0.1", 10911)


def op_unit(number: int, body: bytes) -> bytes:
    place = number * 1000
    return encode_unit(
        Unit(0, 0, 0, 0, number, place, 0, 1, HOST, 1, HOST, 0, 0, body, "RMQ_SYS_TRANS_OP_HALF_TOPIC", "")
    )


def rocketmq(system: FakeSystem, progress: int, ops: Sequence[bytes]) -> None:
    """A broker of RocketMQ whose own group has passed half messages below `progress`, with these op messages."""

    def entries(_: Connection, command: Command) -> Command:
        header = command.header(QueryConsumeQueueHeader)
        found = [
            ConsumeQueueEntry(physical_offset=number * 1000)
            for number in range(header.index, min(header.index + header.count, len(ops)))
        ]
        return command.response(0, body=encode(ConsumeQueueEntries(queue_data=found)))

    def view(_: Connection, command: Command) -> Command:
        number = command.header(ViewMessageHeader).offset // 1000
        return command.response(0, body=op_unit(number, ops[number]))

    system.answers |= {
        RequestCode.QUERY_CONSUMER_OFFSET: answer_with(QueryConsumerOffsetResponseHeader(progress)),
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: answer_with(SearchOffsetResponseHeader(0)),
        RequestCode.GET_MAX_OFFSET: answer_with(GetMaxOffsetResponseHeader(len(ops))),
        RequestCode.QUERY_CONSUME_QUEUE: entries,
        RequestCode.VIEW_MESSAGE_BY_ID: view,
    }


async def state(system: FakeSystem) -> tuple[HalfState, int, int | None]:
    info = ClusterInfo({BROKER: BrokerData(BROKER, "C", {0: system.address})}, {"C": [BROKER]})
    system.answers[RequestCode.GET_BROKER_CLUSTER_INFO] = lambda _, command: command.response(
        0, body=encode_standard(info)
    )
    remoting = Remoting()
    try:
        found = await half_of(Session(remoting, [system.address]), MESSAGE)
    finally:
        await remoting.close()
    return found.state, found.checks, found.next_check_ms


@pytest.mark.parametrize(
    ("progress", "ops", "expected"),
    [
        (OFFSET + 1, [], HalfState.DECIDED),
        (OFFSET, [b"122", b"123"], HalfState.DECIDED),
        (OFFSET, [b"1"] * 100 + [b"5,123,"], HalfState.DECIDED),  # of RocketMQ 5, far behind the first page
        (OFFSET, [b"12", b"1234", b"23"], HalfState.PENDING),
        (OFFSET, [], HalfState.PENDING),
    ],
)
async def test_of_rocketmq_by_progress_or_op_messages(progress: int, ops: list[bytes], expected: HalfState) -> None:
    async with fake_system() as system:
        rocketmq(system, progress, ops)
        assert await state(system) == (expected, 2, None)


async def test_what_cannot_be_read_to_its_end_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.admin.half_messages.OPS_MAX", 32)
    async with fake_system() as system:
        rocketmq(system, OFFSET, [b"1"] * 100)
        assert (await state(system))[0] is HalfState.UNKNOWN


@pytest.mark.parametrize(
    ("pending", "expected"), [(OFFSET, (HalfState.PENDING, 5, 77)), (124, (HalfState.DECIDED, 2, None))]
)
async def test_of_orbitmq_by_what_it_tells(pending: int, expected: tuple[HalfState, int, int | None]) -> None:
    one = PendingTransaction(
        topic="T", queue_id=0, unique_id="U", offset_message_id="O", producer_group="p", queue_offset=pending,
        born_timestamp=1, age_ms=1, checks=5, next_check=77,
    )  # fmt: skip
    async with fake_system() as system:
        system.answers[RequestCode.GET_PENDING_TRANSACTIONS] = lambda _, command: command.response(
            ResponseCode.SUCCESS, body=encode(PendingTransactions([one], -1))
        )
        assert await state(system) == expected


@pytest.mark.parametrize(
    ("topic", "pending", "before"),
    [
        ("TRANS_CHECK_MAX_TIME_TOPIC", 124, "given up"),
        (HALF_TOPIC, OFFSET, "pending"),
        (HALF_TOPIC, 124, "not pending"),
    ],
)
async def test_a_plan_to_resume_says_how_the_message_stands(topic: str, pending: int, before: str) -> None:
    async with fake_system() as system:
        host, port = system.address.rsplit(":", 1)
        store_host = encode_host(host, int(port))
        unit = Unit(0, 0, 0, 0, OFFSET, 1000, 0, 1, HOST, 1, store_host, 0, 0, b"x", topic, "REAL_TOPIC\x01Orders\x02")
        one = PendingTransaction(
            topic="Orders", queue_id=0, unique_id="U", offset_message_id="O", producer_group="p", queue_offset=pending,
            born_timestamp=1, age_ms=1, checks=5, next_check=77,
        )  # fmt: skip
        info = ClusterInfo({BROKER: BrokerData(BROKER, "C", {0: system.address})}, {"C": [BROKER]})
        for code, body in {
            RequestCode.GET_BROKER_CLUSTER_INFO: encode_standard(info),
            RequestCode.GET_PENDING_TRANSACTIONS: encode(PendingTransactions([one], -1)),
            RequestCode.VIEW_MESSAGE_BY_ID: encode_unit(unit),
        }.items():
            system.answers[code] = lambda _, command, body=body: command.response(0, body=body)
        remoting = Remoting()
        plan = await plan_resume(Session(remoting, [system.address]), offset_message_id(store_host, 1000))
        await remoting.close()
        (change,) = plan.changes
        assert (change.step.before, change.step.after) == (before, "checked again")
        assert bool(plan.warnings) is (before == "not pending")


async def test_a_message_that_a_silent_broker_may_have_is_not_called_missing() -> None:
    async with fake_system() as system:
        info = ClusterInfo({BROKER: BrokerData(BROKER, "C", {0: "127.0.0.1:1"})}, {"C": [BROKER]})
        system.answers[RequestCode.GET_BROKER_CLUSTER_INFO] = lambda _, command: command.response(
            0, body=encode_standard(info)
        )
        remoting = Remoting()
        with pytest.raises(AdminError, match="is not found, and some nodes do not respond: broker-a"):
            await plan_resume(Session(remoting, [system.address]), offset_message_id(encode_host("127.0.0.1", 1), 1000))
        await remoting.close()
