"""The classes made from the table: presence, oneofs, maps, and numbers and times out of the ordinary."""

from __future__ import annotations

import subprocess
import sys

import pytest
from google.protobuf import descriptor_pool
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.wire.v2 import messages
from orbitmq.wire.v2.enums import Code
from orbitmq.wire.v2.messages import (
    FIRST_MS,
    LAST_MS,
    Message,
    OffsetOption,
    Settings,
    message_class,
    milliseconds_of,
    set_time,
    status,
)
from orbitmq.wire.v2.methods import METHODS


def test_a_field_with_presence_tells_absent_from_default() -> None:
    settings = Settings()
    assert not settings.HasField("client_type")
    settings.client_type = 0
    assert settings.HasField("client_type")
    assert Settings.FromString(settings.SerializeToString()).HasField("client_type")


def test_one_member_of_a_oneof_is_set() -> None:
    settings = Settings()
    settings.publishing.max_body_size = 1
    settings.subscription.fifo = True
    assert settings.WhichOneof("pub_sub") == "subscription"
    assert OffsetOption(tail_n=3).WhichOneof("offset_type") == "tail_n"


def test_unknown_numbers_of_enums_pass_through() -> None:
    assert Settings.FromString(Settings(client_type=77).SerializeToString()).client_type == 77


def test_a_map_and_nested_times_survive_the_wire() -> None:
    message = Message(user_properties={"a": "1", "b": ""}, body=b"\0")
    set_time(message.system_properties.born_timestamp, 1_700_000_000_123)
    again = Message.FromString(message.SerializeToString())
    assert dict(again.user_properties) == {"a": "1", "b": ""}
    assert milliseconds_of(again.system_properties.born_timestamp) == 1_700_000_000_123
    assert again == message


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_any_stored_number_becomes_a_valid_time(milliseconds: int) -> None:
    timestamp = Message().system_properties.born_timestamp
    set_time(timestamp, milliseconds)
    assert milliseconds_of(timestamp) == min(max(milliseconds, FIRST_MS), LAST_MS)


def test_a_status_says_what_its_code_means() -> None:
    assert (status(Code.OK).code, status(Code.OK).message) == (20000, "OK")
    assert status(Code.FORBIDDEN, "no readable queue").message == "no readable queue"


def test_every_method_names_messages() -> None:
    assert len(METHODS) == 17
    for path, method in METHODS.items():
        assert path == method.path
        assert message_class(method.request).DESCRIPTOR.name == method.request
        assert message_class(method.response).DESCRIPTOR.name == method.response


def test_unknown_names_cannot_be_imported() -> None:
    with pytest.raises(AttributeError, match="NoSuchMessage"):
        _ = messages.NoSuchMessage
    assert Message is messages.Message


def test_the_default_pool_stays_free_for_the_official_client() -> None:
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("apache.rocketmq.v2.Message")


def test_names_and_numbers_need_no_protobuf() -> None:
    program = "import sys, orbitmq.wire.v2.enums, orbitmq.wire.v2.methods; sys.exit('google.protobuf' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_codes_are_those_that_clients_know() -> None:
    assert len(Code) == 54
    assert Code(40014) is Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
