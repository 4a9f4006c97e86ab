"""A request names who waits, its reply names the request."""

from __future__ import annotations

import pytest

from orbitmq.client.core.replies import create_reply_message, reply_message, reply_to_client, request_message
from orbitmq.errors import ClientError
from orbitmq.message.compression import COMPRESSION_FLAGS, ZLIB, compress
from orbitmq.message.flags import COMPRESSED
from orbitmq.message.model import Message, MessageExt
from orbitmq.message.properties import encode_properties
from orbitmq.wire.headers_reply import PushReplyMessageHeader

WAITING = {"CORRELATION_ID": "4711", "REPLY_TO_CLIENT": "anna", "TTL": "3000"}


def test_a_request_is_the_message_and_who_waits() -> None:
    message = Message("T", b"body", flag=7, tags="TagA", properties={"a": "b"})
    asked = request_message(message, "4711", "anna", 3000)
    assert (asked.topic, asked.body, asked.flag) == ("T", b"body", 7)
    assert asked.properties == {"TAGS": "TagA", "WAIT": "true", "a": "b", **WAITING}
    assert message.properties == {"TAGS": "TagA", "WAIT": "true", "a": "b"}, "the caller's message stays as it is"
    assert (reply_to_client(asked), reply_to_client(message)) == ("anna", None)


def test_a_reply_goes_to_the_cluster_of_its_request() -> None:
    request = MessageExt("T", b"body", properties={"CLUSTER": "c1", "a": "b", **WAITING})
    reply = create_reply_message(request, b"yes")
    assert (reply.topic, reply.body) == ("c1_REPLY_TOPIC", b"yes")
    assert reply.properties == {"WAIT": "true", "MSG_TYPE": "reply", **WAITING}


@pytest.mark.parametrize("missing", ["CLUSTER", "REPLY_TO_CLIENT"])
def test_what_asks_for_no_reply_gets_none(missing: str) -> None:
    properties = {"CLUSTER": "c1", **WAITING}
    del properties[missing]
    with pytest.raises(ClientError) as caught:
        create_reply_message(MessageExt("T", b"body", properties=properties), b"yes")
    assert caught.value.code == 10007


def test_a_reply_arrives_unpacked_and_with_its_time() -> None:
    flag = COMPRESSED | COMPRESSION_FLAGS[ZLIB]
    properties = encode_properties({"UNIQ_KEY": "AB", **WAITING})
    header = PushReplyMessageHeader(
        "g", "c1_REPLY_TOPIC", "TBW102", 4, 1, flag, 5, 7, "10.0.0.9:1", "10.0.0.1:10911", 6, properties
    )
    found = reply_message(header, compress(b"yes" * 2000, ZLIB, 5), 99)
    assert (found.body, found.topic, found.flag, found.queue_id) == (b"yes" * 2000, "c1_REPLY_TOPIC", 7, 1)
    assert found.properties == {"UNIQ_KEY": "AB", "ARRIVE_TIME": "99", **WAITING}
    assert (found.msg_id, found.born_host, found.store_timestamp) == ("AB", "10.0.0.9:1", 6)
