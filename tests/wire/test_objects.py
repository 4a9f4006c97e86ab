"""Reading is as lenient as Java's, writing gives Java's text, and bad input gives nothing but BodyError."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import BodyError
from orbitmq.message.config import DataVersion, SubscriptionData, TopicConfig
from orbitmq.message.model import MessageQueue
from orbitmq.wire import bodies
from orbitmq.wire.objects import decode, encode, encode_standard, from_plain

KINDS = [DataVersion, TopicConfig, SubscriptionData, MessageQueue] + [
    kind for kind in vars(bodies).values() if isinstance(kind, type) and kind.__module__ == bodies.__name__
]
QUEUE = MessageQueue("T", "broker-a", 1)
QUEUE_TEXT = '{"brokerName":"broker-a","queueId":1,"topic":"T"}'


@pytest.mark.parametrize(
    "text",
    [
        '{"offsetTable":{' + QUEUE_TEXT + ":10}}",
        '{"offsetTable":{"' + QUEUE_TEXT.replace('"', '\\"') + '":10}}',
        "{'offsetTable':{{brokerName:'broker-a',queueId:'1',topic:\"T\"}:'10'}}",
        '{"unknown":[{"deep":{}}],"offsetTable":{' + QUEUE_TEXT + ":10,},}",
    ],
)
def test_every_spelling_java_accepts_is_read(text: str) -> None:
    assert decode(bodies.QueueOffsets, text) == bodies.QueueOffsets({QUEUE: 10})


@pytest.mark.parametrize("text", ['{"offsetTable":{1:5}}', '{"offsetTable":{"1":5}}', '{"offsetTable":{"1":"5"}}'])
def test_number_keys_may_be_quoted(text: str) -> None:
    assert decode(bodies.DelayOffsetTable, text).offset_table == {1: 5}


@pytest.mark.parametrize(
    ("written", "model"),
    [
        ('"BROADCASTING"', bodies.MessageModel.BROADCASTING),
        ("0", bodies.MessageModel.BROADCASTING),
        ("1", bodies.MessageModel.CLUSTERING),
        ('"NO_SUCH_MODEL"', None),
        ("7", None),
        ("null", None),
    ],
)
def test_enumerations_come_by_name_or_ordinal(written: str, model: bodies.MessageModel | None) -> None:
    assert decode(bodies.ConsumerData, '{"groupName":"g","messageModel":' + written + "}").message_model is model


def test_missing_and_null_members_keep_their_default() -> None:
    assert decode(SubscriptionData, '{"topic":"T","expressionType":null}') == SubscriptionData("T")
    assert decode(bodies.TopicRouteData, "{}") == bodies.TopicRouteData()


def test_a_second_mention_of_an_object_is_resolved() -> None:
    text = '{"mqSet":[' + QUEUE_TEXT + ',{"$ref":"$.mqSet[0]"}]}'
    assert decode(bodies.QueueLockRequest, text).mq_set == [QUEUE, QUEUE]


def test_members_of_5_are_ignored() -> None:
    text = '{"clientID":"c","consumerDataSet":[],"heartbeatFingerprint":0,"producerDataSet":[],"withoutSub":false}'
    assert decode(bodies.HeartbeatData, text) == bodies.HeartbeatData(client_id="c")


def test_null_members_are_not_written_and_empty_ones_are() -> None:
    assert encode(bodies.TopicList()) == b'{"topicList":[]}'
    assert encode(bodies.TopicRouteData()) == b'{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}'


def test_numbers_and_objects_stand_bare_as_keys() -> None:
    assert encode(bodies.DelayOffsetTable(offset_table={1: 5})) == b'{"offsetTable":{1:5}}'
    assert encode(bodies.QueueOffsets({QUEUE: 5})).decode() == '{"offsetTable":{' + QUEUE_TEXT + ":5}}"


def test_standard_json_quotes_and_sorts_keys_and_is_ascii() -> None:
    route = bodies.TopicRouteData(
        broker_datas=[bodies.BrokerData("b-ü", "c", {1: "10.0.0.2:10911", 0: "10.0.0.1:10911"})]
    )
    assert encode_standard(route) == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"brokerName":"b-\\u00fc",'
        b'"cluster":"c"}],"filterServerTable":{},"queueDatas":[]}'
    )


def test_sets_are_written_in_one_order() -> None:
    tags = frozenset({"b", "a", "c"})
    assert b'"tagsSet":["a","b","c"]' in encode(SubscriptionData("T", tags=tags))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (DataVersion, ""),
        (DataVersion, "[]"),
        (DataVersion, "{"),
        (DataVersion, '{"counter":[]}'),
        (DataVersion, '{"counter":"seven"}'),
        (DataVersion, '{"counter":99999999999999999999}'),
        (MessageQueue, '{"topic":"T"}'),
        (bodies.QueueOffsets, '{"offsetTable":[1]}'),
        (bodies.QueueOffsets, '{"offsetTable":{"T":1}}'),
        (bodies.TopicList, '{"topicList":{}}'),
        (bodies.ConsumeStats, '{"consumeTps":"fast"}'),
        (bodies.ConsumerData, '{"groupName":"g","unitMode":[]}'),
    ],
)
def test_what_is_not_of_the_declared_form_is_refused(kind: type, text: str) -> None:
    with pytest.raises(BodyError):
        decode(kind, text)


@given(st.sampled_from(KINDS), st.binary(max_size=60))
def test_any_bytes_give_an_object_or_a_body_error(kind: type, data: bytes) -> None:
    with suppress(BodyError):
        decode(kind, data)


NAMES = st.sampled_from(["topic", "offsetTable", "queueId", "brokerName", "table", "topicList", "groupName", "mqSet"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(st.sampled_from(KINDS), VALUES)
def test_any_json_value_gives_an_object_or_a_body_error(kind: type, value: Any) -> None:
    with suppress(BodyError):
        from_plain(kind, value)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
QUEUES = st.builds(MessageQueue, TEXTS, TEXTS, st.integers(0, 1 << 31))
SUBSCRIPTIONS = st.builds(
    SubscriptionData, TEXTS, TEXTS, st.frozensets(TEXTS), st.frozensets(INT64), INT64, TEXTS, st.booleans()
)
CONSUMERS = st.builds(
    bodies.ConsumerData,
    TEXTS,
    st.none() | st.sampled_from(bodies.ConsumeType),
    st.none() | st.sampled_from(bodies.MessageModel),
    st.none() | st.sampled_from(bodies.ConsumeFromWhere),
    st.lists(SUBSCRIPTIONS, max_size=3),
    st.booleans(),
)
OBJECTS = st.one_of(
    st.builds(bodies.HeartbeatData, TEXTS, st.lists(CONSUMERS, max_size=2)),
    st.builds(bodies.QueueOffsets, st.dictionaries(QUEUES, INT64, max_size=4)),
    st.builds(bodies.ConsumerOffsetTable, st.none(), st.dictionaries(TEXTS, st.dictionaries(INT64, INT64), max_size=3)),
    st.builds(bodies.ConsumeStats, st.floats(0, 1e9), st.dictionaries(QUEUES, st.builds(bodies.QueueProgress, INT64))),
    st.builds(bodies.QueueLockRequest, TEXTS, TEXTS, st.lists(QUEUES, max_size=3)),
)


@given(OBJECTS)
def test_what_is_written_is_read_back_equal(value: Any) -> None:
    assert decode(type(value), encode(value)) == value
