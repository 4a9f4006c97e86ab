"""Access control of a running broker over TCP: who gets through with what, and how the rules change."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orbitmq.broker.access.control import AccessControl
from orbitmq.broker.access.files import AclPlaces
from orbitmq.broker.access.shapes import known_fields
from orbitmq.broker.broker import Broker
from orbitmq.errors import BrokerError, ConfigurationError, OrbitMQError
from orbitmq.message.config import SubscriptionData
from orbitmq.message.hosts import encode_host
from orbitmq.message.ids import offset_message_id
from orbitmq.message.model import MessageQueue
from orbitmq.message.pop import pop_retry_topic
from orbitmq.message.properties import INNER_MULTI_DISPATCH
from orbitmq.net import brake
from orbitmq.net.brake import FREE_TRIES, LATE_S, REST_SECONDS, RESTS
from orbitmq.net.connection_options import ConnectionOptions
from orbitmq.runtime.clock import ManualClock
from orbitmq.runtime.refusals import Limit
from orbitmq.wire.bodies import ConsumerData, HeartbeatData, QueueLockRequest
from orbitmq.wire.bodies_pop import AssignmentQuery
from orbitmq.wire.codes import SerializeType
from orbitmq.wire.command import Command, request
from orbitmq.wire.objects import encode
from orbitmq.wire.request import Peer
from orbitmq.wire.requests import RequestCode, served_by
from orbitmq.wire.signature import Credentials
from tests.broker.test_live_slave import made_slave
from tests.support.access import (
    ADMIN,
    GROUP,
    IMPOSTOR,
    NOBODY,
    OWNER,
    PLAIN_ACL,
    STRANGER,
    TOPIC,
    FakeConnection,
    command_of,
    signed,
    write_acl,
)
from tests.support.live import Time, long_header, made_broker, running, send_header
from tests.support.loops import LoopFactory, until
from tests.support.peers import BarePeer, bare_peer

REFUSED = "AclException: "
PING = 1 << 30


def guarded_broker(home: Path, acl: str | None = PLAIN_ACL, **pairs: str) -> Broker:
    if acl is not None:
        write_acl(home, acl)
    return made_broker(home / "store", aclEnable="true", **pairs)


@asynccontextmanager
async def guarded(home: Path, acl: str = PLAIN_ACL, **pairs: str) -> AsyncIterator[tuple[Broker, BarePeer]]:
    async with running(guarded_broker(home, acl, **pairs)) as broker, bare_peer(broker.address) as peer:
        yield broker, peer


async def refusal(peer: BarePeer, command: Command) -> str | None:
    """Why a request was refused; None when it got to its handler, which may answer later, or never.

    Refusals come at once, so they come before the answer to the next request.
    """
    ping = signed(Command(code=RequestCode.GET_MAX_OFFSET, ext={"topic": TOPIC, "queueId": "0"}, opaque=PING), ADMIN)
    await peer.send(command, ping)
    found = None
    while (answer := await peer.read()).opaque != PING:
        if answer.opaque == command.opaque and (answer.remark or "").startswith(REFUSED):
            assert answer.code == 1
            found = answer.remark.removeprefix(REFUSED)
    return found


async def send(peer: BarePeer, credentials: Credentials | None, topic: str = TOPIC, body: bytes = b"body") -> Command:
    command = request(RequestCode.SEND_MESSAGE_V2, send_header(topic), body)
    return await peer.ask(signed(command, credentials))


async def test_a_message_enters_only_queues_that_its_sender_may_send_to(tmp_path: Path) -> None:
    async with guarded(tmp_path, enableMultiDispatch="true") as (_, peer):
        for names, is_allowed in ((TOPIC, True), (f"{TOPIC},unwanted", False)):
            header = send_header(TOPIC, {INNER_MULTI_DISPATCH: names})
            for code, fields in (
                (RequestCode.SEND_MESSAGE, long_header(header)),
                (RequestCode.SEND_MESSAGE_V2, header),
            ):
                answer = await peer.ask(signed(request(code, fields, b"body"), OWNER))
                assert (answer.code == 0) is is_allowed, answer.remark
                assert is_allowed or "topic:unwanted" in (answer.remark or "")


async def test_a_consumers_copy_to_its_retry_topic_enters_no_further_queue(tmp_path: Path) -> None:
    async with guarded(tmp_path, enableMultiDispatch="true") as (_, peer):
        header = send_header(f"%RETRY%{GROUP}", {INNER_MULTI_DISPATCH: "unwanted"})
        answer = await peer.ask(signed(request(RequestCode.SEND_MESSAGE_V2, header, b"body"), OWNER))
        assert answer.code == 0, answer.remark


# --------------------------------------------------------------------------------------------------------- the table


def fields_for(code: int, message_offset: int, message_id: str) -> dict[str, str]:
    """Every field by which a request names a topic or a group; what it names besides, the handler may miss."""
    topic = "unwanted" if code in (RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.UPDATE_AND_CREATE_TOPIC) else TOPIC
    group = "unwanted" if code == RequestCode.DELETE_SUBSCRIPTIONGROUP else GROUP
    names = dict.fromkeys(("topic", "b"), topic)
    names |= dict.fromkeys(("consumerGroup", "group", "srcGroup", "destGroup", "compareGroup", "groupName"), group)
    return {**names, "offset": str(message_offset), "commitLogOffset": str(message_offset), "msgId": message_id}


def body_for(code: int) -> bytes:
    queues = [MessageQueue(TOPIC, "broker-a", 0)]
    if code == RequestCode.HEART_BEAT:
        consumers = [ConsumerData(GROUP, subscription_data_set=[SubscriptionData(TOPIC, "*")])]
        return encode(HeartbeatData("client", consumers))
    if code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
        return encode(QueueLockRequest("client", GROUP, queues))
    if code == RequestCode.QUERY_ASSIGNMENT:
        return encode(AssignmentQuery(TOPIC, GROUP))
    if code == RequestCode.BATCH_ACK_MESSAGE:
        ack = {"c": GROUP, "t": TOPIC, "so": 0, "q": 0, "rq": 0, "pt": 1, "it": 1, "b": "AQ=="}
        return json.dumps({"acks": [ack]}).encode()
    return b""


async def test_the_table_holds_for_every_request_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """{no credentials, wrong secret, unknown account, account without permission, permitted} x request code."""
    monkeypatch.setattr(brake, "FREE_TRIES", 1000)
    async with guarded(tmp_path) as (broker, peer):
        assert (await send(peer, OWNER)).code == 0
        ((offset, _, _),) = broker.store.entries(TOPIC, 0, 0, 1)
        message_id = offset_message_id(encode_host("127.0.0.1", broker.port), offset)
        for code in sorted(RequestCode):
            fields, body = fields_for(code, offset, message_id), body_for(code)
            if code.is_exact:
                fields = {name: text for name, text in fields.items() if name in known_fields(code)}

            async def asked(by: Credentials | None) -> str | None:
                return await refusal(peer, signed(command_of(code, fields, body), by))  # noqa: B023 - asked at once

            assert await asked(None) == "No accessKey is configured", code
            assert await asked(IMPOSTOR) == f"Check signature failed for accessKey={OWNER.access_key}", code
            assert await asked(STRANGER) == f"No acl config for {STRANGER.access_key}", code
            is_handled, access = Peer.BROKER in code.served_by, code.access
            without = await asked(NOBODY)
            if is_handled and access.is_admin:
                missing = f"Need admin permission for request code={code}, but accessKey="
                assert without == f"{missing}{NOBODY.access_key} is not"
                assert await asked(OWNER) == f"{missing}{OWNER.access_key} is not"
                assert await asked(ADMIN) is None, code
            elif is_handled and access.needs:
                assert (without or "").startswith("No default permission for "), code
                assert await asked(OWNER) is None, code
            else:
                assert without is None, code


async def test_a_signed_read_cannot_be_sent_again_as_a_removal(tmp_path: Path) -> None:
    """The signature covers values without their names: what the removal does not read hid in a field of any name."""
    async with guarded(tmp_path) as (broker, peer):
        assert (await send(peer, OWNER)).code == 0
        heard = signed(command_of(RequestCode.GET_CONSUME_STATS, {"consumerGroup": GROUP, "topic": TOPIC}), ADMIN)
        assert (await peer.ask(heard)).code == 0
        assert heard.ext is not None
        replayed = command_of(RequestCode.DELETE_TOPIC_IN_BROKER, heard.ext)
        answer = await peer.ask(replayed)
        assert (answer.code, answer.remark) == (
            1, "AclException: field consumerGroup is no field of a request with code=215, and the signature covers it"
        )  # fmt: skip
        assert broker.topics.get(TOPIC) is not None
        for name in ("bname", "ns", "SecurityToken", "__ZONE_NAME", "ReqT", "oway"):
            fields = {"topic": TOPIC, name: GROUP}
            assert "is no field of" in (await refusal(peer, signed(command_of(215, fields), ADMIN)) or ""), name
        assert broker.topics.get(TOPIC) is not None


async def test_a_signed_message_cannot_be_sent_again_as_administration(tmp_path: Path) -> None:
    """Nor can what its sender wrote into the body: only what has a body of its own is taken with one."""
    async with guarded(tmp_path) as (broker, peer):
        assert (await send(peer, OWNER)).code == 0
        command = signed(command_of(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC}, b"as a message"), ADMIN)
        assert (await refusal(peer, command) or "").startswith("a request with code=215 has no body")
        assert broker.topics.get(TOPIC) is not None


async def test_what_clients_add_to_any_request_is_taken_from_administrators(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (_, peer):
        fields = {"ReqT": "0", "oway": "false", "lo": "false"}
        assert await refusal(peer, signed(command_of(RequestCode.GET_BROKER_CONFIG, fields), ADMIN)) is None
        command = signed(command_of(RequestCode.GET_BROKER_CONFIG), ADMIN)
        assert command.ext is not None
        command.ext["__ZONE_NAME"] = "added behind the signature"
        assert await refusal(peer, command) is None


async def test_a_code_that_is_handled_without_a_rule_needs_an_administrator(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (broker, peer):
        broker.router.add(7777, lambda _connection, command: command.response(0))
        assert (await peer.ask(signed(command_of(7777), OWNER))).code == 1
        assert (await peer.ask(signed(command_of(7777), ADMIN))).code == 0
        assert (await peer.ask(command_of(8888))).remark == "AclException: No accessKey is configured"
        assert (await peer.ask(signed(command_of(8888), NOBODY))).code == 3


async def test_the_lag_of_what_is_redelivered_belongs_to_group_and_topic(tmp_path: Path) -> None:
    """By its name alone the topic would be that of another group."""
    async with guarded(tmp_path) as (_, peer):
        for group, topic, is_allowed in ((GROUP, TOPIC, True), (GROUP, "unwanted", False), ("strangers", TOPIC, False)):
            fields = {"consumerGroup": group, "topic": pop_retry_topic(topic, group)}
            command = signed(command_of(RequestCode.GET_CONSUME_STATS, fields), OWNER)
            assert (await refusal(peer, command) is None) is is_allowed, (group, topic)


# ----------------------------------------------------------------------------------------------------- single rules


@pytest.mark.parametrize("kind", SerializeType)
async def test_both_header_forms_are_checked(tmp_path: Path, kind: SerializeType) -> None:
    async with guarded(tmp_path) as (_, peer):
        for credentials, code in ((OWNER, 0), (IMPOSTOR, 1), (NOBODY, 1)):
            command = request(RequestCode.SEND_MESSAGE_V2, send_header(TOPIC), b"body")
            command.serialize_type = kind
            answer = await peer.ask(signed(command, credentials))
            assert (answer.code, answer.serialize_type) == (code, kind)


async def test_a_topic_may_be_open_one_way_only(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (_, peer):
        assert (await send(peer, OWNER, "only-in")).code == 0
        assert (await send(peer, OWNER, "only-out")).remark == f"{REFUSED}No default permission for topic:only-out"
        pull = {"consumerGroup": GROUP, "topic": "only-in"}
        refused = await refusal(peer, signed(command_of(RequestCode.PULL_MESSAGE, pull), OWNER))
        assert refused == "No default permission for topic:only-in"


async def test_a_retry_topic_is_its_groups(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (_, peer):
        assert (await send(peer, OWNER, f"%RETRY%{GROUP}")).code == 0
        refused = await send(peer, OWNER, "%RETRY%others")
        assert refused.remark == f"{REFUSED}No default permission for group:others"


async def test_a_change_under_way_breaks_the_signature(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (_, peer):
        command = signed(request(RequestCode.SEND_MESSAGE_V2, send_header(TOPIC), b"body"), OWNER)
        command.body = b"evil"
        assert "Check signature failed" in (await peer.ask(command)).remark


async def test_a_oneway_request_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (broker, peer):
        command = request(RequestCode.SEND_MESSAGE_V2, send_header(TOPIC), b"body", oneway=True)
        assert await refusal(peer, signed(command, IMPOSTOR)) is None
        assert broker.store.max_offset(TOPIC, 0) == 0


async def test_an_address_on_the_white_list_needs_no_signature(tmp_path: Path) -> None:
    acl = PLAIN_ACL.replace("globalWhiteRemoteAddresses:", "globalWhiteRemoteAddresses:\n- 127.0.0.{1,2}")
    async with guarded(tmp_path, acl) as (_, peer):
        assert (await send(peer, None)).code == 0
        assert await refusal(peer, command_of(RequestCode.GET_BROKER_CONFIG)) is None


async def test_an_account_with_the_address_needs_no_right_signature(tmp_path: Path) -> None:
    acl = PLAIN_ACL + "  whiteRemoteAddress: 127.0.*.*\n"
    async with guarded(tmp_path, acl) as (_, peer):
        assert (await send(peer, Credentials(NOBODY.access_key, "wrong secret"))).code == 0
        assert (await send(peer, IMPOSTOR)).code == 1


async def test_bytes_inside_a_body_are_no_message_of_anybody(tmp_path: Path) -> None:
    """Else a message made to hold another one would open the log behind it to whoever may write somewhere."""
    async with guarded(tmp_path) as (broker, peer):
        assert (await send(peer, OWNER)).code == 0
        fake = bytes(broker.store.unit_at(0))
        assert (await send(peer, OWNER, body=b"--" + fake)).code == 0
        ((offset, size, _),) = broker.store.entries(TOPIC, 0, 1, 1)
        inside = bytes(broker.store.unit_at(offset)[:size]).index(fake) + offset
        assert broker.store.unit_at(inside) is not None
        view = {"offset": str(inside)}
        answer = await peer.ask(signed(command_of(RequestCode.VIEW_MESSAGE_BY_ID, view), OWNER))
        assert (answer.code, answer.remark) == (1, f"no message can be read at offset {inside}")
        view = {"offset": str(offset)}
        assert (await peer.ask(signed(command_of(RequestCode.VIEW_MESSAGE_BY_ID, view), OWNER))).code == 0


async def test_a_waiting_message_belongs_to_the_topic_it_is_for(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (broker, peer):
        header = send_header("only-in", {"DELAY": "18"})
        assert (await peer.ask(signed(request(RequestCode.SEND_MESSAGE_V2, header, b"later"), OWNER))).code == 0
        ((offset, _, _),) = broker.store.entries("SCHEDULE_TOPIC_XXXX", 17, 0, 1)
        refused = await refusal(peer, signed(command_of(33, {"offset": str(offset)}), OWNER))
        assert refused == "No default permission for topic:only-in"


async def test_a_transaction_is_ended_by_those_who_may_publish(tmp_path: Path) -> None:
    acl = PLAIN_ACL + "  topicPerms: [orders=SUB]\n"  # reading is not enough
    async with guarded(tmp_path, acl) as (broker, peer):
        prepared = send_header(TOPIC, {"TRAN_MSG": "true", "PGROUP": "producers"}, sys_flag=4)
        sent = await peer.ask(signed(request(RequestCode.SEND_MESSAGE_V2, prepared, b"half"), OWNER))
        assert sent.code == 0
        ((offset, _, _),) = broker.store.entries("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0, 1)
        end = {"producerGroup": "producers", "tranStateTableOffset": "0", "commitLogOffset": str(offset)}
        commit = command_of(RequestCode.END_TRANSACTION, {**end, "commitOrRollback": "8"})
        assert await refusal(peer, signed(commit, NOBODY)) == f"No default permission for topic:{TOPIC}"
        assert broker.store.max_offset(TOPIC, 0) == 0
        assert await refusal(peer, signed(commit, OWNER)) is None
        await until(lambda: broker.store.max_offset(TOPIC, 0) == 1)


# ------------------------------------------------------------------------------------------------------ the files


async def test_a_broker_without_rules_does_not_start(tmp_path: Path) -> None:
    broker = guarded_broker(tmp_path, acl=None)
    with pytest.raises(ConfigurationError, match=r"aclEnable: neither .*/conf/plain_acl\.yml nor"):
        await broker.start()


async def test_a_broker_with_a_broken_file_does_not_start(tmp_path: Path) -> None:
    broker = guarded_broker(tmp_path, "accounts:\n- accessKey: short\n  secretKey: hush\n")
    with pytest.raises(ConfigurationError, match=r"plain_acl\.yml: The accessKey=short and its secretKey"):
        await broker.start()


async def test_options_say_where_the_files_are(tmp_path: Path) -> None:
    write_acl(tmp_path / "elsewhere", PLAIN_ACL, "my/rules.yml")
    write_acl(
        tmp_path / "elsewhere", "accounts: [{accessKey: another, secretKey: another secret}]", "conf/acl/team.yml"
    )
    pairs = {"rocketmqHome": str(tmp_path / "elsewhere"), "aclFile": "my/rules.yml"}
    async with running(guarded_broker(tmp_path, None, **pairs)) as broker, bare_peer(broker.address) as peer:
        assert (await send(peer, OWNER)).code == 0
        assert (await peer.ask(signed(command_of(8888), Credentials("another", "another secret")))).code == 3


async def test_changed_files_count_without_a_restart_and_broken_ones_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("orbitmq.broker.access.control.LOOK_SECONDS", 0.01)
    async with guarded(tmp_path) as (_, peer):
        assert (await send(peer, NOBODY)).code == 1
        path = write_acl(tmp_path, PLAIN_ACL + "  defaultTopicPerm: PUB\n")
        await until_answered(peer, NOBODY, 0)
        with caplog.at_level(logging.ERROR, "orbitmq"):
            write_acl(tmp_path, "accounts: [{accessKey: half-written, secretKey: hush")
            await until(lambda: "access_rules_kept" in caplog.text)
            assert (await send(peer, NOBODY)).code == 0
            path.unlink()
            await until(lambda: "aclEnable: neither" in caplog.text)
            assert (await send(peer, NOBODY)).code == 0
        assert "hush" not in caplog.text
        assert caplog.text.count("access_rules_kept") == 2
        write_acl(tmp_path)
        await until_answered(peer, NOBODY, 1)
        more = f"accounts: [{{accessKey: {NOBODY.access_key}, secretKey: {NOBODY.secret_key}, defaultTopicPerm: PUB}}]"
        write_acl(tmp_path, more, "conf/acl/team.yml")
        await until_answered(peer, NOBODY, 0)


async def test_a_file_counts_only_when_it_stays_as_it_is(tmp_path: Path, control: AccessControl) -> None:
    path = write_acl(tmp_path, "")
    control.reload()
    assert OWNER.access_key in control.policy.accounts
    path.write_text(PLAIN_ACL.replace(OWNER.access_key, "somebody-else"))
    control.reload()
    assert OWNER.access_key in control.policy.accounts
    control.reload()
    assert "somebody-else" in control.policy.accounts


async def until_answered(peer: BarePeer, credentials: Credentials, code: int) -> None:
    async with asyncio.timeout(20):
        while (await send(peer, credentials)).code != code:  # noqa: ASYNC110 - asking is how it is seen
            await asyncio.sleep(0.005)


def test_a_file_that_everybody_can_read_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_acl(tmp_path)
    places = AclPlaces(path, tmp_path / "conf/acl")
    for mode, warned in ((0o600, False), (0o644, True)):
        path.chmod(mode)
        caplog.clear()
        AccessControl(places, {}, lambda _offset: None, ManualClock()).load()
        assert ("access_file_readable_by_all" in caplog.text) is warned


# ------------------------------------------------------------------------------------------------- administration


async def admin(peer: BarePeer, code: RequestCode, **fields: str) -> Command:
    return await peer.ask(signed(command_of(code, fields), ADMIN))


async def test_accounts_are_added_changed_and_removed_at_once(tmp_path: Path) -> None:
    someone = Credentials("someone-new", "a new secret")
    fields = {"accessKey": someone.access_key, "secretKey": someone.secret_key, "admin": "false"}
    async with guarded(tmp_path) as (_, peer):
        answer = await admin(peer, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, **fields, topicPerms=f"{TOPIC}=PUB,b=SUB")
        assert (answer.code, answer.ext) == (0, {})
        assert (await send(peer, someone)).code == 0
        changed = {**fields, "topicPerms": f"{TOPIC}=DENY"}
        assert (await admin(peer, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, **changed)).code == 0
        assert "No default permission" in (await send(peer, someone)).remark
        assert (await admin(peer, RequestCode.DELETE_ACL_CONFIG, accessKey=someone.access_key)).code == 0
        assert "No acl config" in (await send(peer, someone)).remark
        again = await admin(peer, RequestCode.DELETE_ACL_CONFIG, accessKey=someone.access_key)
        assert (again.code, again.remark) == (
            210,
            "The accesskey[someone-new] corresponding to accessConfig has been deleted failed.",
        )
        assert (await send(peer, OWNER)).code == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"accessKey": "abc", "secretKey": "hush"},
        {"accessKey": "long enough"},
        {"accessKey": "long enough", "secretKey": "hush hush", "topicPerms": "a"},
        {"accessKey": "long enough", "secretKey": "hush hush", "topicPerms": "a=pub"},
        {"accessKey": "long enough", "secretKey": "hush hush", "defaultTopicPerm": "nonsense"},
        {"accessKey": "long enough", "secretKey": "hush hush", "whiteRemoteAddress": "300.1.1.1"},
    ],
)
async def test_an_account_that_cannot_be_used_changes_nothing(tmp_path: Path, fields: dict[str, str]) -> None:
    async with guarded(tmp_path) as (_, peer):
        answer = await admin(peer, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, **fields)
        assert answer.code == 209
        assert "hush" not in answer.remark
        assert (tmp_path / "conf/plain_acl.yml").read_text() == PLAIN_ACL


async def test_an_account_is_changed_in_the_file_it_stands_in(tmp_path: Path) -> None:
    other = write_acl(tmp_path, "accounts: [{accessKey: another, secretKey: another secret}]", "conf/acl/team.yml")
    async with guarded(tmp_path) as (_, peer):
        changed = {"accessKey": "another", "secretKey": "secret of today"}
        assert (await admin(peer, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, **changed)).code == 0
        assert "secret of today" in other.read_text()
        assert (tmp_path / "conf/plain_acl.yml").read_text() == PLAIN_ACL
        versions = await admin(peer, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
        assert json.loads(versions.ext["allAclFileVersion"])[str(other)]["counter"] == 1
        assert json.loads(versions.ext["version"])["counter"] == 0
        assert (versions.ext["brokerName"], versions.ext["clusterName"]) == ("broker-a", "DefaultCluster")
        assert versions.ext["brokerAddr"] == peer_address(peer)


def peer_address(peer: BarePeer) -> str:
    host, port = peer.writer.get_extra_info("peername")
    return f"{host}:{port}"


async def test_the_white_list_is_replaced_in_a_known_file_only(tmp_path: Path) -> None:
    evil = tmp_path / "evil.yml"
    async with guarded(tmp_path) as (_, peer):
        for fields in (
            {"globalWhiteAddrs": "1.1.1.1", "aclFileFullPath": str(evil)},
            {"globalWhiteAddrs": "1.1.1.300"},
        ):
            assert (await admin(peer, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, **fields)).code == 211
        assert not evil.exists()
        addresses = "10.1.1.{1,2},127.0.0.*"
        answer = await admin(peer, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, globalWhiteAddrs=addresses)
        assert answer.code == 0
        assert (await send(peer, None)).code == 0
        text = (tmp_path / "conf/plain_acl.yml").read_text()
        assert text.startswith("globalWhiteRemoteAddresses:\n- 10.1.1.{1,2}\n- 127.0.0.*\naccounts:\n")


async def test_tools_get_every_account(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (_, peer):
        body = json.loads((await admin(peer, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)).body)
        assert body["globalWhiteAddrs"] == ["10.10.103.*"]
        assert body["plainAccessConfigs"][1] == {
            "accessKey": OWNER.access_key,
            "admin": False,
            "defaultGroupPerm": "DENY",
            "defaultTopicPerm": "DENY",
            "groupPerms": ["billing=SUB", "shipping=SUB"],
            "secretKey": OWNER.secret_key,
            "topicPerms": ["orders=PUB|SUB", "only-in=PUB", "only-out=SUB"],
        }


async def test_requests_about_accounts_are_answered_while_access_control_is_off(tmp_path: Path) -> None:
    async with running(made_broker(tmp_path)) as broker, bare_peer(broker.address) as peer:
        for code, failure in {50: 209, 51: 210, 53: 211, 52: 1, 54: 1}.items():
            answer = await peer.ask(command_of(code, {"accessKey": "someone"}))
            assert (answer.code, answer.remark) == (failure, "access control is off: option aclEnable is false")


# ---------------------------------------------------------------------------------------------------------- secrets


async def test_what_only_owners_know_is_never_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "orbitmq"):
        async with guarded(tmp_path) as (_, peer):
            for credentials in (None, OWNER, IMPOSTOR, STRANGER, NOBODY):
                await send(peer, credentials)
            # Somebody puts the secret where the access key belongs.
            await send(peer, Credentials(OWNER.secret_key, OWNER.secret_key))
            secret = {"accessKey": "someone-new", "secretKey": "a new secret"}
            await admin(peer, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, **secret)
            await admin(peer, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
    assert "access_denied" in caplog.text
    assert "secret" not in caplog.text.replace("its secretKey", "")


async def test_who_guesses_secrets_is_slowed_down_and_nobody_else(tmp_path: Path, turned_clock: LoopFactory) -> None:
    """The broker looks at few of 500 tries that come at once: 20 are answered, some later, and the connection ends.
    Another connection from the same address, and the account itself, go on as before.
    """
    time = Time()
    write_acl(tmp_path)
    broker = made_broker(tmp_path / "store", time.clock, aclEnable="true")
    async with running(broker), bare_peer(broker.address) as guesser, bare_peer(broker.address) as neighbour:
        tries = [command_of(RequestCode.GET_BROKER_CONFIG) for _ in range(500)]
        for number, command in enumerate(tries):
            command.opaque = number
            signed(command, Credentials(ADMIN.access_key, f"guess-{number}"))
        await guesser.send(*tries)
        await until(lambda: any(RESTS in one.attributes for one in broker.connections))
        assert (await send(neighbour, OWNER)).code == 0
        assert await refusal(neighbour, signed(command_of(RequestCode.GET_BROKER_CONFIG), ADMIN)) is None
        await time.pass_by(LATE_S)
        answers = [await guesser.read() for _ in tries]
        assert all("Check signature failed" in (answer.remark or "") for answer in answers)
        looked_at = {answer.opaque for answer in answers if "too often" not in (answer.remark or "")}
        assert looked_at == set(range(broker.refusals.counts[Limit.SIGNATURES]))
        assert FREE_TRIES < len(looked_at) < FREE_TRIES + 10, "some time passes while they come"
        await time.pass_by(REST_SECONDS)
        assert await guesser.reader.read() == b""
        assert (await send(neighbour, OWNER)).code == 0


async def test_who_leaves_instead_of_waiting_has_no_more_tries(tmp_path: Path, turned_clock: LoopFactory) -> None:
    """A connection that has tried too much takes a place of its address for ten seconds, though it ends at once."""
    time = Time()
    write_acl(tmp_path)
    broker = made_broker(tmp_path / "store", time.clock, aclEnable="true")
    broker._server._limits = ConnectionOptions(host_connections_max=5)
    wrong = signed(command_of(RequestCode.GET_BROKER_CONFIG), Credentials(ADMIN.access_key, "guess"))
    async with running(broker):
        async with bare_peer(broker.address) as guesser:
            await guesser.send(*[wrong] * 100)
            await until(lambda: broker.refusals.counts[Limit.SIGNATURES] > FREE_TRIES)
        for _ in range(50):
            async with bare_peer(broker.address) as guesser:
                await guesser.send(wrong)
            await until(lambda: not broker.connections)
        assert broker.refusals.counts[Limit.SIGNATURES] < FREE_TRIES + 10
        assert broker.refusals.counts[Limit.HOST_CONNECTIONS] > 0
        async with bare_peer(broker.address, source="127.0.0.2") as elsewhere:
            assert (await send(elsewhere, OWNER)).code == 0
        await time.pass_by(REST_SECONDS)
        async with bare_peer(broker.address) as again:
            assert (await send(again, OWNER)).code == 0


async def test_a_flood_of_refused_requests_leaves_few_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with guarded(tmp_path) as (_, peer):
        for _ in range(FREE_TRIES):  # further ones are answered late
            await send(peer, IMPOSTOR)
    assert caplog.text.count("access_denied") == 1


# ------------------------------------------------------------------------------------------------------ strange input


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ext=st.dictionaries(
        st.sampled_from(["AccessKey", "Signature", "topic", "b", "offset", "consumerGroup"]) | st.text(max_size=5),
        st.sampled_from([OWNER.access_key, "", "-1", "99999999999999999999"]) | st.text(max_size=40),
    ),
    code=st.sampled_from(served_by(Peer.BROKER)) | st.integers(-(1 << 15), (1 << 15) - 1),
    body=st.binary(max_size=60) | st.sampled_from([b"{", b"[]", b'{"consumerDataSet":[{"groupName":null}]}']),
    by=st.sampled_from([None, OWNER, NOBODY, ADMIN]),
)
def test_strange_requests_are_refused_and_break_nothing(
    shared_control: AccessControl, ext: dict[str, str], code: int, body: bytes, by: Credentials | None
) -> None:
    command = Command(code=code, ext=dict(ext), body=body)
    if by is not None:
        signed(command, by)
    try:
        assert shared_control.check(FakeConnection("10.0.0.9"), command) is None, "one try a second is answered at once"
    except OrbitMQError:
        return
    assert by is not None


@pytest.fixture
def control(tmp_path: Path) -> AccessControl:
    return loaded(tmp_path)


@pytest.fixture(scope="module")
def shared_control(tmp_path_factory: pytest.TempPathFactory) -> AccessControl:
    return loaded(tmp_path_factory.mktemp("acl"))


def loaded(home: Path) -> AccessControl:
    write_acl(home)
    places = AclPlaces(home / "conf/plain_acl.yml", home / "conf/acl")
    requests = {int(one): one for one in served_by(Peer.BROKER)}
    control = AccessControl(places, requests, lambda offset: TOPIC if offset == 0 else None, ManualClock())
    control.load()
    return control


@pytest.mark.parametrize("is_let_in", [True, False])
async def test_a_slave_copies_from_a_master_that_lets_its_address_in(tmp_path: Path, *, is_let_in: bool) -> None:
    listed = "globalWhiteRemoteAddresses:\n- 127.0.0.1" if is_let_in else "globalWhiteRemoteAddresses:"
    write_acl(tmp_path, PLAIN_ACL.replace("globalWhiteRemoteAddresses:", listed))
    acl = {"aclEnable": "true", "rocketmqHome": str(tmp_path)}
    master = made_broker(tmp_path / "master", **acl)
    async with running(master), running(made_slave(tmp_path / "slave", master)) as slave:
        following = slave.following
        assert following is not None
        if is_let_in:
            await until(lambda: following.state.is_connected, "the slave copies")
            await until(lambda: slave.topics.version == master.topics.version, "the tables, too")
        else:
            with pytest.raises(BrokerError, match="AclException"):
                await following._connected(f"127.0.0.1:{master.port + 1}", master.address)
            assert not following.state.is_connected
