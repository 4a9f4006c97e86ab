"""The packed form of a broker's registration withstands what a peer may send instead of it."""

from __future__ import annotations

import re
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from orbitmq.errors import BodyError
from orbitmq.message.config import DataVersion, TopicConfig
from orbitmq.wire import registration
from orbitmq.wire.bodies import BrokerRegistration, TopicTable
from orbitmq.wire.registration import (
    TOPICS_MAX,
    decode_head,
    decode_registration,
    encode_registration,
    topic_from_line,
)

NAMES = st.from_regex(r"[%|a-zA-Z0-9_-]{1,20}", fullmatch=True)
COUNTS = st.integers(0, 1 << 31)
CONFIGS = st.builds(
    TopicConfig, NAMES, COUNTS, COUNTS, st.integers(0, 15), st.sampled_from(["SINGLE_TAG", "MULTI_TAG"])
)


@given(st.lists(CONFIGS, max_size=5), st.lists(NAMES, max_size=2), COUNTS)
def test_packed_registration_is_read_back_equal(configs: list[TopicConfig], filters: list[str], counter: int) -> None:
    table = TopicTable(DataVersion(counter, 1), {config.name: config for config in configs})
    written = BrokerRegistration(filters, table)
    assert decode_registration(encode_registration(written, compressed=True), compressed=True) == written


@given(st.lists(CONFIGS, max_size=5), st.lists(NAMES, max_size=2), COUNTS, st.booleans())
def test_the_head_is_all_but_the_topics(
    configs: list[TopicConfig], filters: list[str], counter: int, compressed: bool
) -> None:
    version = DataVersion(counter, 1)
    written = BrokerRegistration(filters, TopicTable(version, {config.name: config for config in configs}))
    head = decode_head(encode_registration(written, compressed=compressed), compressed=compressed)
    assert head == BrokerRegistration(filters, TopicTable(version))


@given(CONFIGS, st.booleans(), st.booleans())
def test_a_registration_beyond_strict_json_is_read_too(config: TopicConfig, order: bool, quoted: bool) -> None:
    """Quoted numbers, bare names: what Java's reader takes."""
    config = structs.replace(config, order=order, sys_flag=1)
    written = BrokerRegistration([], TopicTable(DataVersion(1, 1), {config.name: config}))
    body = encode_registration(written)
    lenient = re.sub(rb'"perm":(\d+)', rb'"perm":"\1"' if quoted else rb"perm:\1", body)
    assert decode_registration(lenient) == decode_registration(body) == written


def test_broker_without_body_has_no_topics() -> None:
    assert decode_registration(b"") == BrokerRegistration([], TopicTable(DataVersion(0, 0), {}))


def test_attributes_of_5_are_ignored() -> None:
    config = topic_from_line('T1 8 4 6 SINGLE_TAG {"+message.type":"NORMAL"}')
    assert config == TopicConfig("T1", 8, 4, 6, "SINGLE_TAG")


@pytest.mark.parametrize("line", ["", "T1", "T1 8 8 6", "T1 eight 8 6 SINGLE_TAG"])
def test_incomplete_topic_line_is_refused(line: str) -> None:
    with pytest.raises(BodyError):
        topic_from_line(line)


def test_small_body_cannot_unfold_into_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "INFLATED_SIZE_MAX", 1000)
    with pytest.raises(BodyError, match="1000 bytes"):
        decode_registration(zlib.compress(bytes(1001)), compressed=True)


def test_empty_topics_are_not_counted_to_the_end_of_memory() -> None:
    body = zlib.compress(b"\0\0\0\x02{}" + (TOPICS_MAX + 1).to_bytes(4, "big") + bytes(100))
    assert decode_head(body, compressed=True) is None
    with pytest.raises(BodyError, match=f"at most {TOPICS_MAX}"):
        decode_registration(body, compressed=True)


@pytest.mark.parametrize(
    "body",
    [
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"a\xc1":{"topicName":"a"}}}}',
        b'{"filterServerList":["\xec"]}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"a":{"topicName":"a","perm":%d}}}}' % (1 << 63),
        b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":%d,"timestamp":1}}}' % (1 << 63),
    ],
)
def test_plain_registration_with_what_java_cannot_hold_is_refused(body: bytes) -> None:
    decode_head(body)
    with pytest.raises(BodyError):
        decode_registration(body)


@given(st.binary(max_size=80))
def test_any_unpacked_bytes_give_a_registration_or_a_body_error(data: bytes) -> None:
    for body in (data, zlib.compress(data), zlib.compress(data)[:-3]):
        with suppress(BodyError):
            decode_registration(body, compressed=True)


def test_a_registration_that_nests_too_deep_is_refused() -> None:
    body = b'{"filterServerList":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert decode_head(body) is None
    with pytest.raises(BodyError):
        decode_registration(body)
