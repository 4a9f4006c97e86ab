"""What a command says beyond its frame: numbers, flags, languages, and Java's tolerance for odd headers."""

from __future__ import annotations

import itertools

import pytest

from orbitmq.errors import HeaderError
from orbitmq.wire import command as command_module
from orbitmq.wire.codes import VERSION, SerializeType
from orbitmq.wire.command import Command, next_opaque, request
from orbitmq.wire.header_codec import decode_binary_header, decode_json_header, encode_binary_header, encode_json_header
from orbitmq.wire.headers import GetConsumerListByGroupHeader, PullMessageHeader, SendMessageV2Header
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.text_map import to_ext


def test_numbers_wrap_into_the_negative_at_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_module, "_opaque_source", itertools.count((1 << 31) - 1))
    assert [next_opaque(), next_opaque()] == [(1 << 31) - 1, -(1 << 31)]


def test_request_carries_the_version_clients_switch_features_on_by() -> None:
    command = request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupHeader("g"), oneway=True)
    assert (command.version, command.language, command.is_oneway, command.is_response) == (VERSION, "JAVA", True, False)
    assert command.ext == {"consumerGroup": "g"}


@pytest.mark.parametrize(("text", "value"), [("true", True), ("1", False), ("0", False)])
@pytest.mark.parametrize("typed", [True, False])
def test_a_batch_is_one_that_says_true(text: str, value: bool, typed: bool) -> None:
    """Clients in C++ say 1. RocketMQ stores the whole as one message then, and so it has to be."""
    ext = {**to_ext(SendMessageV2Header("g", "t", "TBW102", 4, 1, 0, 0, 0)), "m": text}
    found = decode_json_header(encode_json_header(Command(code=310, ext=ext, opaque=1)), typed=typed)
    header = found.header(SendMessageV2Header)
    assert (header.batch, header.queue_id) == (value, 1)


def test_json_header_is_javas_text() -> None:
    command = Command(code=11, ext={"queueId": "0", "topic": "T1"}, opaque=9, version=407)
    assert encode_json_header(command) == (
        b'{"code":11,"extFields":{"queueId":"0","topic":"T1"},"flag":0,"language":"JAVA","opaque":9,'
        b'"serializeTypeCurrentRPC":"JSON","version":407}'
    )


def test_no_fields_and_an_empty_set_of_fields_are_not_the_same() -> None:
    for ext in (None, {}):
        text = encode_json_header(Command(code=34, ext=ext, opaque=1))
        assert decode_json_header(text).ext == ext


def test_code_beyond_16_bits_loses_its_high_part_in_a_binary_header() -> None:
    command = Command(code=200_050, opaque=1, serialize_type=SerializeType.ROCKETMQ)
    assert decode_binary_header(encode_binary_header(command)).code == 3442


@pytest.mark.parametrize(("written", "language"), [("12", "RUST"), ('"GO"', "GO"), ("99", "OTHER"), ("-1", "OTHER")])
def test_language_may_be_an_ordinal(written: str, language: str) -> None:
    text = '{"code":34,"opaque":1,"language":' + written + "}"
    assert decode_json_header(text.encode()).language == language


def test_field_values_of_any_kind_become_texts() -> None:
    text = b'{"code":34,"opaque":1,"extFields":{"a":1,"b":true,"c":null,"d":{"x":1}}}'
    assert decode_json_header(text).ext == {"a": "1", "b": "true", "d": '{"x":1}'}


def test_command_without_a_number_gets_one() -> None:
    assert isinstance(decode_json_header(b'{"code":34}').opaque, int)


@pytest.mark.parametrize(
    "text",
    [
        b'{"extFields":{"topic":"T"},"code":11,"opaque":1}',
        b'{ "code" : 11, "opaque": 1, "extFields":{"topic":"T"}}',
        b'{"code":11,"opaque":1,"extFields":{"topic":"T","queueId":"x"}}',
        b'{"code":11,"flag":1,"opaque":1,"extFields":{"topic":"T"}}',
        b'{"code":1100,"opaque":1,"extFields":{"topic":"T"}}',
    ],
)
def test_header_that_is_not_the_usual_pull_keeps_its_fields_as_texts(text: bytes) -> None:
    command = decode_json_header(text)
    assert command.typed is None
    assert command.ext is not None
    assert command.ext["topic"] == "T"
    with pytest.raises(HeaderError, match="PullMessage"):
        command.header(PullMessageHeader)


@pytest.mark.parametrize("typed", [True, False])
def test_a_header_that_nests_too_deep_is_no_header(typed: bool) -> None:
    """A decoder that gives up before the nesting ends must not take the connection's loop with it."""
    for depth in (100, 10_000, 100_000):
        with pytest.raises(HeaderError):
            decode_json_header(b'{"code":10,"extFields":' + b'{"a":' * depth + b"1" + b"}" * (depth + 1), typed=typed)
