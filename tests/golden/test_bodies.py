"""Bodies captured from RocketMQ: each decodes into its declared class and comes out again as Java wrote it."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from orbitmq.message.config import DataVersion, SubscriptionGroup, TopicConfig
from orbitmq.message.javajson import dumps, dumps_pretty, loads
from orbitmq.wire import bodies, bodies_access
from orbitmq.wire.objects import decode, encode, encode_standard, plain
from orbitmq.wire.registration import (
    decode_registration,
    encode_registration,
    registration_crc,
    topic_from_line,
    topic_line,
)
from orbitmq.wire.settings import decode_settings, encode_settings
from tests.support.frames import Frame, all_frames
from tests.support.golden import GOLDEN, vectors

REQUESTS: dict[str, type] = {
    "CHECK_CLIENT_CONFIG": bodies.CheckClientRequest,
    "HEART_BEAT": bodies.HeartbeatData,
    "LOCK_BATCH_MQ": bodies.QueueLockRequest,
    "QUERY_DATA_VERSION": DataVersion,
    "RESET_CONSUMER_CLIENT_OFFSET": bodies.QueueOffsets,
    "UNLOCK_BATCH_MQ": bodies.QueueLockRequest,
    "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP": SubscriptionGroup,
}
RESPONSES: dict[str, type] = {
    "CONSUME_MESSAGE_DIRECTLY": bodies.ConsumeDirectlyResult,
    "GET_ALL_CONSUMER_OFFSET": bodies.ConsumerOffsetTable,
    "GET_ALL_DELAY_OFFSET": bodies.DelayOffsetTable,
    "GET_ALL_PRODUCER_INFO": bodies.ProducerTableInfo,
    "GET_ALL_SUBSCRIPTIONGROUP_CONFIG": bodies.SubscriptionGroupTable,
    "GET_ALL_TOPIC_CONFIG": bodies.TopicTable,
    "GET_ALL_TOPIC_LIST_FROM_NAMESERVER": bodies.TopicList,
    "GET_BROKER_CLUSTER_ACL_CONFIG": bodies_access.AclConfig,
    "GET_BROKER_CLUSTER_INFO": bodies.ClusterInfo,
    "GET_BROKER_CONSUME_STATS": bodies.ConsumeStatsList,
    "GET_BROKER_RUNTIME_INFO": bodies.KVTable,
    "GET_CONSUMER_CONNECTION_LIST": bodies.ConsumerConnection,
    "GET_CONSUMER_LIST_BY_GROUP": bodies.ConsumerIdList,
    "GET_CONSUMER_RUNNING_INFO": bodies.ConsumerRunningInfo,
    "GET_CONSUMER_STATUS_FROM_CLIENT": bodies.ConsumerStatus,
    "GET_CONSUME_STATS": bodies.ConsumeStats,
    "GET_HAS_UNIT_SUB_TOPIC_LIST": bodies.TopicList,
    "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST": bodies.TopicList,
    "GET_KVLIST_BY_NAMESPACE": bodies.KVTable,
    "GET_PRODUCER_CONNECTION_LIST": bodies.ProducerConnection,
    "GET_ROUTEINFO_BY_TOPIC": bodies.TopicRouteData,
    "GET_SYSTEM_TOPIC_LIST_FROM_BROKER": bodies.TopicList,
    "GET_SYSTEM_TOPIC_LIST_FROM_NS": bodies.TopicList,
    "GET_TOPICS_BY_CLUSTER": bodies.TopicList,
    "GET_TOPIC_STATS_INFO": bodies.TopicStatsTable,
    "GET_UNIT_TOPIC_LIST": bodies.TopicList,
    "INVOKE_BROKER_TO_GET_CONSUMER_STATUS": bodies.ConsumerStatus,
    "INVOKE_BROKER_TO_RESET_OFFSET": bodies.QueueOffsets,
    "LOCK_BATCH_MQ": bodies.LockedQueues,
    "QUERY_CONSUME_QUEUE": bodies.ConsumeQueueEntries,
    "QUERY_CONSUME_TIME_SPAN": bodies.ConsumeTimeSpans,
    "QUERY_CORRECTION_OFFSET": bodies.CorrectionOffsets,
    "QUERY_DATA_VERSION": DataVersion,
    "QUERY_TOPIC_CONSUME_BY_WHO": bodies.GroupList,
    "REGISTER_BROKER": bodies.KVTable,
    "VIEW_BROKER_STATS_DATA": bodies.BrokerStatsData,
}
MESSAGES = {  # bodies that are message units or message contents, tested with the message room
    "CHECK_TRANSACTION_STATE",
    "CONSUME_MESSAGE_DIRECTLY",
    "LITE_PULL_MESSAGE",
    "PULL_MESSAGE",
    "PUSH_REPLY_MESSAGE_TO_CLIENT",
    "QUERY_MESSAGE",
    "SEND_BATCH_MESSAGE",
    "SEND_MESSAGE",
    "SEND_MESSAGE_V2",
    "SEND_REPLY_MESSAGE",
    "SEND_REPLY_MESSAGE_V2",
    "VIEW_MESSAGE_BY_ID",
}
SETTINGS = {"GET_BROKER_CONFIG", "GET_NAMESRV_CONFIG", "UPDATE_BROKER_CONFIG", "UPDATE_NAMESRV_CONFIG"}
MEMBERS_OF_5 = {  # members that 5.3.3 adds and that orbitmq does not keep
    "attributes",
    "enableActingMaster",
    "heartbeatFingerprint",
    "mappingDataVersion",
    "onlyThisBroker",
    "stateVersion",
    "topicQueueMappingDetailMap",
    "topicQueueMappingInfoMap",
    "withoutSub",
}
SETS = {"codeSet", "tagsSet"}
TIME_TEXTS = {"consumeTimeStampStr", "maxTimeStampStr", "minTimeStampStr"}  # a member beside each holds the number


def with_body(is_response: bool, name: str) -> list[Frame]:
    return [f for f in all_frames() if f.row["body_len"] and f.is_response == is_response and f.name == name]


def without(value: Any, names: set[str]) -> Any:
    """The value without these members, at any depth; what is a set in Java is sorted, its order means nothing."""
    if isinstance(value, dict):
        kept = {key: without(content, names) for key, content in value.items() if key not in names}
        return {key: sorted(content) if key in SETS else content for key, content in kept.items()}
    return [without(item, names) for item in value] if isinstance(value, list) else value


def meaning(text: bytes) -> Any:
    """A read JSON value without what orbitmq drops on purpose."""
    return without(loads(text), MEMBERS_OF_5 | TIME_TEXTS)


CASES = [(False, name, kind) for name, kind in REQUESTS.items()] + [(True, n, kind) for n, kind in RESPONSES.items()]


@pytest.mark.parametrize(
    ("is_response", "name", "kind"), CASES, ids=[f"{n}-{'response' if r else 'request'}" for r, n, _ in CASES]
)
def test_body_comes_out_as_java_wrote_it(is_response: bool, name: str, kind: type) -> None:
    captured = with_body(is_response, name)
    assert captured
    for frame in captured:
        body = decode(kind, frame.body)
        standard = b'"brokerAddrs":{"' in frame.body
        text = encode_standard(body) if standard else encode(body)
        assert decode(kind, text) == body, frame
        assert meaning(text) == meaning(frame.body), frame
        if not any(f'"{member}":'.encode() in frame.body for member in MEMBERS_OF_5 | TIME_TEXTS):
            assert dumps(without(loads(text), set())) == dumps(without(loads(frame.body), set())), frame
            assert len(text) == len(frame.body), frame


def test_every_captured_body_has_a_declared_form() -> None:
    requests = {f.name for f in all_frames() if f.row["body_len"] and not f.is_response}
    responses = {f.name for f in all_frames() if f.row["body_len"] and f.is_response}
    assert requests - REQUESTS.keys() - MESSAGES - SETTINGS == {"REGISTER_BROKER"}
    assert responses - RESPONSES.keys() - MESSAGES - SETTINGS == set()


def test_registration_comes_out_as_java_wrote_it() -> None:
    captured = with_body(False, "REGISTER_BROKER")
    forms = set()
    for frame in captured:
        compressed = frame.row["ext"]["compressed"] == "true"
        registration = decode_registration(frame.body, compressed=compressed)
        again = encode_registration(registration, compressed=compressed)
        assert decode_registration(again, compressed=compressed) == registration, frame
        if compressed:  # another zlib may pack other bytes
            assert zlib.decompress(again) == zlib.decompress(frame.body), frame
        else:
            assert meaning(again) == meaning(frame.body), frame
        assert frame.row["ext"].get("bodyCrc32") in (None, str(registration_crc(frame.body))), frame
        forms.add(compressed)
    assert forms == {False, True}


def test_registration_forms_agree_with_javas_vectors() -> None:
    for vector in vectors()["register_broker_body"]:
        plain, packed = bytes.fromhex(vector["plain"]), bytes.fromhex(vector["compressed"])
        registration = decode_registration(plain)
        assert decode_registration(packed, compressed=True) == registration
        assert encode_registration(registration) == plain
        assert zlib.decompress(encode_registration(registration, compressed=True)) == zlib.decompress(packed)
        assert registration_crc(packed) == vector["crc32compressed"]
        assert registration.filter_servers == vector["filterServers"]
        assert registration.topic_table.data_version == decode(DataVersion, encode(vector["dataVersion"]))


def test_topic_lines_agree_with_javas_vectors() -> None:
    for vector in vectors()["topic_config_encode"]:
        config = topic_from_line(vector["encoded"])
        assert topic_line(config) == vector["encoded"]
        assert decode(TopicConfig, vector["json"]) == config
        assert encode(config).decode() == vector["json"]


def test_settings_are_read_as_java_reads_properties() -> None:
    for vector in vectors()["string2properties"]:
        assert decode_settings(vector["text"].encode()) == vector["props"], vector


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_settings_come_out_as_java_wrote_them(name: str) -> None:
    for frame in with_body(name.startswith("GET"), name):
        assert encode_settings(decode_settings(frame.body)) == frame.body, frame


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("broker_topics.json", bodies.TopicTable),
        ("broker_subscriptionGroup.json", bodies.SubscriptionGroupTable),
        ("broker_consumerOffset.json", bodies.ConsumerOffsetTable),
        ("broker_delayOffset.json", bodies.DelayOffsetTable),
    ],
)
def test_files_of_a_java_broker_come_out_as_java_wrote_them(file: str, kind: type) -> None:
    text = (GOLDEN / "configs" / file).read_text(encoding="utf-8")
    assert dumps_pretty(plain(decode(kind, text))) == text


def test_route_vectors_decode() -> None:
    for vector in vectors()["route_to_queues"]:
        route = decode(bodies.TopicRouteData, vector["routeJson"])
        assert encode(route).decode() == vector["routeJson"]
