"""Attributes of topics and settings of groups that RocketMQ 5 has added: the same requests at 5.3.3 and at orbitmq get
the same results, its own tool works with both, and either reads what the other has stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from orbitmq.message.config import TopicConfig
from orbitmq.wire.bodies import SubscriptionGroupTable, TopicConfigList, TopicTable
from orbitmq.wire.command import Command
from orbitmq.wire.headers_admin import CreateTopicHeader, GetSubscriptionGroupConfigHeader, GetTopicConfigHeader
from orbitmq.wire.objects import decode, encode
from orbitmq.wire.requests import RequestCode
from tests.interop.conftest import System
from tests.support.asking import asking
from tests.support.java_rocketmq import ROCKETMQ_4, ROCKETMQ_5, JavaBroker, JavaNameServer, JavaSystem
from tests.support.mqadmin import Mqadmin, OurMqadmin, rows
from tests.support.orbit_process import OrbitBroker, OrbitUp
from tests.support.process import wait_until

CLUSTER = "DefaultCluster"
_numbers = count()
POLICY = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 1000, "max": 5000, "multiplier": 3}}
STEPS = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000, 2000]}}


@pytest.fixture(scope="module")
def stock(five: System) -> Iterator[Mqadmin]:
    with Mqadmin(five.namesrv_address, ROCKETMQ_5) as run:
        yield run


@pytest.fixture(params=["stock", "ours"])
def mqadmin(request: pytest.FixtureRequest, five: System, stock: Mqadmin) -> Mqadmin | OurMqadmin:
    """The tool of 5.3.3 and `orbitmq mqadmin`."""
    return stock if request.param == "stock" else OurMqadmin(five.namesrv_address)


@pytest.fixture
def topic() -> str:
    return f"Typed{next(_numbers)}"


def ask(address: str, code: int, header: Any = None, body: bytes = b"") -> Command:
    return asking(address, lambda asker: asker.ask(code, header, body))


def alter(address: str, topic: str, attributes: str | None) -> int:
    header = CreateTopicHeader(topic, "TBW102", 2, 2, 6, "SINGLE_TAG", False, attributes=attributes)
    answer = ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    assert answer.code == 0 or answer.remark
    return answer.code


def attributes(address: str, topic: str) -> dict[str, str] | None:
    answer = ask(address, RequestCode.GET_TOPIC_CONFIG, GetTopicConfigHeader(topic))
    return decode(TopicConfig, answer.body).attributes if answer.code == 0 else None


def stored(system: Any, name: str, table: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((system.store_dir / "config" / name).read_text())[table]
    return found


@pytest.mark.parametrize(
    "text",
    [
        "+message.type=Fifo", "+message.type=fifo", "+message.type=", "+message.type", "message.type=FIFO",
        "-message.type", "+foo=bar", "-foo", "+", "-", "+=FIFO", " +message.type=FIFO", "+message.type= FIFO",
        "+message.type=FIFO,+message.type=FIFO", "+message.type=FIFO,-message.type", "+message.type =FIFO",
        "+message.type=A=B", "+cleanup.policy=delete", "+mess+age=4", "++message.type=FIFO", "+reserve.time=-2",
        "+reserve.time=x", "+reserve.time=9223372036854775808",
    ],
)  # fmt: skip
def test_a_topic_with_wrong_attributes_is_not_created(five: System, topic: str, text: str) -> None:
    assert alter(five.address, topic, text) == 1
    assert attributes(five.address, topic) is None


@pytest.mark.parametrize(
    ("text", "after"),
    [
        (None, {}),
        ("", {}),
        (",", {}),
        ("+message.type=FIFO,", {"message.type": "FIFO"}),
        ("+message.type=UNSPECIFIED", {"message.type": "UNSPECIFIED"}),
        ("+message.type=TRANSACTION,+reserve.time=+7", {"message.type": "TRANSACTION", "reserve.time": "+7"}),
        ("+queue.type=SimpleCQ,+cleanup.policy=DELETE", {"cleanup.policy": "DELETE", "queue.type": "SimpleCQ"}),
    ],
)
def test_a_topic_is_created_with_attributes(five: System, topic: str, text: str | None, after: dict[str, str]) -> None:
    assert alter(five.address, topic, text) == 0
    assert attributes(five.address, topic) == after
    table = decode(TopicTable, ask(five.address, RequestCode.GET_ALL_TOPIC_CONFIG).body)
    assert table.topics[topic].attributes == after


def test_attributes_change_one_by_one(five: System, topic: str) -> None:
    """A request without any, as 4.x tools send it, leaves them alone."""
    for text, code, after in (
        ("+message.type=FIFO", 0, {"message.type": "FIFO"}),
        ("+message.type=DELAY,+reserve.time=5", 0, {"message.type": "DELAY", "reserve.time": "5"}),
        (None, 0, {"message.type": "DELAY", "reserve.time": "5"}),
        ("-reserve.time", 0, {"message.type": "DELAY"}),
        ("-reserve.time", 1, {"message.type": "DELAY"}),
        ("+cleanup.policy=DELETE", 1, {"message.type": "DELAY"}),
        ("+reserve.time=1,+message.type=MIXED", 29, {"message.type": "DELAY"}),
    ):
        assert alter(five.address, topic, text) == code
        assert attributes(five.address, topic) == after


def test_a_list_of_topics_carries_changes(five: System, topic: str) -> None:
    for changes, code in (({"+message.type": "FIFO"}, 0), ({"message.type": "DELAY"}, 1)):
        body = encode(TopicConfigList([TopicConfig(topic, 2, 2, attributes=changes)]))
        assert ask(five.address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body).code == code
        assert attributes(five.address, topic) == {"message.type": "FIFO"}


def test_attributes_are_in_the_file(five: System, topic: str) -> None:
    assert alter(five.address, topic, "+reserve.time=5,+message.type=FIFO") == 0
    wait_until(lambda: topic in stored(five, "topics.json", "topicConfigTable"), 30, "the topic in the file")
    text = (five.store_dir / "config/topics.json").read_text()
    assert (
        f'"{topic}":{{\n\t\t\t"attributes":{{\n\t\t\t\t"message.type":"FIFO",\n\t\t\t\t"reserve.time":"5"\n\t\t\t}},\n'
        '\t\t\t"order":false,\n\t\t\t"perm":6,\n\t\t\t"readQueueNums":2,\n\t\t\t"topicFilterType":"SINGLE_TAG",\n'
        f'\t\t\t"topicName":"{topic}",\n\t\t\t"topicSysFlag":0,\n\t\t\t"writeQueueNums":2\n\t\t}}'
    ) in text


def test_tools_set_types_and_settings(five: System, mqadmin: Mqadmin | OurMqadmin, topic: str) -> None:
    printed = mqadmin("updateTopic", "-c", CLUSTER, "-t", topic, "-a", "+message.type=FIFO,+reserve.time=5")
    assert f"create topic to {five.address} success." in printed
    assert "order=false, attributes={" in printed
    assert "+message.type=FIFO" in printed.partition("attributes={")[2]
    assert attributes(five.address, topic) == {"message.type": "FIFO", "reserve.time": "5"}
    mqadmin("updateTopic", "-c", CLUSTER, "-t", topic, "-a", "+message.type=DELAY,-reserve.time")
    assert attributes(five.address, topic) == {"message.type": "DELAY"}
    for wrong in ("+message.type=Fifo", "message.type=FIFO"):
        assert "success" not in mqadmin("updateTopic", "-c", CLUSTER, "-t", topic, "-a", wrong)
    assert attributes(five.address, topic) == {"message.type": "DELAY"}
    words = ("-c", CLUSTER, "-g", f"group-of-{topic}", "-o", "true", "-p", json.dumps(POLICY, separators=(",", ":")))
    assert f"create subscription group to {five.address} success." in mqadmin("updateSubGroup", *words)
    group = group_of(five.address, f"group-of-{topic}")
    assert (group["consumeMessageOrderly"], group["groupRetryPolicy"]) == (True, POLICY)


def test_tools_change_the_permission_of_a_topic_with_attributes(
    five: System, mqadmin: Mqadmin | OurMqadmin, topic: str
) -> None:
    kept = {"message.type": "FIFO", "queue.type": "SimpleCQ"}
    assert alter(five.address, topic, "+message.type=FIFO,+queue.type=SimpleCQ") == 0
    printed = wait_until(lambda: narrowed(five, mqadmin, topic), 60, "the topic's route")
    assert f"update topic perm from 6 to 4 in {five.address} success." in printed
    assert attributes(five.address, topic) == kept


def narrowed(five: System, mqadmin: Mqadmin | OurMqadmin, topic: str) -> str:
    printed = mqadmin("updateTopicPerm", "-b", five.address, "-t", topic, "-p", 4)
    return printed if "from 6" in printed else ""


def test_tools_ask_the_brokers_of_a_cluster_about_a_topic(
    five: System, mqadmin: Mqadmin | OurMqadmin, topic: str
) -> None:
    assert alter(five.address, topic, None) == 0
    found = rows(mqadmin("topicStatus", "-t", topic, "-c", CLUSTER), "#Broker Name")
    assert [row[1] for row in found] == ["0", "1"]


def group_of(address: str, name: str) -> dict[str, Any]:
    """Its settings, none if it is not there."""
    header = GetSubscriptionGroupConfigHeader(name)
    found: dict[str, Any] = json.loads(ask(address, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header).body or b"{}")
    return found


@pytest.mark.parametrize(
    "settings",
    [
        {"consumeMessageOrderly": True},
        {"consumeTimeoutMinute": 3, "groupSysFlag": 1},
        {"groupRetryPolicy": {"type": "EXPONENTIAL"}},
        {"groupRetryPolicy": POLICY},
        {"groupRetryPolicy": STEPS},
        {"subscriptionDataSet": [{"topic": "t", "expressionType": "TAG", "expression": "a", "version": 3}]},
    ],
)
def test_settings_of_a_group_are_kept(five: System, topic: str, settings: dict[str, Any]) -> None:
    """Until it is set again: what a request does not name has its default then."""
    name, code = f"group-of-{topic}", RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    assert ask(five.address, code, body=json.dumps({"groupName": name, **settings}).encode()).code == 0
    assert settings.items() <= group_of(five.address, name).items()
    everything = ask(five.address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body
    assert settings.items() <= json.loads(everything)["subscriptionGroupTable"][name].items()
    in_table = decode(SubscriptionGroupTable, everything).groups[name]
    wait_until(
        lambda: (
            settings.items() <= stored(five, "subscriptionGroup.json", "subscriptionGroupTable").get(name, {}).items()
        ),
        30,
        "the group in the file",
    )
    assert ask(five.address, code, body=json.dumps({"groupName": name}).encode()).code == 0
    again = decode(SubscriptionGroupTable, ask(five.address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)
    assert again.groups[name] != in_table


def test_attributes_of_a_group_are_unknown(five: System, topic: str) -> None:
    body = {"groupName": f"group-of-{topic}", "attributes": {"+a": "b"}}
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    assert ask(five.address, code, body=json.dumps(body).encode()).code == 1


# ---------------------------------------------------------------------------------------- stores, slaves, name servers

MADE: dict[str, Callable[[Path], Any]] = {
    "java-5": lambda store: JavaSystem(ROCKETMQ_5, store_dir=store),
    "orbitmq": lambda store: OrbitUp(store_dir=store),
}


def set_all(address: str) -> None:
    assert alter(address, "Ordered", "+message.type=FIFO,+reserve.time=5") == 0
    assert alter(address, "Plain", None) == 0
    settings = {"groupName": "g", "consumeMessageOrderly": True, "groupRetryPolicy": STEPS}
    body = json.dumps(settings).encode()
    assert ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body).code == 0


def check_all(address: str) -> None:
    assert attributes(address, "Ordered") == {"message.type": "FIFO", "reserve.time": "5"}
    assert attributes(address, "Plain") == {}
    group = group_of(address, "g")
    assert (group["consumeMessageOrderly"], group["groupRetryPolicy"]) == (True, STEPS)


@pytest.mark.parametrize(("first", "second"), [("java-5", "orbitmq"), ("orbitmq", "java-5")])
def test_either_reads_what_the_other_has_stored(tmp_path: Path, first: str, second: str) -> None:
    with MADE[first](tmp_path) as system:
        set_all(system.address)
        system.stop()
    with MADE[second](tmp_path) as system:
        check_all(system.address)


def test_what_is_confirmed_survives_a_kill(tmp_path: Path) -> None:
    with OrbitUp(store_dir=tmp_path) as system:
        set_all(system.address)
        system.kill()
    with OrbitUp(store_dir=tmp_path) as system:
        check_all(system.address)


@pytest.mark.parametrize("version", [ROCKETMQ_4, ROCKETMQ_5])
@pytest.mark.parametrize("compressed", [False, True])
def test_name_servers_of_either_version_read_the_registration(version: str, compressed: bool) -> None:
    with JavaNameServer(version) as names, OrbitBroker(names.address, compressedRegister=compressed) as broker:
        set_all(broker.address)
        with Mqadmin(names.address) as mqadmin:
            wait_until(lambda: {"Ordered", "Plain"} <= set(mqadmin("topicList").split()), 60, "the topics")
            assert '"writeQueueNums":2' in "".join(mqadmin("topicRoute", "-t", "Ordered").split())


def test_a_slave_copies_them_from_a_master_of_rocketmq_5() -> None:
    with JavaNameServer(ROCKETMQ_5) as names, JavaBroker(names.address, ROCKETMQ_5) as java:
        set_all(java.address)
        with OrbitBroker(names.address, brokerId=1, brokerRole="SLAVE") as copy:
            wait_until(lambda: attributes(copy.address, "Ordered") is not None, 60, "the copy")
            wait_until(lambda: group_of(copy.address, "g").get("consumeMessageOrderly"), 60, "the copy of the group")
            check_all(copy.address)
