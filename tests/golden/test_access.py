"""Signatures and access control against RocketMQ's own classes and an access-controlled broker's conversations."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from orbitmq.broker.access.accounts import PUB, SUB, grants, permission
from orbitmq.broker.access.addresses import address_of, pattern
from orbitmq.broker.access.control import AccessControl
from orbitmq.broker.access.files import AclPlaces, load_document, parse, save
from orbitmq.errors import ConfigurationError, RequestRejected
from orbitmq.filter.tags import tag_subscription
from orbitmq.runtime.clock import ManualClock
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FrameDecoder
from orbitmq.wire.header import Header
from orbitmq.wire.headers_access import (
    AclVersionHeader,
    DeleteAccountHeader,
    UpdateAccountHeader,
    UpdateGlobalWhiteAddressesHeader,
)
from orbitmq.wire.request import Peer
from orbitmq.wire.requests import RequestCode, served_by
from orbitmq.wire.signature import Credentials, sign, signature_of, signed_content, signed_fields
from tests.support.access import FakeConnection, write_acl
from tests.support.frames import frames
from tests.support.golden import configs, rows, vectors
from tests.support.live import made_broker, running
from tests.support.peers import BarePeer, bare_peer


def test_signatures_are_those_of_rocketmq() -> None:
    for row in vectors()["acl_signature"]:
        assert signature_of(bytes.fromhex(row["data"]), row["key"].encode()) == row["hmacSha1"]


def test_a_signed_request_has_the_fields_rocketmq_gives_it() -> None:
    for row in vectors()["acl_hook"]:
        body = bytes.fromhex(row["body"] or "")
        command = Command(code=row["code"], ext=dict(row["fieldsBefore"]), body=body)
        sign(command, Credentials(row["accessKey"], row["secretKey"], row["securityToken"] or ""))
        assert command.ext == row["fieldsAfter"]
        assert signed_content(row["fieldsAfter"], body).hex() == row["signedContent"]


@pytest.mark.parametrize("name", ["acl_json.jsonl", "acl_rocketmq.jsonl"])
def test_signatures_of_java_clients_are_right_as_they_came_over_the_wire(name: str) -> None:
    secrets = {"adminAk": b"adminSecret1", "userAk1": b"userSecret1"}
    checked = 0
    for row in rows(name):
        key = (row["ext"] or {}).get("AccessKey")
        if row["dir"] == "c2s" and key in secrets:
            (command,) = FrameDecoder(typed=False).feed(bytes.fromhex(row["hex"]))
            assert (signed_fields(command, secrets[key]) is None) is ("bad_signature" in row["note"]), row["note"]
            checked += 1
    assert checked > 60


@pytest.mark.parametrize("name", ["acl_json.jsonl", "acl_rocketmq.jsonl"])
async def test_requests_to_a_guarded_broker_end_as_in_rocketmq(tmp_path: Path, name: str) -> None:
    """One broker gets all of a capture, each connection's requests over one of its own."""
    write_acl(tmp_path, configs("plain_acl_before.yml").read_text())
    broker = made_broker(tmp_path / "store", aclEnable="true")
    table = {frame.row["id"]: frame for frame in frames(name)}
    asked = [f for f in table.values() if f.row["dir"] == "c2s" and f.row["peer"].startswith("broker")]
    asked = [frame for frame in asked if not frame.is_response and frame.row["pair"] is not None]
    peers: dict[tuple[str, int], BarePeer] = {}
    reasons = set()
    async with running(broker), AsyncExitStack() as stack:
        for frame in asked:
            connection = (frame.row["note"], frame.row["conn"])
            if connection not in peers:
                peers[connection] = await stack.enter_async_context(bare_peer(broker.address))
            (question,) = FrameDecoder(typed=False).feed(frame.data)
            ext = question.ext or {}
            if question.code == RequestCode.PULL_MESSAGE and ext["consumerGroup"] in broker.consumers.groups:
                # The capture is thinned: the heartbeat with this version may be missing.
                subscribed = broker.consumers.groups[ext["consumerGroup"]].subscriptions
                subscribed[ext["topic"]] = tag_subscription(ext["topic"], "*", int(ext["subVersion"]))
            peers[connection].writer.write(frame.data)
            while not (answer := await peers[connection].read()).is_response:
                pass
            (java,) = FrameDecoder(typed=False).feed(table[frame.row["pair"]].data)
            assert (answer.code, set(answer.ext or {})) == (java.code, set(java.ext or {})), frame
            assert bool(answer.body) == bool(java.body), frame
            _, is_refused, reason = (answer.remark or "").partition("AclException: ")
            if is_refused:
                assert reason in (java.remark or ""), frame
                reasons.add(reason)
    assert len(asked) > 80
    assert len(reasons) > 5


def test_white_lists_mean_whom_rocketmq_means() -> None:
    for row in vectors()["acl_remote_address"]:
        if "error" in row:
            with pytest.raises(ConfigurationError):
                pattern(row["pattern"])
        else:
            matches = pattern(row["pattern"])
            found = {host: matches(address_of(host)) for host in row["match"]}
            assert found == row["match"], row["pattern"]


def test_permissions_are_read_and_compared_as_rocketmq_does() -> None:
    for row in vectors()["acl_perm_parse"]:
        assert permission(row["perm"]) == row["value"], row
    for row in vectors()["acl_perm_check"]:
        assert grants(row["owned"], row["needed"]) is row["ok"], row
    assert {PUB, SUB} == {4, 8}
    administrative = {request for request in served_by(Peer.BROKER) if request.access.is_admin}
    assert administrative >= set(vectors()["acl_admin_codes"])


def test_requests_are_judged_as_by_rocketmq(tmp_path: Path) -> None:
    section: dict[str, Any] = vectors()["acl_validate"]
    write_acl(tmp_path, section["plain_acl_yml"])
    places = AclPlaces(tmp_path / "conf/plain_acl.yml", tmp_path / "conf/acl")
    # The messages of the requests that name one by its place are in a topic that all accounts here may read.
    requests = {int(one): one for one in served_by(Peer.BROKER)}
    control = AccessControl(places, requests, lambda _offset: "%RETRY%groupB", ManualClock())
    control.load()
    outcomes = [_outcome(control, case) for case in section["cases"]]
    expected = [case["result"]["outcome"] for case in section["cases"]]
    differing = [
        (case["code"], case["extFields"].get("a"), theirs, ours)
        for case, theirs, ours in zip(section["cases"], expected, outcomes, strict=True)
        if theirs != ours and not _differ_in_the_order_only(case, theirs, ours)
    ]
    assert differing == []
    assert len(set(expected)) > 10


def _differ_in_the_order_only(case: dict[str, Any], theirs: str, ours: str) -> bool:
    """Of several missing permissions Java names the one its hash map has first."""
    return len(case["result"]["resources"]) > 1 and all(t.startswith("No default permission") for t in (theirs, ours))


def _outcome(control: AccessControl, case: dict[str, Any]) -> str:
    body = bytes.fromhex(case["body"] or "")
    command = Command(code=case["code"], ext=dict(case["extFields"]), body=body)
    try:
        control.check(FakeConnection(case["remoteAddr"].rpartition(":")[0]), command)
    except RequestRejected as refused:
        return refused.remark.removeprefix("AclException: ")
    return "ok"


@pytest.mark.parametrize(
    ("kind", "java"),
    [
        (UpdateAccountHeader, "CreateAccessConfigRequestHeader"),
        (DeleteAccountHeader, "DeleteAccessConfigRequestHeader"),
        (UpdateGlobalWhiteAddressesHeader, "UpdateGlobalWhiteAddrsConfigRequestHeader"),
        (AclVersionHeader, "GetBrokerAclConfigResponseHeader"),
    ],
)
def test_headers_have_the_fields_of_javas(kind: type[Header], java: str) -> None:
    fields = {field["name"]: field for field in vectors()["command_headers"][java]}
    declared = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    assert declared.keys() == fields.keys()
    for name, field in declared.items():
        assert (field.type in (bool, bool | None)) is (fields[name]["type"].lower() == "boolean"), name


@pytest.mark.parametrize("name", ["plain_acl_before.yml", "plain_acl_after.yml"])
def test_a_file_of_rocketmq_is_read_and_written_as_it_was(tmp_path: Path, name: str) -> None:
    theirs = configs(name)
    document = load_document(theirs)
    assert [account.access_key for account in parse(theirs, document).accounts] == ["adminAk", "userAk1"]
    save(tmp_path / name, document)
    written = (tmp_path / name).read_text()
    assert written == theirs.read_text().replace("whiteRemoteAddress:\n", "whiteRemoteAddress: null\n")
