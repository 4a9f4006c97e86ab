"""Accounts and permissions are those of the remoting port: who is refused there is refused here, with its reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orbitmq.gateway.messages import handle_of
from orbitmq.gateway.table import TABLE
from orbitmq.message.ids import decode_offset_message_id
from orbitmq.message.model import MessageExt
from orbitmq.message.pop import POP_CK, Receipt
from orbitmq.net.brake import FREE_TRIES
from orbitmq.wire.command import request
from orbitmq.wire.header import Header
from orbitmq.wire.headers import ConsumerSendMsgBackHeader, QueryConsumerOffsetHeader
from orbitmq.wire.headers_pop import AckMessageHeader, ChangeInvisibleTimeHeader, PopMessageHeader
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.signature import Credentials
from tests.support.access import (
    ADMIN,
    GROUP,
    IMPOSTOR,
    NOBODY,
    OWNER,
    PLAIN_ACL,
    STRANGER,
    TOPIC,
    signed,
    write_acl,
)
from tests.support.asking import asking
from tests.support.gateways import OrbitGateway, Reply
from tests.support.live import pull_header, send_header
from tests.support.orbit_process import OrbitUp
from tests.support.process import wait_until

ONLY_IN, ONLY_OUT, UNWANTED, NO_GROUP = "only-in", "only-out", "unwanted", "strangers"
REFUSED = "AclException: "
RECEIPT = Receipt(0, 1, 1000, 0, "0", "broker-a", 0, 0)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OrbitUp]:
    home = tmp_path_factory.mktemp("home")
    write_acl(home, PLAIN_ACL)
    with OrbitUp(aclEnable="true", rocketmqHome=home) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(up: OrbitUp) -> Iterator[OrbitGateway]:
    with OrbitGateway(up.namesrv_address) as running:
        yield running


@pytest.fixture(scope="module")
def stored(gateway: OrbitGateway) -> dict[str, int]:
    """Topic -> where one of its messages is in the log."""
    caller, found = gateway.caller(ADMIN), {}
    for topic in (TOPIC, ONLY_IN, ONLY_OUT, UNWANTED):
        sent = caller.post(f"/v1/topics/{topic}/messages", {"body": "x"})
        found[topic] = decode_offset_message_id(sent.body["offsetMessageId"]).physical_offset
        lag = f"/v1/topics/{topic}/groups/{GROUP}/lag"
        wait_until(lambda lag=lag: caller.get(lag).status == 200, 20, f"the route of {topic}")
    return found


def the_request(operation: str, topic: str, group: str, offset: int) -> tuple[RequestCode, Header]:
    """The request to a broker that an operation stands for."""
    now_ms = round(time.time() * 1000)
    return {
        "sendMessage": (RequestCode.SEND_MESSAGE_V2, send_header(topic)),
        "sendBatch": (RequestCode.SEND_MESSAGE_V2, send_header(topic)),
        "receiveMessages": (
            RequestCode.POP_MESSAGE, PopMessageHeader(group, topic, -1, 1, 1000, 0, now_ms, 0),
        ),
        "acknowledgeMessages": (RequestCode.ACK_MESSAGE, AckMessageHeader(group, topic, 0, RECEIPT.encode(), 0)),
        "changeVisibility": (
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
            ChangeInvisibleTimeHeader(group, topic, 0, RECEIPT.encode(), 0, 1000),
        ),
        "rejectMessages": (
            RequestCode.CONSUMER_SEND_MSG_BACK,
            ConsumerSendMsgBackHeader(offset=offset, group=group, delay_level=-1, origin_topic=topic),
        ),
        "followTopic": (RequestCode.PULL_MESSAGE, pull_header(topic, consumer_group=group, sys_flag=4)),
        "deliverMessages": (
            RequestCode.POP_MESSAGE, PopMessageHeader(group, topic, -1, 1, 1000, 0, now_ms, 0),
        ),
        "readLag": (RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetHeader(group, topic, 0)),
    }[operation]  # fmt: skip


def refused_by_remoting(up: OrbitUp, code: RequestCode, header: Header, account: Credentials | None) -> str | None:
    """Why the broker refuses a request over its port; None if it does not."""
    command = signed(request(code, header, b"x" if code.has_body else b""), account)
    answer = asking(up.address, lambda asker: asker.remoting.call(up.address, command, 30_000))
    remark = answer.remark or ""
    return remark.removeprefix(REFUSED) if remark.startswith(REFUSED) else None


def asked(gateway: OrbitGateway, operation: str, topic: str, group: str, offset: int, by: Credentials | None) -> Reply:
    """The same by HTTP. Streams end at once."""
    caller, base = gateway.caller(by), f"/v1/topics/{topic}"
    delivery = MessageExt(topic, b"", properties={POP_CK: RECEIPT.encode()}, commit_log_offset=offset)
    of_group, handle = f"{base}/groups/{group}", handle_of(delivery)
    work: dict[str, Callable[[], Reply]] = {
        "sendMessage": lambda: caller.post(f"{base}/messages", {"body": "x"}),
        "sendBatch": lambda: caller.post(f"{base}/batches", {"messages": [{"body": "x"}]}),
        "receiveMessages": lambda: caller.post(f"{of_group}/receive", {"waitSeconds": 0, "invisibleSeconds": 0.1}),
        "acknowledgeMessages": lambda: caller.post(f"{of_group}/acknowledge", {"handles": [handle]}),
        "changeVisibility": lambda: caller.post(f"{of_group}/visibility", {"handle": handle, "invisibleSeconds": 1}),
        "rejectMessages": lambda: caller.post(f"{of_group}/reject", {"handles": [handle]}),
        "followTopic": lambda: caller.get(f"{base}/events?seconds=0.1&reader={group}"),
        "deliverMessages": lambda: caller.get(f"{of_group}/events?seconds=0.1&invisibleSeconds=0.1"),
        "readLag": lambda: caller.get(f"{of_group}/lag"),
    }
    return work[operation]()


PLACES = ((TOPIC, GROUP), (ONLY_IN, GROUP), (ONLY_OUT, GROUP), (UNWANTED, GROUP), (TOPIC, NO_GROUP))


@pytest.mark.parametrize("operation", [one.name for one in TABLE])
def test_the_table_of_the_remoting_port_holds(
    up: OrbitUp, gateway: OrbitGateway, stored: dict[str, int], operation: str
) -> None:
    """{no credentials, account without permission, owner, administrator} x topics and groups: both ends agree."""
    allowed = []
    for topic, group in PLACES:
        for account in (None, NOBODY, OWNER, ADMIN):
            code, header = the_request(operation, topic, group, stored[topic])
            reason = refused_by_remoting(up, code, header, account)
            reply = asked(gateway, operation, topic, group, stored[topic], account)
            if reason is None:
                allowed.append((topic, group, account))
                assert reply.status not in (401, 403), (topic, group, account, reply)
                continue
            assert reply.status == (401 if account is None else 403), (topic, group, account, reason, reply)
            # An account that lacks two permissions is told of the one that the first request needs.
            assert (reason if account is not NOBODY else "No default permission for ") in reply.body["detail"]
    assert (TOPIC, GROUP, OWNER) in allowed
    assert {(topic, group, ADMIN) for topic, group in PLACES} <= set(allowed)
    assert not [one for one in allowed if one[2] in (None, NOBODY)]
    assert not [one for one in allowed if one[2] is OWNER and one[0] == UNWANTED]


@pytest.mark.parametrize("operation", [one.name for one in TABLE])
def test_nobody_gets_in_by_a_wrong_secret_or_an_unknown_name(
    gateway: OrbitGateway, stored: dict[str, int], operation: str
) -> None:
    for account, reason in (
        (IMPOSTOR, f"Check signature failed for accessKey={OWNER.access_key}"),
        (STRANGER, f"No acl config for {STRANGER.access_key}"),
    ):
        reply = asked(gateway, operation, TOPIC, GROUP, stored[TOPIC], account)
        assert (reply.status, reason in reply.body["detail"]) == (401, True), reply
        assert reply.headers["www-authenticate"].startswith("Basic ")


def test_a_wrong_secret_does_not_hide_among_other_failures(gateway: OrbitGateway) -> None:
    """Otherwise who guesses would not have to wait."""
    receipts = (RECEIPT, RECEIPT._replace(broker_name="no-broker"))
    handles = [handle_of(MessageExt(TOPIC, b"", properties={POP_CK: one.encode()})) for one in receipts]
    path = f"/v1/topics/{TOPIC}/groups/{GROUP}/acknowledge"
    assert gateway.caller(IMPOSTOR).post(path, {"handles": handles}).status == 401
    assert gateway.caller(OWNER).post(path, {"handles": handles}).status not in (401, 403)


def test_who_guesses_secrets_waits_and_others_do_not(gateway: OrbitGateway, stored: dict[str, int]) -> None:
    def seconds(account: Credentials, status: int) -> float:
        begun = time.monotonic()
        assert asked(gateway, "readLag", TOPIC, GROUP, stored[TOPIC], account).status == status
        return time.monotonic() - begun

    guesses = (Credentials(OWNER.access_key, f"guess {number}") for number in range(FREE_TRIES + 5))
    assert any(seconds(guess, 401) >= 1 for guess in guesses), "the last tries have to wait"
    assert min(seconds(OWNER, 200) for _ in range(3)) < 1, "each of a guesser would wait"


@pytest.mark.parametrize(
    "header", ["Basic", "Basic ????", "Basic bm9jb2xvbg==", "Basic Og==", "Bearer token", "Basic YTpiCg=="]
)
def test_what_is_no_account_is_refused(gateway: OrbitGateway, header: str) -> None:
    reply = gateway.caller().get(f"/v1/topics/{TOPIC}/groups/{GROUP}/lag", Authorization=header)
    assert reply.status == 401
    assert reply.body["detail"]


def test_no_secret_is_written_anywhere(gateway: OrbitGateway, stored: dict[str, int], tmp_path: Path) -> None:
    printed = gateway.output.read_text() + gateway.output.with_suffix(".err").read_text()
    for account in (ADMIN, OWNER, IMPOSTOR, STRANGER):
        assert account.secret_key not in printed
