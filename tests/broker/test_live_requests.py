"""A request is a row and a handler: what the row says holds over a live broker, whatever the request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.mastership.fence import Fence
from orbitmq.net.connection import Connection
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, request
from orbitmq.wire.header import Header
from orbitmq.wire.request import Access, Fenced, Peer, Queue, Request, Slave, topic
from orbitmq.wire.requests import RequestCode, served_by
from orbitmq.wire.signature import Credentials, sign
from tests.broker.access.test_live_access import ADMIN, NOBODY, OWNER, TOPIC, guarded, refusal, signed
from tests.broker.test_live_slave import made_slave
from tests.support.live import client_of, made_broker, running
from tests.support.loops import until


class SpellHeader(Header):
    """The header of a request that RocketMQ does not have."""

    topic: str
    backwards: bool = False


SPELL = Request(
    30_100,
    "Spells the name of a topic.",
    SpellHeader,
    has_body=True,
    body_max=100,
    access=Access("SUB on the topic", (topic(),)),
    slave=Slave.REFUSES_CHANGE,
    fenced=Fenced.AT_MASTER,
    queue=Queue.PULL,
    is_exact=True,
)


def spell(_connection: Connection, command: Command) -> Command:
    header = command.header(SpellHeader)
    letters = reversed(header.topic) if header.backwards else header.topic
    return command.response(ResponseCode.SUCCESS, body="-".join(letters).encode())


def spelling(by: Credentials | None = None, body: bytes = b"", **more: str) -> Command:
    command = request(SPELL, SpellHeader(TOPIC, backwards=True), body)
    command.ext = {**(command.ext or {}), **more}
    if by is not None:
        sign(command, by)
    return command


async def test_a_row_and_a_handler_are_all_a_new_request_needs(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (broker, peer):
        assert (await peer.ask(spelling(OWNER))).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        broker.router.add(SPELL, spell)

        answer = await peer.ask(spelling(OWNER))
        assert (answer.code, bytes(answer.body)) == (0, "-".join(reversed(TOPIC)).encode())
        for command, remark in (
            (spelling(), "No accessKey is configured"),
            (spelling(NOBODY), "No default permission"),
            (spelling(OWNER, strange="1"), "is no field of a request with code=30100"),
            (spelling(OWNER, bytes(101)), "the body of such a request may have 100 bytes, not 101"),
        ):
            answer = await peer.ask(command)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert remark in (answer.remark or "")
        assert broker.router.overdue(spelling(), broker.options.wait_ms_in_pull_queue + 1) is not None
        Fence(lambda: "a later master", broker._sending.refusal, None).put_around(broker.router, is_master=True)
        assert (await peer.ask(spelling(OWNER))).code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_a_slave_refuses_a_new_request_as_its_row_says(tmp_path: Path) -> None:
    master = made_broker(tmp_path / "master")
    async with running(master), running(made_slave(tmp_path / "slave", master)) as slave, client_of(slave) as client:
        slave.router.add(SPELL, spell)
        answer = await client.ask(SPELL, SpellHeader(TOPIC))
        assert (answer.code, "is a slave of" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)


@pytest.mark.parametrize("is_slave", [False, True])
def test_a_broker_handles_the_requests_whose_rows_say_so(tmp_path: Path, *, is_slave: bool) -> None:
    broker: Any = made_broker(tmp_path, **({"brokerRole": "SLAVE", "brokerId": "1"} if is_slave else {}))
    assert sorted(broker.router.requests.values()) == served_by(Peer.BROKER)


def test_what_a_broker_refuses_without_serving_is_spelled_out() -> None:
    """A row that forgets its `slave` or `fenced` would be served everywhere."""
    code = RequestCode
    sends = {code.SEND_MESSAGE, code.SEND_MESSAGE_V2, code.SEND_BATCH_MESSAGE}
    changes = {
        code.UPDATE_AND_CREATE_TOPIC,
        code.UPDATE_AND_CREATE_TOPIC_LIST,
        code.DELETE_TOPIC_IN_BROKER,
        code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        code.DELETE_SUBSCRIPTIONGROUP,
        code.RESUME_CHECK_HALF_MESSAGE,
    }
    changes_of_five = {
        code.SET_MESSAGE_REQUEST_MODE,
        code.POP_MESSAGE,
        code.ACK_MESSAGE,
        code.BATCH_ACK_MESSAGE,
        code.CHANGE_MESSAGE_INVISIBLETIME,
    }
    ends = {code.END_TRANSACTION}
    by_slave = {kind: {one for one in RequestCode if one.slave is kind} for kind in Slave}
    assert by_slave[Slave.REFUSES_SEND] == sends | {code.RECALL_MESSAGE}
    assert by_slave[Slave.REFUSES_CHANGE] == changes | changes_of_five
    assert by_slave[Slave.REFUSES_END] == ends
    by_fence = {kind: {one for one in RequestCode if one.fenced is kind} for kind in Fenced}
    assert by_fence[Fenced.AT_MASTER] == sends | changes | ends | {
        code.SEND_REPLY_MESSAGE,
        code.SEND_REPLY_MESSAGE_V2,
        code.CONSUMER_SEND_MSG_BACK,
        code.GET_ALL_TOPIC_CONFIG,
        code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        code.RECALL_MESSAGE,
        code.GET_ALL_MESSAGE_REQUEST_MODE,
        *changes_of_five,
    }
    assert by_fence[Fenced.EVERYWHERE] == {
        code.PULL_MESSAGE,
        code.LITE_PULL_MESSAGE,
        code.QUERY_MESSAGE,
        code.SEARCH_OFFSET_BY_TIMESTAMP,
        code.GET_MAX_OFFSET,
        code.GET_MIN_OFFSET,
        code.GET_EARLIEST_MSG_STORETIME,
        code.LOCK_BATCH_MQ,
        code.QUERY_CONSUMER_OFFSET,
        code.UPDATE_CONSUMER_OFFSET,
        code.INVOKE_BROKER_TO_RESET_OFFSET,
        code.CLONE_GROUP_OFFSET,
        code.GET_ALL_CONSUMER_OFFSET,
        code.GET_ALL_DELAY_OFFSET,
        code.PEEK_MESSAGE,
        code.NOTIFICATION,
        code.GET_ALL_CONSUMER_ORDER,
        code.GET_TIMER_CHECK_POINT,
        code.GET_TIMER_METRICS,
    }


def test_every_request_has_one_code_and_a_sentence() -> None:
    assert len({int(request) for request in RequestCode}) == len(RequestCode.__members__)
    assert not [request.name for request in RequestCode if request.served_by and not request.text.endswith(".")]


async def test_every_handler_reads_the_header_that_its_row_declares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[int | None, set[type[Header]]] = {}
    read = Command.header

    def spy(command: Command, kind: type[Any]) -> Any:
        seen.setdefault(command.opaque, set()).add(kind)
        return read(command, kind)

    monkeypatch.setattr(Command, "header", spy)
    async with guarded(tmp_path) as (_, peer):
        for code in served_by(Peer.BROKER):
            if code in (RequestCode.PROMOTE_SLAVE, RequestCode.SWITCH_MASTER, RequestCode.SET_MAINTENANCE):
                continue  # a master refuses them unread
            command = request(code, body=b"{}" if code.has_body else b"")
            command.ext = dict.fromkeys(code.header.__struct_encode_fields__, "1")
            assert await refusal(peer, signed(command, ADMIN)) is None, code
            declared = {code.header} - {Header}
            await until(lambda: seen.get(command.opaque, set()) == declared, code.name)  # noqa: B023
