"""Calls of the gRPC service with any content at the proxy of 5.3.3 and at orbitmq: the same get the same answers.

Codes are told by their names in the definition of the service.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from tests.support.fronts import Front, OrbitFront, create_group, create_topic, member_ids, stored, units
from tests.support.grpc_clients import RawCalls, Refused, Row
from tests.support.process import wait_until

MIB = 1 << 20
DAY_S = 86_400
MESSAGE_ID = "0102FC0000000104A40B1DB8DB000001"
AGENT = {"language": "JAVA", "version": "5.0.7", "platform": "Linux", "hostname": "here"}
OWN_POLICY = {"max_attempts": 7, "exponential_backoff": {"initial": "1s", "max": "2s", "multiplier": 3}}
STEPS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
CUSTOMIZED = {"next": [f"{step}s" for step in STEPS_S]}
_numbers = count()


def resource(name: str) -> Row:
    return {"name": name}


@dataclass(frozen=True)
class Caller:
    """A client that says what it wants."""

    raw: RawCalls
    front: Front
    client_id: str = "caller"
    version: str = "5.0.7"
    language: str = "JAVA"

    @property
    def metadata(self) -> dict[str, str]:
        return {
            "x-mq-client-id": self.client_id,
            "x-mq-language": self.language,
            "x-mq-client-version": self.version,
            "x-mq-protocol": "v2",
            "x-mq-date-time": "20260101T000000Z",
        }

    def call(self, method: str, request: Row, *, deadline_s: float | None = None) -> Any:
        return self.raw.call(self.front.endpoint, method, request, self.metadata, deadline_s=deadline_s)

    def code(self, method: str, request: Row) -> str:
        """Its name."""
        return code_of(self.call(method, request))

    @property
    def endpoints(self) -> Row:
        """What it takes for the server's address: right but for the port."""
        return {"scheme": "IPv4", "addresses": [{"host": "127.0.0.1", "port": 1}]}

    def settle(self, settings: Row) -> Any:
        """What comes first on a new stream of this client after its settings."""
        stream = self.raw.open(self.front.endpoint, self.metadata)
        self.raw.write(stream, {"settings": settings})
        return self.raw.read(stream)

    def consume(self, group: str, topic: str, client_type: str = "SIMPLE_CONSUMER", **settings: object) -> Any:
        return self.settle({"client_type": client_type, "subscription": subscription(group, topic), **settings})

    def receive(
        self, group: str, topic: str, *, queue: int = 0, deadline_s: float | None = None, **changed: Any
    ) -> Any:
        """The responses, in their order."""
        broker = {"name": "broker-a", "endpoints": self.endpoints}
        request = {
            "group": resource(group),
            "message_queue": {"topic": resource(topic), "id": queue, "permission": "READ_WRITE", "broker": broker},
            "filter_expression": {"type": "TAG", "expression": "*"},
            "batch_size": 32,
            "invisible_duration": "30s",
            "long_polling_timeout": "5s",
            **changed,
        }
        return self.call("ReceiveMessage", request, deadline_s=deadline_s)

    def received(self, group: str, topic: str, **changed: Any) -> list[Row]:
        """The messages."""
        return [one["message"] for one in self.receive(group, topic, **changed) if "message" in one]

    def ack(self, group: str, topic: str, *handles: str) -> Any:
        entries = [{"message_id": MESSAGE_ID, "receipt_handle": handle} for handle in handles]
        return self.call("AckMessage", {"group": resource(group), "topic": resource(topic), "entries": entries})

    def change(self, group: str, topic: str, handle: str, invisible: str) -> Any:
        request = {
            "group": resource(group), "topic": resource(topic), "receipt_handle": handle,
            "invisible_duration": invisible, "message_id": MESSAGE_ID,
        }  # fmt: skip
        return self.call("ChangeInvisibleDuration", request)

    def send(self, *messages: Row) -> Any:
        return self.call("SendMessage", {"messages": list(messages)})


def code_of(answer: Any) -> str:
    status = (answer[0] if isinstance(answer, list) else answer)["status"]
    return str(status["code"])


def handle_of(one: Row) -> str:
    return str(one["system_properties"]["receipt_handle"])


def body_of(one: Row) -> bytes:
    return base64.b64decode(one["body"])


def subscription(group: str, topic: str, **more: object) -> Row:
    entry = {"topic": resource(topic), "expression": {"type": "TAG", "expression": "*"}}
    return {"group": resource(group), "subscriptions": [entry], **more}


def message(topic: str, body: bytes = b"hello", user: dict[str, str] | None = None, **system: Any) -> Row:
    return {
        "topic": resource(topic),
        "body": base64.b64encode(body).decode(),
        "user_properties": user or {},
        "system_properties": {
            "message_id": MESSAGE_ID,
            "message_type": "NORMAL",
            "body_encoding": "IDENTITY",
            "born_timestamp": "2026-01-01T00:00:00Z",
            "born_host": "here",
            **system,
        },
    }


def seconds_ahead(seconds: float) -> str:
    return datetime.fromtimestamp(time.time() + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture(scope="module")
def raw() -> Iterator[RawCalls]:
    with RawCalls() as process:
        yield process


TOPICS = {"Normal": "NORMAL", "Fifo": "FIFO", "Delay": "DELAY", "Transaction": "TRANSACTION", "Mixed": "MIXED"}


@pytest.fixture(scope="module")
def caller(raw: RawCalls, front: Front) -> Caller:
    for name, kind in TOPICS.items():
        create_topic(front, f"Raw{name}", kind)
    create_topic(front, "RawReadable", perm=4, read=2, write=2)
    create_topic(front, "RawWritable", perm=2, read=2, write=2)
    create_topic(front, "RawClosed", perm=0, read=2, write=3)
    create_topic(front, "RawManyRead", read=4, write=2)
    create_topic(front, "RawManyWrite", read=2, write=4)
    create_group(front, "raw-group")
    create_group(front, "raw-orderly", orderly=True)
    create_group(front, "raw-three", retry_max=3)
    policy = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 1000, "max": 2000, "multiplier": 2}}
    create_group(front, "raw-exponential", groupRetryPolicy=policy)
    return Caller(raw, front)


@dataclass(frozen=True)
class Own:
    """A topic and a group of one test, and a consumer that the server knows."""

    caller: Caller
    topic: str
    group: str

    def send(self, body: bytes, **system: Any) -> None:
        assert code_of(self.caller.send(message(self.topic, body, **system))) == "OK"

    def receive(self, **changed: Any) -> list[Row]:
        return self.caller.received(self.group, self.topic, **changed)

    def ack(self, *handles: str) -> Any:
        return self.caller.ack(self.group, self.topic, *handles)

    def change(self, handle: str, invisible: str) -> Any:
        return self.caller.change(self.group, self.topic, handle, invisible)


def made(caller: Caller, kind: str = "NORMAL", *, queues: int = 1, **group: object) -> Own:
    number = next(_numbers)
    own = Own(Caller(caller.raw, caller.front, f"caller-{number}"), f"RawOwn{number}", f"raw-own-{number}")
    create_topic(caller.front, own.topic, kind, read=queues, write=queues)
    create_group(caller.front, own.group, **group)
    assert code_of(own.caller.consume(own.group, own.topic)) == "OK"
    return own


# Most is waiting: begun with the first test. (asked, deadline) -> seconds of the answer, and its code.
POLLS = {("0s", None): 5, ("1s", None): 5, ("60s", None): 20, ("60s", 9.0): 9}


@pytest.fixture(scope="module", autouse=True)
def polls(caller: Caller) -> Iterator[dict[object, Future[tuple[float, str]]]]:
    create_topic(caller.front, "RawEmpty")

    def poll(asked: str, deadline_s: float | None) -> tuple[float, str]:
        waiting = Caller(caller.raw, caller.front, f"waiting-{asked}-{deadline_s}")
        waiting.consume("raw-group", "RawEmpty")
        begun = time.monotonic()
        try:
            code = code_of(waiting.receive("raw-group", "RawEmpty", long_polling_timeout=asked, deadline_s=deadline_s))
        except Refused as error:
            code = error.message.split()[0]
        return time.monotonic() - begun, code

    with ThreadPoolExecutor(len(POLLS)) as pool:
        yield {asked: pool.submit(poll, *asked) for asked in POLLS}


@pytest.mark.parametrize(
    ("topic", "permissions"),
    [
        ("RawNormal", ["READ_WRITE"]),
        ("RawManyRead", ["READ", "READ", "READ_WRITE", "READ_WRITE"]),
        ("RawManyWrite", ["WRITE", "WRITE", "READ_WRITE", "READ_WRITE"]),
        ("RawReadable", ["READ", "READ"]),
        ("RawWritable", ["WRITE", "WRITE"]),
        ("RawClosed", ["NONE", "NONE", "NONE"]),
    ],
)
def test_a_route_has_the_queues_by_their_permissions(caller: Caller, topic: str, permissions: list[str]) -> None:
    answer = caller.call("QueryRoute", {"topic": resource(topic), "endpoints": caller.endpoints})
    queues = answer["message_queues"]
    assert [queue["permission"] for queue in queues] == permissions
    assert [queue.get("id", 0) for queue in queues] == list(range(len(permissions)))
    host, _, port = caller.front.endpoint.partition(":")
    address = {"scheme": "IPv4", "addresses": [{"host": host, "port": int(port)}]}
    for queue in queues:
        assert (queue["topic"], queue["broker"]) == (resource(topic), {"name": "broker-a", "endpoints": address})


@pytest.mark.parametrize("name", TOPICS)
def test_a_route_has_the_type_of_the_messages(caller: Caller, name: str) -> None:
    (queue,) = caller.call("QueryRoute", {"topic": resource(f"Raw{name}")})["message_queues"]
    kind = TOPICS[name]
    assert queue["accept_message_types"] == (["NORMAL", "FIFO", "DELAY", "TRANSACTION"] if kind == "MIXED" else [kind])


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("missing", "TOPIC_NOT_FOUND"),
        ("x" * 127, "TOPIC_NOT_FOUND"),
        ("x" * 128, "ILLEGAL_TOPIC"),
        ("", "ILLEGAL_TOPIC"),
        ("bad name", "ILLEGAL_TOPIC"),
        ("TBW102", "ILLEGAL_TOPIC"),
        ("rmq_sys_wheel_timer", "ILLEGAL_TOPIC"),
        ("SCHEDULE_TOPIC_XXXX", "ILLEGAL_TOPIC"),
    ],
)
def test_topics_without_a_route(caller: Caller, topic: str, code: str) -> None:
    assert caller.code("QueryRoute", {"topic": resource(topic), "endpoints": caller.endpoints}) == code
    assigned = {"topic": resource(topic), "group": resource("raw-group"), "endpoints": caller.endpoints}
    assert caller.code("QueryAssignment", assigned) == code


@pytest.mark.parametrize(
    ("group", "code"),
    [
        ("bad group", "ILLEGAL_CONSUMER_GROUP"),
        ("", "ILLEGAL_CONSUMER_GROUP"),
        ("x" * 256, "ILLEGAL_CONSUMER_GROUP"),
        ("x" * 255, "OK"),
        ("raw-unknown", "OK"),
    ],
)
def test_groups_that_are_refused(caller: Caller, group: str, code: str) -> None:
    asked = {"topic": resource("RawNormal"), "group": resource(group), "endpoints": caller.endpoints}
    if isinstance(caller.front, OrbitFront) and len(group) == 255:
        code = "ILLEGAL_CONSUMER_GROUP"  # the name of its retry topic would be too long
    assert caller.code("QueryAssignment", asked) == code


@pytest.mark.parametrize(
    ("topic", "group", "queues"),
    [
        ("RawManyRead", "raw-group", [-1]),
        ("RawManyRead", "raw-orderly", [0, 1, 2, 3]),
        ("RawManyWrite", "raw-orderly", [0, 1]),
        ("RawReadable", "raw-group", [-1]),
        ("RawFifo", "raw-group", [-1]),
        ("RawWritable", "raw-group", None),
        ("RawClosed", "raw-orderly", None),
    ],
)
def test_assignments_are_whole_brokers_but_for_orderly_groups(
    caller: Caller, topic: str, group: str, queues: list[int] | None
) -> None:
    asked = {"topic": resource(topic), "group": resource(group), "endpoints": caller.endpoints}
    answer = caller.call("QueryAssignment", asked)
    if queues is None:
        assert code_of(answer) == "FORBIDDEN"
    else:
        assert [one["message_queue"].get("id", 0) for one in answer["assignments"]] == queues


TOO_FAR = seconds_ahead(DAY_S + 3600)
TOO_LARGE = "MESSAGE_PROPERTIES_TOO_LARGE"
REFUSED_SENDS: dict[str, tuple[list[Row], str]] = {
    "nothing": ([], "MESSAGE_CORRUPTED"),
    "two topics": ([message("RawNormal"), message("RawMixed")], "MESSAGE_CORRUPTED"),
    "bad topic": ([message("bad name")], "ILLEGAL_TOPIC"),
    "system topic": ([message("TBW102")], "ILLEGAL_TOPIC"),
    "missing topic": ([message("missing")], "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
    "not writable": ([message("RawReadable")], "FORBIDDEN"),
    "closed": ([message("RawClosed")], "FORBIDDEN"),
    "empty body": ([message("RawNormal", b"")], "MESSAGE_BODY_EMPTY"),
    "large body": ([message("RawNormal", b"x" * (4 * MIB + 1))], "MESSAGE_BODY_TOO_LARGE"),
    "129 properties": ([message("RawNormal", user=dict.fromkeys(map(str, range(129)), "v"))], TOO_LARGE),
    "large properties": ([message("RawNormal", user={"k": "v" * 16384})], TOO_LARGE),
    "and tag": ([message("RawNormal", user={"k": "v" * 16380}, tag="abcd")], TOO_LARGE),
    "reserved property": ([message("RawNormal", user={"KEYS": "v"})], "ILLEGAL_MESSAGE_PROPERTY_KEY"),
    "timer property": ([message("RawNormal", user={"TIMER_DELAY_SEC": "3"})], "ILLEGAL_MESSAGE_PROPERTY_KEY"),
    "control in key": ([message("RawNormal", user={"a\nb": "v"})], "ILLEGAL_MESSAGE_PROPERTY_KEY"),
    "control in value": ([message("RawNormal", user={"a": "b\x01"})], "ILLEGAL_MESSAGE_PROPERTY_KEY"),
    "blank tag": ([message("RawNormal", tag=" ")], "ILLEGAL_MESSAGE_TAG"),
    "bar in tag": ([message("RawNormal", tag="a|b")], "ILLEGAL_MESSAGE_TAG"),
    "control in tag": ([message("RawNormal", tag="a\tb")], "ILLEGAL_MESSAGE_TAG"),
    "blank key": ([message("RawNormal", keys=["k", " "])], "ILLEGAL_MESSAGE_KEY"),
    "control in message key": ([message("RawNormal", keys=["a\nb"])], "ILLEGAL_MESSAGE_KEY"),
    "no id": ([message("RawNormal", message_id="")], "ILLEGAL_MESSAGE_ID"),
    "blank id": ([message("RawNormal", message_id=" ")], "ILLEGAL_MESSAGE_ID"),
    "blank group": ([message("RawFifo", message_group=" ", message_type="FIFO")], "ILLEGAL_MESSAGE_GROUP"),
    "control in group": ([message("RawFifo", message_group="a\nb", message_type="FIFO")], "ILLEGAL_MESSAGE_GROUP"),
    "long group": ([message("RawFifo", message_group="ü" * 32, message_type="FIFO")], "ILLEGAL_MESSAGE_GROUP"),
    "far delivery": ([message("RawDelay", message_type="DELAY", delivery_timestamp=TOO_FAR)], "ILLEGAL_DELIVERY_TIME"),
    "late recovery": (
        [message("RawTransaction", message_type="TRANSACTION", orphaned_transaction_recovery_duration="3601s")],
        "BAD_REQUEST",
    ),
    "no group": ([message("RawFifo", message_type="FIFO")], "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
    "a group": ([message("RawNormal", message_group="g", message_type="FIFO")], "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
    "a group by property": ([message("RawNormal", user={"__SHARDINGKEY": "g"})], "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
    "a time": (
        [message("RawFifo", message_type="DELAY", delivery_timestamp=seconds_ahead(60))],
        "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE",
    ),
    "a transaction": ([message("RawNormal", message_type="TRANSACTION")], "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
}  # fmt: skip


def all_stored(front: Front) -> dict[str, int]:
    return {f"Raw{name}": stored(front, f"Raw{name}") for name in TOPICS}


@pytest.mark.parametrize("what", REFUSED_SENDS)
def test_what_is_refused_is_not_stored(caller: Caller, what: str) -> None:
    messages, code = REFUSED_SENDS[what]
    before = all_stored(caller.front)
    answer = caller.send(*messages)
    assert (code_of(answer), answer.get("entries")) == (code, None)
    assert all_stored(caller.front) == before


ACCEPTED_SENDS: dict[str, Row] = {
    "largest body": message("RawNormal", b"x" * 4 * MIB),
    "most properties": message("RawNormal", user=dict.fromkeys(map(str, range(128)), "v")),
    "largest properties": message("RawNormal", user={"k": "v" * 16383}),
    "empty tag": message("RawNormal", tag=""),
    "spaced keys": message("RawNormal", keys=["a b", "c"]),
    "no property name": message("RawNormal", user={"": "v", "a": ""}),
    "any id": message("RawNormal", message_id="any text"),
    "longest group": message("RawFifo", message_group="x" * 63, message_type="FIFO"),
    "type by content": message("RawFifo", message_group="g", message_type="NORMAL"),
    "type without content": message("RawNormal", message_type="DELAY"),
    "no type": message("RawNormal", message_type="MESSAGE_TYPE_UNSPECIFIED"),
    "past delivery": message("RawDelay", message_type="DELAY", delivery_timestamp=seconds_ahead(-60)),
}


@pytest.mark.parametrize("what", ACCEPTED_SENDS)
def test_what_is_accepted_is_stored(caller: Caller, what: str) -> None:
    one = ACCEPTED_SENDS[what]
    topic = one["topic"]["name"]
    offset = stored(caller.front, topic)
    sent_id = one["system_properties"]["message_id"]
    answer = caller.send(one)
    (entry,) = answer["entries"]
    assert (code_of(answer), entry["status"]["code"]) == ("OK", "OK")
    assert (entry["message_id"], entry["transaction_id"], int(entry.get("offset", 0))) == (sent_id, sent_id, offset)
    wait_until(lambda: stored(caller.front, topic) == offset + 1, 10, "the message")


def test_a_batch_has_one_entry(caller: Caller) -> None:
    own = made(caller)
    answer = caller.send(message(own.topic, b"one"), message(own.topic, b"two"))
    (entry,) = answer["entries"]
    assert (code_of(answer), entry.get("offset", "0")) == ("OK", "0")
    wait_until(lambda: stored(caller.front, own.topic) == 2, 10, "both")
    assert [unit.body for unit in units(caller.front, own.topic)] == [b"one", b"two"]


@pytest.mark.parametrize("client_id", ["", " "])
def test_a_client_has_to_have_an_id(caller: Caller, client_id: str) -> None:
    nameless = Caller(caller.raw, caller.front, client_id)
    assert nameless.code("QueryRoute", {"topic": resource("RawNormal")}) == "CLIENT_ID_REQUIRED"
    assert code_of(nameless.send(message("RawNormal"))) == "CLIENT_ID_REQUIRED"
    assert code_of(nameless.settle({"client_type": "PRODUCER", "publishing": {}})) == "CLIENT_ID_REQUIRED"


def test_a_language_that_nobody_knows_is_served(caller: Caller) -> None:
    foreign = Caller(caller.raw, caller.front, "foreign", language="COBOL")
    assert code_of(foreign.settle({"client_type": "PRODUCER", "publishing": {}})) == "OK"
    assert code_of(foreign.send(message("RawNormal"))) == "OK"


def test_a_producer_is_told_how_to_send(caller: Caller) -> None:
    publishing = {
        "topics": [resource("RawNormal"), resource("missing")],
        "max_body_size": 1,
        "validate_message_type": False,
    }
    asked = {
        "client_type": "PRODUCER", "access_point": caller.endpoints, "request_timeout": "3s", "publishing": publishing,
        "user_agent": AGENT, "backoff_policy": OWN_POLICY,
    }  # fmt: skip
    answer = Caller(caller.raw, caller.front, "told-producer").settle(asked)
    assert answer == {
        "status": {"code": "OK", "message": "OK"},
        "settings": {
            **asked,
            "backoff_policy": {
                "max_attempts": 3, "exponential_backoff": {"initial": "0.010s", "max": "1s", "multiplier": 2.0}
            },
            "publishing": {**publishing, "max_body_size": 4 * MIB, "validate_message_type": True},
            "metric": {},
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    ("group", "policy", "told"),
    [
        ("raw-group", {"max_attempts": 17, "customized_backoff": CUSTOMIZED}, (False, 32, "20s")),
        ("raw-orderly", {"max_attempts": 17, "customized_backoff": CUSTOMIZED}, (True, 32, "20s")),
        ("raw-three", {"max_attempts": 4, "customized_backoff": CUSTOMIZED}, (False, 32, "20s")),
        (
            "raw-exponential",
            {"max_attempts": 17, "exponential_backoff": {"initial": "1s", "max": "2s", "multiplier": 2.0}},
            (False, 32, "20s"),
        ),
        (
            "raw-unknown-settings",  # what the client has said
            {"max_attempts": 7, "exponential_backoff": {"initial": "1s", "max": "2s", "multiplier": 3.0}},
            (False, 5, "7s"),
        ),
    ],
)
def test_a_consumer_is_told_how_its_group_consumes(
    caller: Caller, group: str, policy: Row, told: tuple[bool, int, str]
) -> None:
    own = {"fifo": False, "receive_batch_size": 5, "long_polling_timeout": "7s"}
    asked = {
        "client_type": "SIMPLE_CONSUMER", "access_point": caller.endpoints, "request_timeout": "3s",
        "subscription": subscription(group, "RawNormal", **own), "user_agent": AGENT, "backoff_policy": OWN_POLICY,
    }  # fmt: skip
    answer = Caller(caller.raw, caller.front, f"told-{group}").settle(asked)
    names = ("fifo", "receive_batch_size", "long_polling_timeout")
    assert answer["settings"] == {
        **asked,
        "subscription": subscription(group, "RawNormal", **dict(zip(names, told, strict=True))),
        "backoff_policy": policy,
        "metric": {},
    }


FAILED = "process client telemetryCommand failed. "


@pytest.mark.parametrize(
    ("settings", "end"),
    [
        ({"client_type": "PRODUCER"}, "INVALID_ARGUMENT there is no publishing or subscription data in settings"),
        ({"client_type": "PRODUCER", "publishing": {"topics": [resource("bad name")]}}, f"INVALID_ARGUMENT {FAILED}"),
        (
            {"client_type": "SIMPLE_CONSUMER", "subscription": subscription("bad group", "t")},
            f"INVALID_ARGUMENT {FAILED}",
        ),
        ({"client_type": "SIMPLE_CONSUMER", "subscription": {}}, f"INVALID_ARGUMENT {FAILED}"),
        (
            {"client_type": "PULL_CONSUMER", "subscription": subscription("raw-group", "RawNormal")},
            f"INTERNAL {FAILED}",
        ),
        ({"client_type": 5, "subscription": subscription("raw-group", "RawNormal")}, f"INTERNAL {FAILED}"),
    ],
)
def test_settings_that_are_refused_end_the_stream(caller: Caller, settings: Row, end: str) -> None:
    with pytest.raises(Refused) as refused:
        Caller(caller.raw, caller.front, f"refused-{next(_numbers)}").settle(settings)
    assert refused.value.message.startswith(end)


def test_a_server_has_to_know_who_sends_heartbeats(caller: Caller) -> None:
    stranger = Caller(caller.raw, caller.front, "stranger")
    beat = {"client_type": "SIMPLE_CONSUMER", "group": resource("raw-group")}
    assert stranger.code("Heartbeat", beat) == "UNRECOGNIZED_CLIENT_TYPE"
    assert stranger.code("Heartbeat", {"client_type": "PRODUCER"}) == "UNRECOGNIZED_CLIENT_TYPE"
    assert stranger.code("NotifyClientTermination", {"group": resource("raw-group")}) == "UNRECOGNIZED_CLIENT_TYPE"


def test_a_client_is_known_until_it_says_that_it_ends(caller: Caller) -> None:
    own = made(caller)
    beat = {"client_type": "SIMPLE_CONSUMER", "group": resource(own.group)}
    assert own.caller.code("Heartbeat", beat) == "OK"
    assert member_ids(caller.front, own.group) == [own.caller.client_id]
    assert own.caller.code("NotifyClientTermination", {"group": resource(own.group)}) == "OK"
    assert member_ids(caller.front, own.group) == []
    assert own.caller.code("Heartbeat", beat) == "UNRECOGNIZED_CLIENT_TYPE"


@pytest.mark.parametrize("method", ["PullMessage", "UpdateOffset", "GetOffset", "QueryOffset"])
def test_methods_that_nobody_serves(caller: Caller, method: str) -> None:
    with pytest.raises(Refused, match="UNIMPLEMENTED"):
        caller.call(method, {})


def test_a_message_has_all_that_is_known_of_it(caller: Caller) -> None:
    own = made(caller, "MIXED")
    user = {"city": "München"}
    caller.send(message(own.topic, b"hello", user, tag="t", keys=["k1", "k2"], message_group="g", message_type="FIFO"))
    status, content, delivery = own.caller.receive(own.group, own.topic)
    assert status == {"status": {"code": "OK", "message": "OK"}}
    assert list(delivery) == ["delivery_timestamp"]
    found = content["message"]
    system = found["system_properties"]
    assert (found["topic"], body_of(found)) == (resource(own.topic), b"hello")
    assert found["user_properties"] == user | {"__SHARDINGKEY": "g"}
    known = {
        "tag": "t", "keys": ["k1", "k2"], "message_id": MESSAGE_ID, "message_type": "FIFO",
        "body_digest": {"type": "MD5", "checksum": "5D41402ABC4B2A76B9719D911017C592"}, "body_encoding": "IDENTITY",
        "born_timestamp": "2026-01-01T00:00:00Z", "born_host": "here", "store_host": caller.front.address,
        "queue_offset": "0", "delivery_attempt": 1, "message_group": "g",
    }  # fmt: skip
    assert {name: system.get(name) for name in known} == known | {"body_encoding": system.get("body_encoding")}
    assert set(system) - set(known) == {"store_timestamp", "receipt_handle"}


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"invisible_duration": "9s"}, "ILLEGAL_INVISIBLE_TIME"),
        ({"invisible_duration": "43201s"}, "ILLEGAL_INVISIBLE_TIME"),
        ({"topic": "bad name"}, "ILLEGAL_TOPIC"),
        ({"group": "bad group"}, "ILLEGAL_CONSUMER_GROUP"),
        ({"topic": "RawWritable"}, "FORBIDDEN"),
        ({"filter_expression": {"type": "SQL", "expression": "a >"}}, "INTERNAL_SERVER_ERROR"),
    ],
)
def test_receives_that_are_refused(caller: Caller, changed: Row, code: str) -> None:
    if isinstance(caller.front, OrbitFront) and "filter_expression" in changed:
        code = "ILLEGAL_FILTER_EXPRESSION"  # RocketMQ does not say whose fault it is
    own = made(caller)
    whole = {"group": own.group, "topic": own.topic, **changed}
    responses = own.caller.receive(**whole)
    assert code_of(responses) == code
    assert [list(one) for one in responses] == [["status"], ["delivery_timestamp"]]


def test_a_stranger_receives_nothing(caller: Caller) -> None:
    own = made(caller)
    own.send(b"one")
    assert Caller(caller.raw, caller.front, "stranger").received(own.group, own.topic) == []
    assert len(own.receive()) == 1


@pytest.mark.parametrize(("version", "code"), [("5.0.7", "ILLEGAL_POLLING_TIME"), ("5.0.2", "BAD_REQUEST")])
def test_a_deadline_has_to_leave_time_to_wait(caller: Caller, version: str, code: str) -> None:
    waiting = Caller(caller.raw, caller.front, f"hurried-{version}", version)
    waiting.consume("raw-group", "RawEmpty")
    assert code_of(waiting.receive("raw-group", "RawEmpty", deadline_s=3)) == code


def test_a_renewed_delivery_needs_no_duration(caller: Caller) -> None:
    own = made(caller)
    own.send(b"one")
    (found,) = own.receive(invisible_duration="0s", auto_renew=True)
    assert handle_of(found).split()[2] == "60000"


def test_each_handle_is_acknowledged_for_itself(caller: Caller) -> None:
    own = made(caller)
    for body in (b"one", b"two"):
        own.send(body)
    one, two = map(handle_of, own.receive())
    assert code_of(own.ack()) == "INTERNAL_SERVER_ERROR"
    assert code_of(own.ack("bad")) == "INTERNAL_SERVER_ERROR"
    mixed = own.ack(one, "bad")
    assert code_of(mixed) == "MULTIPLE_RESULTS"
    assert [entry["status"]["code"] for entry in mixed["entries"]] == ["OK", "INTERNAL_SERVER_ERROR"]
    assert code_of(own.ack(one, two)) == "OK", "again"
    assert code_of(own.ack(long_over(one))) == "INVALID_RECEIPT_HANDLE"


def long_over(handle: str) -> str:
    """The handle, as if the message had been delivered long ago."""
    fields = handle.split()
    return " ".join([fields[0], "1000", *fields[2:]])


def test_a_changed_duration_makes_a_new_handle(caller: Caller) -> None:
    own = made(caller)
    own.send(b"one")
    (first,) = map(handle_of, own.receive())
    assert code_of(own.change("bad", "1s")) == "INTERNAL_SERVER_ERROR"
    assert code_of(own.change(first, "43201s")) == "ILLEGAL_INVISIBLE_TIME"
    assert code_of(own.change(first, "-1s")) == "ILLEGAL_INVISIBLE_TIME"
    assert code_of(own.change(long_over(first), "1s")) == "INVALID_RECEIPT_HANDLE"
    answer = own.change(first, "2s")
    assert code_of(answer) == "OK"
    second = answer["receipt_handle"]
    assert second != first
    assert second.split()[2] == "2000"
    own.ack(first)  # void: the message comes again
    (found,) = wait_until(own.receive, 30, "the message")
    assert (body_of(found), found["system_properties"]["delivery_attempt"]) == (b"one", 2)


@pytest.mark.parametrize("orderly", [False, True])
def test_a_consumer_gets_messages_of_all_queues_whichever_it_names(caller: Caller, orderly: bool) -> None:
    own = made(caller, "FIFO", queues=2, orderly=orderly)
    for number in range(8):
        own.send(b"%d" % number, message_group=f"g{number}", message_type="FIFO")
    wait_until(lambda: stored(caller.front, own.topic, 2) == 8, 10, "all messages")
    found = own.receive(queue=1)
    assert len(found) == 8
    assert {one["system_properties"].get("queue_id", 0) for one in found} == {0, 1}


def test_a_message_wakes_a_consumer_that_waits(caller: Caller) -> None:
    own = made(caller)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(own.receive, long_polling_timeout="20s")
        own.send(b"early or late")
        assert len(waiting.result()) == 1
        waiting = pool.submit(own.receive, long_polling_timeout="20s")
        with pytest.raises(TimeoutError):
            waiting.result(1)
        begun = time.monotonic()
        own.send(b"awaited")
        assert [body_of(one) for one in waiting.result()] == [b"awaited"]
        assert time.monotonic() - begun < 5


def test_a_client_that_ends_its_stream_is_answered(caller: Caller) -> None:
    ending = Caller(caller.raw, caller.front, "ending")
    stream = caller.raw.open(caller.front.endpoint, ending.metadata)
    caller.raw.write(stream, {"settings": {"client_type": "PRODUCER", "publishing": {}}})
    assert code_of(caller.raw.read(stream)) == "OK"
    caller.raw.close(stream)
    assert caller.raw.read(stream) is None


def test_a_message_is_dead_when_its_consumer_says(caller: Caller) -> None:
    own = made(caller)
    own.send(b"one", tag="t")
    (handle,) = map(handle_of, own.receive())
    request = {
        "group": resource(own.group), "topic": resource(own.topic), "receipt_handle": handle,
        "message_id": MESSAGE_ID, "delivery_attempt": 1, "max_delivery_attempts": 1,
    }  # fmt: skip
    assert (
        own.caller.code("ForwardMessageToDeadLetterQueue", request | {"receipt_handle": "bad"})
        == "INTERNAL_SERVER_ERROR"
    )
    assert own.caller.code("ForwardMessageToDeadLetterQueue", request) == "OK"
    wait_until(lambda: stored(caller.front, f"%DLQ%{own.group}"), 10, "the dead message")
    (dead,) = units(caller.front, f"%DLQ%{own.group}")
    assert dead.body == b"one"


def test_an_attempt_that_is_repeated_gets_the_same_messages(caller: Caller) -> None:
    own = made(caller, "FIFO", orderly=True)
    for body in (b"one", b"two"):
        own.send(body, message_group="g", message_type="FIFO")
    (first,) = own.receive(batch_size=1, attempt_id="first")
    (repeated,) = own.receive(batch_size=1, attempt_id="first")
    assert body_of(first) == body_of(repeated) == b"one"
    assert own.receive(batch_size=1, attempt_id="second") == [], "the queue is blocked"
    assert code_of(own.ack(handle_of(repeated))) == "OK"
    (second,) = own.receive(batch_size=1, attempt_id="third")
    assert body_of(second) == b"two"


@pytest.mark.parametrize(
    ("topic", "handle", "code"),
    [
        ("RawDelay", "bad", "INTERNAL_SERVER_ERROR"),
        ("RawDelay", "", "INTERNAL_SERVER_ERROR"),
        ("RawNormal", None, "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
        ("RawMixed", None, "INTERNAL_SERVER_ERROR"),  # it is another topic's
        ("bad name", None, "ILLEGAL_TOPIC"),
        ("RawDelay", None, "OK"),
    ],
)
def test_recalls_are_checked(caller: Caller, topic: str, handle: str | None, code: str) -> None:
    if handle is None:
        ahead = message("RawDelay", message_type="DELAY", delivery_timestamp=seconds_ahead(3600))
        handle = caller.send(ahead)["entries"][0]["recall_handle"]
    answer = caller.call("RecallMessage", {"topic": resource(topic), "recall_handle": handle})
    assert (code_of(answer), answer.get("message_id")) == (code, MESSAGE_ID if code == "OK" else None)


@pytest.mark.parametrize(
    ("topic", "transaction_id", "code"),
    [
        ("RawTransaction", "", "INVALID_TRANSACTION_ID"),
        ("RawTransaction", " ", "INVALID_TRANSACTION_ID"),
        ("RawTransaction", "unknown", "INTERNAL_SERVER_ERROR"),
        ("bad name", "unknown", "ILLEGAL_TOPIC"),
    ],
)
def test_transactions_that_cannot_be_ended(caller: Caller, topic: str, transaction_id: str, code: str) -> None:
    request = {
        "topic": resource(topic), "message_id": MESSAGE_ID, "transaction_id": transaction_id, "resolution": "COMMIT",
        "source": "SOURCE_CLIENT",
    }  # fmt: skip
    assert caller.code("EndTransaction", request) == code


@pytest.mark.parametrize("asked", POLLS, ids=str)
def test_an_empty_receive_waits_as_long_as_it_may(
    polls: dict[object, Future[tuple[float, str]]], asked: tuple[str, float | None]
) -> None:
    waited, code = polls[asked].result()
    assert POLLS[asked] - 0.5 < waited < POLLS[asked] + 4
    assert code == "MESSAGE_NOT_FOUND" or (asked[1] and code == "DEADLINE_EXCEEDED"), "both ends look at the clock"
