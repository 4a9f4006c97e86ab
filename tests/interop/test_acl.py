"""Access control with Java's clients and tools, and with raw requests of every code, against both brokers.

Where the two differ on purpose, `wire/requests.py` says so, and that is what is expected here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

from orbitmq.dashboard.accounts import put
from orbitmq.dashboard.roles import Role
from orbitmq.wire.codes import SerializeType
from orbitmq.wire.command import Command, request
from orbitmq.wire.request import UNSTATED, Peer
from orbitmq.wire.requests import RequestCode, served_by
from orbitmq.wire.signature import Credentials
from tests.interop.conftest import SHORT_DELAYS, System
from tests.support.access import (
    ADMIN,
    APPLICATION,
    GROUP,
    IMPOSTOR,
    NOBODY,
    OWNER,
    PLAIN_ACL,
    STRANGER,
    TOPIC,
    command_of,
    signed,
    write_acl,
)
from tests.support.commands import items, orbitmq
from tests.support.dashboards import OrbitDashboard
from tests.support.delivery import assert_each_once, messages
from tests.support.java_rocketmq import ROCKETMQ_4, ROCKETMQ_5, SMALL_JVM, Driver, JavaSystem, run_driver
from tests.support.live import send_header
from tests.support.mqadmin import Mqadmin
from tests.support.orbit_process import OrbitUp
from tests.support.peers import bare_peer

T = TypeVar("T")
ACCOUNTS = {"admin": ADMIN, "owner": OWNER, "nobody": NOBODY, "impostor": IMPOSTOR, "stranger": STRANGER, "none": None}
ANSWER_SECONDS = 20.0
WRONG_TRIES = 15

CONFIG = {
    "aclEnable": "true",
    "messageDelayLevel": SHORT_DELAYS,
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 1000,
}

_SYSTEMS: dict[str, Callable[[], System]] = {
    "java": lambda: JavaSystem(ROCKETMQ_4, **CONFIG),
    "orbitmq": lambda: OrbitUp(**CONFIG),
}


@pytest.fixture(scope="module", params=_SYSTEMS)
def guarded(request: pytest.FixtureRequest) -> Iterator[System]:
    """A system whose broker checks accounts; files of its own, below a home of its own."""
    made = _SYSTEMS[request.param]()
    if isinstance(made, OrbitUp):
        made._config["rocketmqHome"] = made.home
    write_acl(_home(made))
    with made as running:
        _wait(send(running, ADMIN, TOPIC), 0)
        yield running


def _home(system: System) -> Path:
    return system.broker.home if isinstance(system, JavaSystem) else system.home


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


def send(
    system: System, by: Credentials | None, topic: str = TOPIC, properties: Mapping[str, str] = {}
) -> Callable[[], Command]:
    """Something that sends one message and gives the broker's answer."""

    async def asked() -> Command:
        async with bare_peer(system.address) as peer:
            return await peer.ask(
                signed(request(RequestCode.SEND_MESSAGE_V2, send_header(topic, properties), b"body"), by)
            )

    return lambda: run(asked())


def _wait(asked: Callable[[], Command], code: int) -> None:
    """Until the broker, which reads its files from time to time, answers with `code`."""

    async def again() -> None:
        async with asyncio.timeout(60):
            while (await asyncio.to_thread(asked)).code != code:  # noqa: ASYNC110 - asking is how it is seen
                await asyncio.sleep(0.1)

    run(again())


# -------------------------------------------------------------------------------------------------- applications

REFUSED = {
    "nobody": "No default permission for ",
    "impostor": f"Check signature failed for accessKey={OWNER.access_key}",
    "stranger": f"No acl config for {STRANGER.access_key}",
    "none": "No accessKey is configured",
}
OWNER_MAY = {"send", "heartbeat", "send to retry", "pull", "commit", "bounds", "view"}
RESOURCES = {
    "send": f"topic:{TOPIC}",
    "send elsewhere": "topic:elsewhere",
    "heartbeat": f"group:{GROUP}",
    "heartbeat of another group": "group:others",
    "send to retry": f"group:{GROUP}",
    "pull": f"group:{GROUP}",
}
# Java's broker lets every account read by id, ask for bounds and see the configuration; orbitmq does not.
OPEN_IN_JAVA = {"view", "bounds", "configuration"}


def test_java_clients_may_what_their_account_may(guarded: System) -> None:
    offset_id = _message_id(guarded)
    found = run_driver(*_arguments(guarded), "--id", offset_id)
    errors = {(row["account"], row["what"]): row["error"] for row in found}
    is_java = isinstance(guarded, JavaSystem)
    for (account, what), error in errors.items():
        known_hole = is_java and what in OPEN_IN_JAVA and account in ("owner", "nobody")
        may = account == "admin" or (account == "owner" and what in OWNER_MAY) or known_hole
        assert (error is None) == may, (account, what, error)
        if account in REFUSED and not known_hole:
            _assert_reason(account, what, error)
    assert "topic:elsewhere" in errors["owner", "send elsewhere"]
    assert "group:others" in errors["owner", "heartbeat of another group"]
    assert len(errors) == len(ACCOUNTS) * 11


def _assert_reason(account: str, what: str, error: str) -> None:
    if account == "nobody" and what in ("create topic", "configuration"):
        assert "Need admin permission for request code=" in error
        return
    assert REFUSED[account] in error, (account, what)
    if account == "nobody" and what in RESOURCES:
        # Java names the resource its hash map has first, where several are missing.
        assert RESOURCES[what] in error or f"topic:{TOPIC}" in error, (what, error)


def _message_id(system: System) -> str:
    answer = send(system, ADMIN)()
    assert answer.ext is not None
    return answer.ext["msgId"]


def _arguments(system: System) -> list[object]:
    accounts = ",".join(f"{name}={f'{c.access_key}:{c.secret_key}' if c else ''}" for name, c in ACCOUNTS.items())
    where = ("--namesrv", system.namesrv_address, "--broker", system.address)
    return ["access", *where, "--topic", TOPIC, "--group", GROUP, "--accounts", accounts]


def test_an_application_needs_no_more_than_its_topics_and_groups(guarded: System) -> None:
    """Every kind of stock client works with them: what orbitmq asks for beyond RocketMQ costs no application more."""
    keys = ("--access-key", APPLICATION.access_key, "--secret-key", APPLICATION.secret_key)
    client = ("--namesrv", guarded.namesrv_address, *keys)
    jobs = (*client, "--topic", "jobs", "--run", "run")
    run_driver("send", *jobs, "--mode", "batch", "--count", 100, "--trace", "true")
    consume = ("consume", *jobs, "--group", "workers", "--trace", "true", "--fail-every", 20)
    received = messages(run_driver(*consume, "--expect", 105))
    assert_each_once([row for row in received if not row["failed"]], "run", range(100))
    ordered = ("consume", *jobs, "--group", "workers-in-order", "--orderly", "true")
    assert_each_once(messages(run_driver(*ordered, "--expect", 100)), "run", range(100))
    # A consumer finds a topic that is new only when it next refreshes its routes; Ignored is not answered.
    assert send(guarded, APPLICATION, "questions", {"TAGS": "Ignored"})().code == 0
    asked = run_driver("requestreply", *client, "--topic", "questions", "--group", "answerers", "--count", 2)
    assert [row["body"] for row in asked if row["event"] == "reply"] == ["0!", "1!"]
    begin = guarded_max(guarded, "jobs")
    plans = ("--plans", "commit,rollback,check-commit,check-rollback", "--count", 8, "--first", 100, "--run", "run")
    with Driver("transactions", *client, "--topic", "jobs", "--group", "dealers", *plans) as dealers:
        dealers.wait_for_event("sent")
        dealers.process.wait_for(lambda: guarded_max(guarded, "jobs") == begin + 4, 60, "the committed half of them")


def test_a_client_of_5x_signs_in_the_same_way(guarded: System) -> None:
    keys = ("--access-key", APPLICATION.access_key, "--secret-key", APPLICATION.secret_key)
    send_all = ("send", "--namesrv", guarded.namesrv_address, *keys, "--topic", "jobs", "--count", 3)
    # It tells a zone behind the signature, which a broker of 4.9 takes for a forgery.
    zone = () if isinstance(guarded, JavaSystem) else ("-Drocketmq.zone=north",)
    with Driver(*send_all, version=ROCKETMQ_5, jvm=(*SMALL_JVM, *zone)) as sender:
        assert [row["status"] for row in sender.finish(120)[:-1]] == ["SEND_OK"] * 3


def guarded_max(system: System, topic: str) -> int:
    """Messages of a topic, over all its queues."""

    async def asked() -> int:
        total = 0
        async with bare_peer(system.address) as peer:
            for queue_id in range(8):
                fields = {"topic": topic, "queueId": str(queue_id)}
                answer = await peer.ask(signed(command_of(RequestCode.GET_MAX_OFFSET, fields), ADMIN))
                total += int((answer.ext or {})["offset"])
        return total

    return run(asked())


# ------------------------------------------------------------------------------------------------- every request code


def test_every_request_code_is_refused_or_taken_as_the_table_says(guarded: System) -> None:
    """Raw requests without fields or body beside the names of a topic and a group the account may not use."""
    is_java = isinstance(guarded, JavaSystem)
    names = ("topic", "b", "consumerGroup", "group", "a", "srcGroup", "destGroup", "compareGroup")
    fields = {name: f"somebody's-{name}" for name in names} | {"offset": "0", "commitLogOffset": "0", "msgId": "0" * 32}
    bodies = {
        RequestCode.HEART_BEAT: b'{"clientID":"c","consumerDataSet":[{"groupName":"somebody\'s","consumeType":'
        b'"CONSUME_PASSIVELY","subscriptionDataSet":[{"topic":"somebody\'s","subString":"*"}]}],"producerDataSet":[]}',
        RequestCode.LOCK_BATCH_MQ: b'{"clientId":"c","consumerGroup":"somebody\'s","mqSet":[]}',
        RequestCode.QUERY_ASSIGNMENT: b'{"topic":"somebody\'s","consumerGroup":"somebody\'s"}',
        RequestCode.BATCH_ACK_MESSAGE: b'{"acks":[{"c":"somebody\'s","t":"somebody\'s","so":0,"q":0,"rq":0,"pt":1,'
        b'"it":1,"b":"AQ=="}]}',
        RequestCode.UNLOCK_BATCH_MQ: b'{"clientId":"c","consumerGroup":"somebody\'s","mqSet":[]}',
    }
    # CONSUME_MESSAGE_DIRECTLY needs a message of its own.
    codes = [code for code in served_by(Peer.BROKER) if code != RequestCode.CONSUME_MESSAGE_DIRECTLY]
    # RocketMQ lets any account decide over a message, and answers nothing where it knows no such message.
    taken = {RequestCode.END_TRANSACTION} if is_java else set()
    outcomes: dict[str, dict[int, str | None]] = {"none": {}, "wrong": {}, "without": {}}
    for number, some in enumerate(batched(codes, WRONG_TRIES)):
        source = f"127.0.0.{number + 2}"  # an address is answered late when it has signed wrongly more often
        for name, by, silent in (("none", None, set()), ("wrong", IMPOSTOR, set()), ("without", NOBODY, taken)):
            commands = [signed(command_of(code, fields, bodies.get(code, b"")), by) for code in some]
            outcomes[name] |= run(_refusals(guarded, commands, silent & set(some), source))
    assert outcomes["none"] == dict.fromkeys(codes, "No accessKey is configured")
    assert outcomes["wrong"] == dict.fromkeys(codes, REFUSED["impostor"])
    differing = {
        RequestCode(code).name: outcomes["without"][code]
        for code in codes
        if (outcomes["without"][code] is not None) != (_refuses_original(code) if is_java else _refuses(code))
    }
    assert differing == {}


def batched(items: list[T], size: int) -> Iterator[list[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _refuses(request: RequestCode) -> bool:
    return request.access.is_admin or bool(request.access.needs)


def _refuses_original(request: RequestCode) -> bool:
    return _refuses(request) and request.access.original not in (UNSTATED, "-")


async def _refusals(
    system: System, commands: list[Command], silent: set[RequestCode], source: str
) -> dict[int, str | None]:
    """Request code -> why it was refused, None for one that reached its handler; `silent` need no answer."""
    async with bare_peer(system.address, source=source) as peer:
        await peer.send(*commands)
        codes = {command.opaque: command.code for command in commands}
        missing, found = set(codes.values()) - silent, dict[int, str | None]()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                while missing:
                    answer = await peer.read()
                    found[codes[answer.opaque]] = _reason(answer)
                    missing.discard(codes[answer.opaque])
        except TimeoutError:
            pytest.fail(f"no answer to {missing}")
        return dict.fromkeys(silent) | found


def _reason(answer: Command) -> str | None:
    """Java adds its exception's class before the reason, and a stack frame behind."""
    _, is_refused, text = (answer.remark or "").partition("AclException: ")
    return text.partition(", org.apache")[0] if is_refused else None


@pytest.mark.parametrize("kind", SerializeType)
def test_a_signature_holds_in_both_header_forms(guarded: System, kind: SerializeType) -> None:
    async def asked(by: Credentials, extra: dict[str, str]) -> Command:
        command = request(RequestCode.SEND_MESSAGE_V2, send_header(TOPIC), bytes(range(256)))
        command.serialize_type = kind
        assert command.ext is not None
        command.ext |= extra
        async with bare_peer(guarded.address) as peer:
            return await peer.ask(signed(command, by))

    assert run(asked(OWNER, {"fieldOfTomorrow": "今日 \U0001f600", "Zoe": "before a"})).code == 0
    assert _reason(run(asked(IMPOSTOR, {}))) == REFUSED["impostor"]


# --------------------------------------------------------------------------------------- administration, changing files


def test_mqadmin_changes_accounts(guarded: System) -> None:
    someone, broker = Credentials("toolAccess", "toolSecret"), ("-b", guarded.address)
    with Mqadmin(guarded.namesrv_address) as run_tool:
        assert "No accessKey is configured" in run_tool("deleteAclConfig", *broker, "-a", OWNER.access_key)
        _give(run_tool, ADMIN)
        account = ("-a", someone.access_key, "-s", someone.secret_key, "-m", "false", "-i", "DENY", "-u", "SUB")
        assert "success" in run_tool("updateAclConfig", *broker, *account, "-t", f"{TOPIC}=PUB", "-w", "10.1.1.*")
        assert send(guarded, someone)().code == 0
        refused = run_tool("updateAclConfig", *broker, "-a", "abc", "-s", "x")
        assert "length should longer than 6" in refused
        assert "success" in run_tool("updateGlobalWhiteAddr", *broker, "-g", "10.10.103.*,192.168.0.*")
        shown = run_tool("getAclConfig", *broker)
        assert "globalWhiteRemoteAddresses: [10.10.103.*, 192.168.0.*]" in shown
        assert re.findall(r"accessKey +: (.+)", shown)[-2:] == [NOBODY.access_key, someone.access_key]
        assert re.findall(r"topicPerms +: (.*)", shown)[-1] == f"[{TOPIC}=PUB]"
        line = run_tool("clusterAclConfigVersion", *broker).splitlines()[0].split()
        path = str(_home(guarded) / "conf/plain_acl.yml")
        assert line[:5] == ["DefaultCluster", "broker-a", guarded.address, path, "2"]
        assert "success" in run_tool("deleteAclConfig", *broker, "-a", someone.access_key)
        assert _reason(send(guarded, someone)()) == f"No acl config for {someone.access_key}"
        again = run_tool("deleteAclConfig", *broker, "-a", someone.access_key)
        assert f"The accesskey[{someone.access_key}] corresponding to accessConfig has been deleted failed." in again
    text = (_home(guarded) / "conf/plain_acl.yml").read_text()
    assert text.startswith("globalWhiteRemoteAddresses:\n- 10.10.103.*\n- 192.168.0.*\naccounts:\n")
    assert "dataVersion:\n- counter: 3\n  timestamp: " in text


def test_the_stock_commands_of_ours_change_accounts(guarded: System, monkeypatch: pytest.MonkeyPatch) -> None:
    someone, broker = Credentials("ourToolAccess", "toolSecret"), ("-b", guarded.address, "-n", guarded.namesrv_address)
    key = ("-a", someone.access_key)
    assert "No accessKey" in orbitmq("mqadmin", "deleteAclConfig", *broker, *key, code=4).stderr
    _sign_as(monkeypatch, ADMIN)
    account = (*key, "-s", someone.secret_key, "-m", "false", "-i", "DENY", "-u", "SUB", "-t", f"{TOPIC}=PUB")
    assert "success" in orbitmq("mqadmin", "updateAclConfig", *broker, *account).stdout
    _wait(send(guarded, someone), 0)  # a broker of RocketMQ reads its files again, and some moments are in between
    shown = orbitmq("mqadmin", "getAclConfig", *broker).stdout
    assert re.findall(r"accessKey +: (.+)", shown)[-1] == someone.access_key
    assert re.findall(r"topicPerms +: (.*)", shown)[-1] == f"[{TOPIC}=PUB]"
    assert someone.secret_key not in shown
    line = orbitmq("mqadmin", "clusterAclConfigVersion", *broker).stdout.splitlines()[0].split()
    assert line[:4] == ["DefaultCluster", "broker-a", guarded.address, str(_home(guarded) / "conf/plain_acl.yml")]
    assert "success" in orbitmq("mqadmin", "deleteAclConfig", *broker, *key).stdout
    _wait(send(guarded, someone), 1)
    assert _reason(send(guarded, someone)()) == f"No acl config for {someone.access_key}"
    assert "deleted failed" in orbitmq("mqadmin", "deleteAclConfig", *broker, *key, code=1).stderr


def _administration(system: System) -> Iterator[tuple[object, ...]]:
    """Commands of mqadmin that ask what administrators alone may; those of 5.3.3 know no accounts of 4.x."""
    at, everywhere = ("-b", system.address), ("-c", "DefaultCluster")
    yield "updateTopic", *at, "-t", "administered", "-r", 2, "-w", 2, "-p", 6, "-o", "false"
    yield "updateTopic", *everywhere, "-t", "administered", "-r", 3, "-w", 3
    yield "updateTopicPerm", *at, "-t", "administered", "-p", 4
    yield "updateSubGroup", *at, "-g", "administered"
    yield "resetOffsetByTime", "-g", "administered", "-t", "administered", "-s", "now"
    yield "skipAccumulatedMessage", "-g", "administered", "-t", "administered"
    yield "cloneGroupOffset", "-s", "administered", "-d", "other", "-t", "administered", "-o", "false"
    yield "producerConnection", "-g", "administered", "-t", "administered"
    for name in ("getBrokerConfig", "brokerStatus", "cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        yield name, *at
    yield "updateBrokerConfig", *at, "-k", "fileReservedTime", "-v", 71
    yield "brokerConsumeStats", *at
    yield "statsAll", "-t", "administered"
    yield "producer", *at
    yield "topicList", *everywhere
    yield "exportConfigs", *everywhere, "-f", "exported"
    yield "exportMetadata", *everywhere, "-f", "exported"
    yield "updateAclConfig", *at, "-a", "administered", "-s", "administered"
    yield "clusterAclConfigVersion", *at
    yield "getAclConfig", *at
    yield "deleteAclConfig", *at, "-a", "administered"
    yield "deleteSubGroup", *at, "-g", "administered", "-r", "true"
    yield "deleteTopic", *everywhere, "-t", "administered"


@pytest.mark.parametrize("guarded", ["orbitmq"], indirect=True)
@pytest.mark.parametrize("version", [ROCKETMQ_4, ROCKETMQ_5])
def test_nothing_that_mqadmin_signs_is_strange_to_its_request(guarded: OrbitUp, version: str) -> None:
    """Of 4.9.7 and 5.3.3: a broker refuses signed fields and bodies that an administrator's request does not have."""
    with Mqadmin(guarded.namesrv_address, version) as run_tool:
        _give(run_tool, ADMIN)
        told = {words[0]: run_tool(*words) for words in _administration(guarded)}
    assert "success" in told["updateTopic"], told["updateTopic"]
    assert "success" in told["deleteTopic"], told["deleteTopic"]
    refused = {name: text for name, text in told.items() if "signature covers it" in text}
    assert refused == {}
    assert guarded.process is not None
    log = guarded.process.errors()
    assert "event=" in log
    assert "is no field of a request" not in log
    assert "has no body" not in log


def _give(run_tool: Mqadmin, credentials: Credentials) -> None:
    """Keys for the tool, where it looks for them."""
    file = run_tool._driver._home / "conf/tools.yml"
    file.parent.mkdir(exist_ok=True)  # the tool may not have begun yet
    file.write_text(f"accessKey: {credentials.access_key}\nsecretKey: {credentials.secret_key}\n")


def test_accounts_from_the_command_line(guarded: System, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Made, seen, changed, used and deleted; its secret never told unless asked for."""
    here = ("-n", guarded.namesrv_address)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    _sign_as(monkeypatch, ADMIN)
    assert ADMIN.access_key in {row["accessKey"] for row in items("acl", "list", *here)}
    made = ("acl", "set", NEWCOMER.access_key, "--secret-env", "NEWCOMER", "--topic", "news=PUB", "--yes", *here)
    orbitmq(*made, code=2)
    monkeypatch.setenv("NEWCOMER", NEWCOMER.secret_key)
    (step,) = items(*made)
    assert (step["before"], step["outcome"]) == (None, "confirmed")
    assert items(*made)[0]["outcome"] == "unchanged"
    _wait(send(guarded, NEWCOMER, "news"), 0)
    (step,) = items("acl", "set", NEWCOMER.access_key, "--topic", "news=DENY", "--yes", *here)
    assert step["before"]["secretKey"] == step["after"]["secretKey"]
    assert (step["after"]["topicPerms"], step["outcome"]) == (["news=DENY"], "confirmed")
    _wait(send(guarded, NEWCOMER, "news"), 1)
    told = orbitmq("acl", "list", "-o", "json", *here).stdout
    assert NEWCOMER.secret_key not in told
    assert NEWCOMER.secret_key in orbitmq("acl", "list", "--show-secrets", "-o", "json", *here).stdout
    orbitmq("acl", "delete", NEWCOMER.access_key, *here, code=9)
    (step,) = items("acl", "delete", NEWCOMER.access_key, "--yes", *here)
    assert step["outcome"] == "confirmed"
    orbitmq("acl", "delete", NEWCOMER.access_key, "--yes", *here, code=3)


def test_what_an_account_may_is_brought_back_and_its_secret_is_given_anew(
    guarded: System, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here, key, secret = ("-n", guarded.namesrv_address), "undone-account", "its own long secret"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("UNDONE", secret)
    _sign_as(monkeypatch, ADMIN)

    def may() -> list[list[str]]:
        return [row["topicPerms"] for row in items("acl", "list", *here) if row["accessKey"] == key]

    def kept() -> Path:
        return max((tmp_path / "orbitmq" / "undo").iterdir(), key=lambda path: path.stat().st_mtime_ns)

    orbitmq("acl", "set", key, "--secret-env", "UNDONE", "--topic", "news=PUB", "--yes", *here)
    made = kept()
    orbitmq("acl", "set", key, "--topic", "news=DENY", "--yes", *here)
    orbitmq("acl", "undo", kept(), "--yes", *here)
    assert may() == [["news=PUB"]]
    orbitmq("acl", "delete", key, "--yes", *here)
    deleted = kept()
    assert secret not in deleted.read_text()
    assert "--secret-env" in orbitmq("acl", "undo", deleted, "--yes", *here, code=3).stderr
    orbitmq("acl", "undo", deleted, "--secret-env", "UNDONE", "--yes", *here)
    assert may() == [["news=PUB"]]
    orbitmq("acl", "undo", made, "--yes", *here)
    assert may() == [], "there was none before it was made"


def test_white_list_and_versions_from_the_command_line(
    guarded: System, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = ("-n", guarded.namesrv_address)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    _sign_as(monkeypatch, ADMIN)
    before = sum(row["version"] for row in items("acl", "versions", *here))
    (step,) = items("acl", "white", "set", "10.10.103.*", "192.168.7.*", "--yes", *here)
    assert (step["after"], step["outcome"]) == (["10.10.103.*", "192.168.7.*"], "confirmed")
    assert items("acl", "white", "show", *here)[0]["whiteAddresses"] == ["10.10.103.*", "192.168.7.*"]
    assert sum(row["version"] for row in items("acl", "versions", *here)) == before + 1


def test_accounts_and_white_lists_on_the_page(guarded: System, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Made, seen, changed and deleted there, and its secret on no page and in no line of the audit log."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    _sign_as(monkeypatch, ADMIN)
    key, secret = "page-account", "its own long secret"
    put(tmp_path / "who.toml", "anna", Role.ADMIN, "correct horse")
    with OrbitDashboard(guarded.namesrv_address, "--accounts", tmp_path / "who.toml") as site:
        visitor = site.visitor()
        visitor.log_in("anna", "correct horse")
        pages = [visitor.get("access")]
        assert {row["Secret"] for row in pages[0].table("Accounts")} == {"******"}
        new = visitor.get("account")
        assert new.submit("account", key="short", secret=secret).status == 400
        assert new.submit("account", key=key, secret=secret, topic_perms="news").status == 400
        assert new.submit("account", key=key, secret="").status == 404, "a new one needs a secret"
        plan = new.submit(
            "account", key=key, secret=secret, topic_perms="news=PUB\r\nbills=SUB", default_topic_perm="DENY"
        )
        pages += [plan, plan.submit("plans/")]
        assert [row["Outcome"] for row in pages[-1].table("Steps")] == ["confirmed"], pages[-1].words
        _wait(send(guarded, Credentials(key, secret), "news"), 0)
        pages.append(visitor.get("access"))
        (row,) = [row for row in pages[-1].table("Accounts") if row["Access key"] == key]
        assert (row["Administrator"], row["Topics"]) == ("no", "news=PUB, bills=SUB")
        form = visitor.get(f"account?key={key}")
        pages += [form, form.submit("account", topic_perms="news=DENY")]
        (step,) = pages[-1].table("Steps")
        assert ("news=PUB" in step["Before"], "news=DENY" in step["After"]) == (True, True)
        mark = re.compile(r"\*{6} #(\w+)")
        assert mark.findall(step["Before"]) == mark.findall(step["After"]), "the secret stays"
        pages.append(pages[-1].submit("plans/"))
        _wait(send(guarded, Credentials(key, secret), "news"), 1)
        deleting = form.submit("account/delete")
        assert deleting.submit("plans/", typed="another").status == 409
        pages.append(deleting.submit("plans/", typed=key))
        pages.append(visitor.get("access"))
        assert key not in [row["Access key"] for row in pages[-1].table("Accounts")]
        before = pages[-1].table("White lists")[0]["No account needed from"]
        done = pages[-1].submit("white-list", addresses="10.10.103.*\r\n192.168.9.*").submit("plans/")
        assert [row["Outcome"] for row in done.table("Steps")] == ["confirmed"]
        after = visitor.get("access")
        assert after.table("White lists")[0]["No account needed from"] == "10.10.103.*, 192.168.9.*"
        after.submit("white-list", addresses=before.replace(", ", "\n")).submit("plans/")
        told = site.audit_path.read_text() + "".join(page.text for page in pages)
    assert key in told
    assert secret not in told
    assert ADMIN.secret_key not in told


def test_who_may_not_is_told_so(guarded: System, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = ("-n", guarded.namesrv_address)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    _sign_as(monkeypatch, IMPOSTOR)
    told = orbitmq("acl", "list", "-o", "json", *here, code=4)
    assert OWNER.secret_key not in told.output


NEWCOMER = Credentials("newcomer-of-news", "newcomer's secret")


def _sign_as(monkeypatch: pytest.MonkeyPatch, credentials: Credentials) -> None:
    monkeypatch.setenv("ORBITMQ_ACCESS_KEY", credentials.access_key)
    monkeypatch.setenv("ORBITMQ_SECRET_KEY", credentials.secret_key)


def test_changed_files_count_without_a_restart(guarded: System) -> None:
    home = _home(guarded)
    assert _reason(send(guarded, NOBODY)()) == f"No default permission for topic:{TOPIC}"
    assert _reason(send(guarded, None)()) == "No accessKey is configured"
    write_acl(home, PLAIN_ACL + "  defaultTopicPerm: PUB\n")
    _wait(send(guarded, NOBODY), 0)
    assert _reason(send(guarded, None)()) == "No accessKey is configured"
    write_acl(home, PLAIN_ACL.replace("- 10.10.103.*", "- 127.0.0.*"))
    _wait(send(guarded, None), 0)
    assert send(guarded, IMPOSTOR)().code == 0  # nobody on the list is asked for a signature
