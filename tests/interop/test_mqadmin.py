"""The stock `mqadmin` of RocketMQ 4.9.7: every command an operator needs, its headings, and rows that are true.

The headings are the tool's own; what stands below them is the system's. One consumer of the group stays online.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from orbitmq.admin.bodies import shown
from orbitmq.admin.messages import by_offset_id
from orbitmq.admin.session import Session
from orbitmq.admin.tracks import Track, TrackKind, tracks
from orbitmq.message.model import MessageExt
from tests.interop.conftest import System
from tests.support.java_rocketmq import Driver, run_driver
from tests.support.mqadmin import Mqadmin, OurMqadmin, rows
from tests.support.process import wait_until
from tests.support.sessions import asked

CLUSTER, BROKER = "DefaultCluster", "broker-a"
TOPIC, GROUP = "MqadminOrders", "mqadmin-orders"
COUNT = 12
INNER_PRODUCERS = "CLIENT_INNER_PRODUCER"  # the group every client's own producer is in


@dataclass(frozen=True)
class World:
    """A system with a topic, its messages and a consumer that has read them."""

    system: System
    run: Mqadmin | OurMqadmin
    sent: list[dict[str, object]]
    client_id: str

    @property
    def key(self) -> str:
        """A message key of this tool's own."""
        return type(self.run).__name__

    @property
    def address(self) -> str:
        return self.system.address

    def eventually(self, condition: str, *words: object) -> str:
        """What the command prints once that has a line which matches `condition`."""

        def printed() -> str | None:
            text = self.run(*words)
            return text if re.search(condition, text, re.MULTILINE) else None

        return str(wait_until(printed, 60, f"{words[0]} to print {condition}"))


@pytest.fixture(scope="module")
def stock_world(system: System) -> Iterator[World]:
    with Mqadmin(system.namesrv_address) as run:
        created = run("updateTopic", "-b", system.address, "-t", TOPIC, "-r", 4, "-w", 4)
        assert f"create topic to {system.address} success." in created
        client = ("--namesrv", system.namesrv_address, "--topic", TOPIC)
        with Driver("consume", *client, "--group", GROUP, "--idle-ms", 600_000) as consumer:
            consumer.wait_for_event("started")
            sent = [row for row in run_driver("send", *client, "--count", COUNT, "--run", "m") if "index" in row]
            consumer.process.wait_for(
                lambda: len([row for row in consumer.rows() if row["event"] == "message"]) == COUNT, 60, "all messages"
            )
            members = rows(run("consumerConnection", "-g", GROUP), "#ClientId")
            yield World(system, run, sent, members[0][0])


@pytest.fixture(params=["stock", "ours"])
def world(request: pytest.FixtureRequest, stock_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The same through RocketMQ's tool and through `orbitmq mqadmin`."""
    if request.param == "stock":
        return stock_world
    monkeypatch.chdir(tmp_path)  # where consumerStatus leaves its reports
    return replace(stock_world, run=OurMqadmin(stock_world.system.namesrv_address))


# --------------------------------------------------------------------------------------------------- cluster and broker


def test_cluster_list(world: World) -> None:
    printed = world.run("clusterList")
    assert re.match(r"#Cluster Name +#Broker Name +#BID +#Addr +#Version +#InTPS\(LOAD\) +#OutTPS\(LOAD\)", printed)
    (row,) = [line for line in printed.splitlines() if BROKER in line]
    load = r"([\d.]+)\((\d+),(\d+)ms\)"
    form = rf"{CLUSTER} +{BROKER} +0 +{world.address} +V4_9_7 +{load} +{load} +(\d+) +([\d.]+) ([\d.]+)"
    found = re.fullmatch(form, row.strip())
    assert found, row
    assert 0 < float(found[9]) <= 1, "part of the disk in use"
    more = rows(world.run("clusterList", "-m"), "#Cluster Name")
    assert more[0][:2] == [CLUSTER, BROKER]
    in_total, out_total = map(int, more[0][4].split() if len(more[0]) == 5 else more[0][4:6])
    assert in_total >= COUNT
    assert out_total >= COUNT


RUNTIME = {
    "brokerVersionDesc": "V4_9_7",
    "brokerVersion": "407",
    "bootTimestamp": r"\d{13}",
    "runtime": r"\[ \d+ days, \d+ hours, \d+ minutes, \d+ seconds \]",
    "putTps": r"[\d.E-]* [\d.E-]* [\d.E-]*",
    "getFoundTps": r"[\d.E-]* [\d.E-]* [\d.E-]*",
    "getMissTps": r"[\d.E-]* [\d.E-]* [\d.E-]*",
    "getTotalTps": r"[\d.E-]+ [\d.E-]+ [\d.E-]+",
    "getTransferedTps": r"[\d.E-]* [\d.E-]* [\d.E-]*",
    "putMessageTimesTotal": r"\d+",
    "putMessageSizeTotal": r"\d+",
    "putMessageAverageSize": r"\d+\.\d+",
    "putMessageFailedTimes": r"\d+",
    "putMessageEntireTimeMax": r"\d+",
    "getMessageEntireTimeMax": r"\d+",
    "putMessageDistributeTime": r"null|(\[\S+\]:\d+ ){13}",
    "putLatency99": r"\d+\.\d\d",
    "putLatency999": r"\d+\.\d\d",
    "dispatchMaxBuffer": r"\d+",
    "commitLogMinOffset": r"\d+",
    "commitLogMaxOffset": r"\d+",
    "commitLogDiskRatio": r"[01]\.\d+",
    "consumeQueueDiskRatio": r"[01]\.\d+",
    "msgPutTotalYesterdayMorning": r"\d+",
    "msgPutTotalTodayMorning": r"\d+",
    "msgPutTotalTodayNow": r"\d+",
    "msgGetTotalYesterdayMorning": r"\d+",
    "msgGetTotalTodayMorning": r"\d+",
    "msgGetTotalTodayNow": r"\d+",
    "sendThreadPoolQueueSize": r"\d+",
    "sendThreadPoolQueueCapacity": r"\d+",
    "sendThreadPoolQueueHeadWaitTimeMills": r"\d+",
    "pullThreadPoolQueueSize": r"\d+",
    "pullThreadPoolQueueCapacity": r"\d+",
    "pullThreadPoolQueueHeadWaitTimeMills": r"\d+",
    "queryThreadPoolQueueSize": r"\d+",
    "queryThreadPoolQueueCapacity": r"\d+",
    "queryThreadPoolQueueHeadWaitTimeMills": r"\d+",
    "EndTransactionQueueSize": r"\d+",
    "EndTransactionThreadPoolQueueCapacity": r"\d+",
    "dispatchBehindBytes": r"\d+",
    "pageCacheLockTimeMills": r"\d+",
    "earliestMessageTimeStamp": r"-1|\d{13}",
    "startAcceptSendRequestTimeStamp": r"\d+",
    "remainTransientStoreBufferNumbs": "2147483647",
    "remainHowManyDataToFlush": r"[\d.]+ \w+",
    "commitLogDirCapacity": r"Total : [\d.]+ \w+, Free : [\d.]+ \w+\.",
}


def table_of(printed: str, separator: str) -> dict[str, str]:
    pairs = (line.partition(separator) for line in printed.splitlines() if separator in line)
    return {name.strip(): value.removeprefix(" ") for name, _, value in pairs}


def test_broker_status(world: World) -> None:
    table = table_of(world.run("brokerStatus", "-b", world.address), ":")
    differing = {name: table.get(name) for name, form in RUNTIME.items() if not re.fullmatch(form, table.get(name, ""))}
    assert not differing
    assert int(table["putMessageTimesTotal"]) >= COUNT
    assert int(table["msgGetTotalTodayNow"]) >= COUNT
    assert 0 < int(table["putMessageSizeTotal"]) <= int(table["commitLogMaxOffset"])
    everywhere = world.run("brokerStatus", "-c", CLUSTER)
    assert re.search(rf"^{world.address} +brokerVersionDesc +: V4_9_7$", everywhere, re.MULTILINE)


def test_broker_settings_are_shown_and_changed(world: World) -> None:
    for target in (("-b", world.address), ("-c", CLUSTER)):
        assert f"update broker config success, {world.address}" in world.run(
            "updateBrokerConfig", *target, "-k", "fileReservedTime", "-v", "71"
        )
        printed = world.run("getBrokerConfig", *target)
        assert re.search(rf"^=+(Master: )?{world.address}=+$", printed, re.MULTILINE)
        table = table_of(printed, "=  ")
        assert (table["brokerName"], table["brokerClusterName"]) == (BROKER, CLUSTER)
        assert (table["fileReservedTime"], table["listenPort"]) == ("71", world.address.rpartition(":")[2])
        assert "update broker config success" in world.run(
            "updateBrokerConfig", *target, "-k", "fileReservedTime", "-v", "72"
        )


def test_cleaning_on_request(world: World) -> None:
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        for target in (("-b", world.address), ("-c", CLUSTER)):
            assert world.run(command, *target).strip() == "success"
    assert len(rows(world.run("topicStatus", "-t", TOPIC), "#Broker Name")) == 4


def test_broker_consume_stats(world: World) -> None:
    printed = world.eventually(rf"^{TOPIC} +{GROUP}", "brokerConsumeStats", "-b", world.address)
    found = [row for row in rows(printed, "#Topic") if row[:2] == [TOPIC, GROUP]]
    assert [row[2] for row in found] == [BROKER] * len(found)
    assert re.search(r"^Diff Total: -?\d+$", printed, re.MULTILINE)


def test_producers(world: World) -> None:
    printed = world.run("producer", "-b", world.address)
    line = rf"producer group \({INNER_PRODUCERS}\) instance : clientId=(\S+),remoteIP=/127.0.0.1:\d+, language=JAVA"
    assert world.client_id in re.findall(line, printed)
    members = world.run("producerConnection", "-g", INNER_PRODUCERS, "-t", TOPIC)
    assert re.search(rf"^\d{{4}}  {re.escape(world.client_id)} +127.0.0.1:\d+ +JAVA +V4_9_7$", members, re.MULTILINE)


def test_send_message_status(world: World) -> None:
    printed = world.run("sendMsgStatus", "-b", BROKER, "-s", 16, "-c", 2)
    assert printed.count("sendStatus=SEND_OK") == 2


# ------------------------------------------------------------------------------------------------------- name server


def test_write_permission_is_wiped_and_added(world: World) -> None:
    server = world.system.namesrv_address
    try:
        assert re.search(
            rf"wipe write perm of broker\[{BROKER}\] in name server\[{server}\] OK, \d+",
            world.run("wipeWritePerm", "-b", BROKER),
        )
        assert '"perm":4' in world.run("topicRoute", "-t", TOPIC)
    finally:  # other tests send to this broker
        added = world.run("addWritePerm", "-b", BROKER)
    assert re.search(rf"add write perm of broker\[{BROKER}\] in name server\[{server}\] OK, \d+", added)
    assert '"perm":6' in world.run("topicRoute", "-t", TOPIC)


def test_name_server_settings(world: World) -> None:
    assert "update name server config success!" in world.run(
        "updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true"
    )
    printed = world.run("getNamesrvConfig")
    assert f"============{world.system.namesrv_address}============" in printed
    assert table_of(printed, "=  ")["orderMessageEnable"] == "true"
    assert "success" in world.run("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "false")


def test_key_value_settings_and_order(world: World) -> None:
    for command, more in (("updateKvConfig", ("-v", "v")), ("deleteKvConfig", ())):
        assert "success" in world.run(command, "-s", "mqadmin", "-k", "k", *more)
    put = world.run("updateOrderConf", "-t", TOPIC, "-m", "put", "-v", f"{BROKER}:4")
    assert f"update orderConf success. topic=[{TOPIC}], orderConf=[{BROKER}:4]" in put
    assert f"orderConf=[{BROKER}:4]" in world.run("updateOrderConf", "-t", TOPIC, "-m", "get")
    assert f"delete orderConf success. topic=[{TOPIC}]" in world.run("updateOrderConf", "-t", TOPIC, "-m", "delete")


# ------------------------------------------------------------------------------------------------------------ topics


def test_a_topic_is_made_changed_and_removed(world: World) -> None:
    name = "MqadminShort"
    made = world.run("updateTopic", "-c", CLUSTER, "-t", name, "-r", 2, "-w", 3, "-p", 6, "-u", "true", "-s", "true")
    assert "readQueueNums=2, writeQueueNums=3, perm=RW-, topicFilterType=SINGLE_TAG, topicSysFlag=3" in made
    world.eventually(rf"^{name}$", "topicList")
    narrowed = world.run("updateTopicPerm", "-b", world.address, "-t", name, "-p", 4)
    assert f"update topic perm from 6 to 4 in {world.address} success." in narrowed
    world.eventually('"perm":4', "topicRoute", "-t", name)
    widened = world.run("updateTopicPerm", "-c", CLUSTER, "-t", name, "-p", 6)
    assert f"update topic perm from 4 to 6 in {world.address} success." in widened
    gone = world.run("deleteTopic", "-c", CLUSTER, "-t", name)
    assert f"delete topic [{name}] from cluster [{CLUSTER}] success." in gone
    assert f"delete topic [{name}] from NameServer success." in gone
    assert name not in world.run("topicList").split()


def test_illegal_names_and_system_topics_are_refused(world: World) -> None:
    assert "CODE: 1 " in world.run("updateTopic", "-b", world.address, "-t", "bad topic!", "-r", 2)
    assert "CODE: 1 " in world.run("updateTopic", "-b", world.address, "-t", "TBW102")
    assert "CODE: 17 " in world.run("topicRoute", "-t", "MqadminNone")


def test_topic_lists(world: World) -> None:
    names = set(world.run("topicList").split())
    assert names >= {TOPIC, f"%RETRY%{GROUP}", "TBW102", "SCHEDULE_TOPIC_XXXX", BROKER, CLUSTER}
    found = rows(world.run("topicList", "-c"), "#Cluster Name")
    assert [CLUSTER, TOPIC, GROUP] in found
    assert world.run("topicClusterList", "-t", TOPIC).split() == [CLUSTER]


def test_topic_route(world: World) -> None:
    printed = world.run("topicRoute", "-t", TOPIC)
    route = json.loads(printed.replace("{0:", '{"0":'))
    assert route["brokerDatas"] == [{"brokerAddrs": {"0": world.address}, "brokerName": BROKER, "cluster": CLUSTER}]
    (queues,) = route["queueDatas"]
    assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (4, 4, 6)
    listed = rows(world.run("topicRoute", "-t", TOPIC, "-l"), "#ClusterName")
    assert listed[0] == [CLUSTER, BROKER, f"{{0={world.address}}}", "4", "4", "6"]
    assert listed[2] == ["Total:", "1", "4", "4"]


def test_topic_status(world: World) -> None:
    found = rows(world.run("topicStatus", "-t", TOPIC), "#Broker Name")
    assert [row[:3] for row in found] == [[BROKER, str(queue), "0"] for queue in range(4)]
    assert sum(int(row[3]) for row in found) >= COUNT
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}", row[4]) for row in found)


def test_stats_of_all_topics(world: World) -> None:
    printed = world.eventually(rf"^{TOPIC} +{GROUP} .* {COUNT}\d* +{COUNT}\d*$", "statsAll", "-t", TOPIC)
    (row,) = [row for row in rows(printed, "#Topic") if row[:2] == [TOPIC, GROUP]]
    assert int(row[2]) >= 0
    assert all(re.fullmatch(r"[\d.]+", cell) for cell in row[3:5])


def test_queues_for_addresses(world: World) -> None:
    printed = world.run("allocateMQ", "-t", TOPIC, "-i", "10.0.0.1,10.0.0.2")
    assert {ip: len(queues) for ip, queues in json.loads(printed)["result"].items()} == {"10.0.0.1": 2, "10.0.0.2": 2}


# ------------------------------------------------------------------------------------------------------------ groups


def test_a_group_is_made_shown_and_removed(world: World) -> None:
    name = "mqadmin-short"
    made = world.run("updateSubGroup", "-c", CLUSTER, "-g", name, "-q", 2, "-r", 3, "-d", "true", "-m", "true")
    assert f"create subscription group to {world.address} success." in made
    assert "retryQueueNums=2, retryMaxTimes=3" in made
    shown = table_of(world.run("getConsumerConfig", "-g", name), "=  ")
    assert (shown["groupName"], shown["retryMaxTimes"], shown["consumeBroadcastEnable"]) == (name, "3", "true")
    gone = world.run("deleteSubGroup", "-b", world.address, "-g", name)
    assert f"delete subscription group [{name}] from broker [{world.address}] success." in gone
    again = world.run("deleteSubGroup", "-c", CLUSTER, "-g", name, "-r", "true")
    assert f"delete topic [%DLQ%{name}] from NameServer success." in again
    assert name not in world.run("getConsumerConfig", "-g", name)


def test_consumer_connection(world: World) -> None:
    printed = world.run("consumerConnection", "-g", GROUP)
    (member,) = rows(printed, "#ClientId")
    assert re.fullmatch(r"127.0.0.1:\d+", member[1])
    assert member[2:] == ["JAVA", "V4_9_7"]
    subscribed = [" ".join(row).split() for row in rows(printed, "#Topic")]
    assert sorted(subscribed) == [[f"%RETRY%{GROUP}", "*"], [TOPIC, "*"]]
    for line in (
        "ConsumeType: CONSUME_PASSIVELY", "MessageModel: CLUSTERING", "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET",
    ):  # fmt: skip
        assert line in printed


def test_consumer_progress(world: World) -> None:
    printed = world.eventually(r"^Diff Total: 0$", "consumerProgress", "-g", GROUP)
    found = [row for row in rows(printed, "#Topic") if row[0] == TOPIC]
    assert [row[1:3] for row in found] == [[BROKER, str(queue)] for queue in range(4)]
    assert all(row[3] == row[4] and row[5] == "0" for row in found)
    assert re.search(r"^Consume TPS: \d+\.\d\d$", printed, re.MULTILINE)
    with_ip = world.run("consumerProgress", "-g", GROUP, "-s", "true")
    assert all(row[5].count(".") == 3 for row in rows(with_ip, "#Topic") if row[0] == TOPIC), with_ip
    (line,) = [row for row in rows(world.run("consumerProgress"), "#Group") if row[0] == GROUP]
    assert line[1:5] == ["1", "V4_9_7", "PUSH", "CLUSTERING"]


def test_consumer_status(world: World) -> None:
    printed = world.run("consumerStatus", "-g", GROUP)
    assert rows(printed, "#Index")[0][:3] == ["1", world.client_id, "V4_9_7"]
    assert "Same subscription in the same group of consumer" in printed
    report = world.run("consumerStatus", "-g", GROUP, "-i", world.client_id, "-s")
    for heading in ("#Consumer Properties#", "#Consumer Subscription#", "#Consumer Offset#", "#Consumer RT&TPS#"):
        assert heading in report
    assert "PROP_CONSUME_TYPE" in report
    assert "#Consumer jstack#" in report


# ---------------------------------------------------------------------------------------------------------- messages


def fields_of(printed: str) -> dict[str, str]:
    table = table_of(printed.split("Message Body Path")[0], ":")
    return {name: value.strip() for name, value in table.items()}


def test_a_message_by_its_ids(world: World) -> None:
    sent = world.sent[0]
    consumed = rf"consumerGroup={GROUP}, trackType=CONSUMED"  # when the consumer has told its offset
    by_offset = world.eventually(consumed, "queryMsgById", "-i", sent["offsetMsgId"])
    by_unique = world.run("queryMsgByUniqueKey", "-t", TOPIC, "-i", sent["msgId"])
    for printed in (by_offset, by_unique):
        fields = fields_of(printed)
        assert fields["Topic"] == TOPIC
        assert (fields["Queue ID"], fields["Queue Offset"]) == (str(sent["queueId"]), str(sent["queueOffset"]))
        assert fields["Born Host"].startswith("127.0.0.1:")
        assert fields["Store Host"] == world.address
    path = Path(re.findall(r"Message Body Path: +(\S+)", by_offset)[0])
    assert path.read_bytes()
    assert "CODE: 1 " in world.run("queryMsgById", "-i", str(sent["offsetMsgId"])[:-8] + "7FFFFFFF")


def test_our_answer_about_a_message_is_the_same(world: World) -> None:
    sent = world.sent[0]
    consumed = rf"consumerGroup={GROUP}, trackType=CONSUMED"
    fields = fields_of(world.eventually(consumed, "queryMsgById", "-i", sent["offsetMsgId"]))

    async def ask(session: Session) -> tuple[MessageExt, list[Track]]:
        (message,) = (await by_offset_id(session, str(sent["offsetMsgId"]))).items
        return message, (await tracks(session, message)).items

    message, found = asked(world.system.namesrv_address, ask, timeout_ms=20_000)
    assert [(one.group, one.track) for one in found] == [(GROUP, TrackKind.CONSUMED)]
    told = shown(message)
    assert {
        "OffsetID": told.offset_msg_id,
        "Topic": told.topic,
        "Tags": f"[{told.tags}]",
        "Keys": f"[{' '.join(told.keys)}]",
        "Queue ID": str(told.queue_id),
        "Queue Offset": str(told.queue_offset),
        "CommitLog Offset": str(told.commit_log_offset),
        "Reconsume Times": str(told.reconsume_times),
        "Born Host": told.born_host,
        "Store Host": told.store_host,
        "System Flag": str(told.sys_flag),
    }.items() <= fields.items()


def test_a_message_is_handed_to_a_consumer_directly(world: World) -> None:
    found = world.run("queryMsgById", "-i", world.sent[1]["offsetMsgId"], "-g", GROUP, "-d", world.client_id)
    assert "consumeResult=CR_SUCCESS" in found


def test_messages_sent_and_found_by_key(world: World) -> None:
    sent = [world.run("sendMessage", "-t", TOPIC, "-p", "body", "-k", world.key, "-c", "red") for _ in range(2)]
    ids = {rows(printed, "#Broker Name")[0][3] for printed in sent}
    assert all(rows(printed, "#Broker Name")[0][2] == "SEND_OK" for printed in sent)
    printed = world.eventually(r"(\S+ +\d+ +\d+\s+){2}", "queryMsgByKey", "-t", TOPIC, "-k", world.key)
    assert {row[0] for row in rows(printed, "#Message ID")} == ids


def test_messages_read_by_place(world: World) -> None:
    sent = world.sent[2]
    place = ("-t", TOPIC, "-b", BROKER, "-i", sent["queueId"], "-o", sent["queueOffset"])
    assert fields_of(world.run("queryMsgByOffset", *place))["OffsetID"] == sent["offsetMsgId"]
    one = world.run("consumeMessage", *place, "-c", 1)
    assert one.count("MSGID: ") == 1
    assert str(sent["msgId"]) in one
    assert world.run("consumeMessage", "-t", TOPIC).count("MSGID: ") >= COUNT
    assert world.run("printMsg", "-t", TOPIC).count("MSGID: ") >= COUNT
    by_queue = world.run(
        "printMsgByQueue", "-t", TOPIC, "-a", BROKER, "-i", sent["queueId"], "-p", "true", "-d", "true"
    )
    assert str(sent["msgId"]) in by_queue


def test_a_trace_is_found(world: World) -> None:
    sent: list[str] = []

    def traced() -> str | None:
        """The tool may end before the trace of its send is out: another one is sent then."""
        sent.append(rows(world.run("sendMessage", "-t", TOPIC, "-p", "traced", "-m", "true"), "#Broker Name")[0][3])
        found = [world.run("queryMsgTraceById", "-i", one) for one in sent[-2:]]
        return next((text for text in found if re.search(r"^Pub ", text, re.MULTILINE)), None)

    (row,) = rows(str(wait_until(traced, 60, "the trace of a send")), "#Type")
    assert (row[0], row[-1]) == ("Pub", "success")


def test_entries_of_a_queue(world: World) -> None:
    printed = world.run("queryCq", "-t", TOPIC, "-q", 0, "-i", 0, "-c", 2, "-g", GROUP)
    assert '"subString":"*"' in printed
    assert re.search(r"^max: \d+, min: 0$", printed, re.MULTILINE)
    entries = re.findall(r"physicOffset=(\d+), physicSize=(\d+), tagsCode=(-?\d+)", printed)
    assert len(entries) == 2
    assert int(entries[0][0]) + int(entries[0][1]) <= int(entries[1][0])


def test_sends_are_timed(world: World) -> None:
    printed = world.run("checkMsgSendRT", "-t", TOPIC, "-a", 3, "-s", 20)
    assert [row[2] for row in rows(printed, "#Broker Name")[:3]] == ["true"] * 3
    assert re.search(r"^Avg RT: \d+\.\d\d$", printed, re.MULTILINE)


# ------------------------------------------------------------------------------------------------------------ export


def test_exports(world: World, tmp_path: Path) -> None:
    for command in ("exportMetadata", "exportConfigs", "exportMetrics"):
        assert "success" in world.run(command, "-c", CLUSTER, "-f", tmp_path), command
    metadata = json.loads((tmp_path / "metadata.json").read_text())
    assert metadata["topicConfigTable"][TOPIC]["writeQueueNums"] == 4
    assert GROUP in metadata["subscriptionGroupTable"]
    configs = json.loads((tmp_path / "configs.json").read_text())
    assert configs["clusterScale"] == {"namesrvSize": 1, "masterBrokerSize": 1, "slaveBrokerSize": 0}
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["evaluateReport"][BROKER]["runtimeVersion"]["rocketmqVersion"] == "V4_9_7"


# ----------------------------------------------------------------------------------------------------------- offsets


def test_offsets_of_an_offline_group(world: World) -> None:
    clone = "mqadmin-clone"
    world.eventually(r"^Diff Total: 0$", "consumerProgress", "-g", GROUP)
    printed = world.run("cloneGroupOffset", "-s", GROUP, "-d", clone, "-t", TOPIC, "-o", "false")
    assert f"clone group offset success. srcGroup[{GROUP}], destGroup=[{clone}], topic[{TOPIC}]" in printed
    reset = world.run("resetOffsetByTime", "-g", clone, "-t", TOPIC, "-s", "now")
    found = rows(reset, "#brokerName")
    assert sorted(row[1] for row in found) == list("0123")
    assert all(row[2] == row[5] for row in found)


def test_offsets_of_an_online_group_are_reset_and_skipped(world: World) -> None:
    """The last one: a client that is told to reset does nothing else for ten seconds."""
    world.eventually(r"^Diff Total: 0$", "consumerProgress", "-g", GROUP)
    skipped = world.run("skipAccumulatedMessage", "-g", GROUP, "-t", TOPIC, "-f", "true")
    ends = {row[1]: row[2] for row in rows(skipped, "#brokerName")}
    assert ends == {row[1]: row[3] for row in rows(world.run("topicStatus", "-t", TOPIC), "#Broker Name")}
    back = world.run("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0", "-f", "true")
    assert {row[1]: row[2] for row in rows(back, "#brokerName")} == dict.fromkeys("0123", "0")
    world.eventually(r"^Diff Total: 0$", "consumerProgress", "-g", GROUP)
