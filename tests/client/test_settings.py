"""A setting is checked where it is given, and every one is declared with all that a reader wants to know."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.client import LitePullConsumer, LitePullSettings, Producer, ProducerSettings, PushConsumer, PushSettings
from orbitmq.client.settings import ClientSettings, complete, options_of
from orbitmq.errors import ConfigurationError, MessageIllegal
from orbitmq.runtime.options import as_text

KINDS: list[type[Any]] = [ProducerSettings, PushSettings, LitePullSettings]


def test_what_is_not_given_has_its_default() -> None:
    settings = complete(ProducerSettings, {"retry_times": 5})
    assert settings["retry_times"] == 5
    assert settings["send_timeout_ms"] == 3000
    assert set(settings) == set(options_of(ProducerSettings))


@pytest.mark.parametrize("kind", KINDS)
def test_every_setting_is_explained_and_its_default_allowed(kind: type[Any]) -> None:
    for name, option in options_of(kind).items():
        assert option.key, name
        assert option.text.endswith("."), name
        assert option.parse(as_text(option.default)) == option.default, name
        assert not name.endswith("_ms") or option.unit == "ms", name


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"retry_times": -1}, "retry_times: value -1 is not allowed; use a whole number from 0"),
        ({"retry_times": "2"}, "retry_times: value '2'"),
        ({"retry_times": True}, "retry_times: value True"),
        ({"compress_type": "RAR"}, "one of ZLIB, LZ4, ZSTD"),
        ({"retry_response_codes": {"busy"}}, "use whole numbers"),
        ({"retries": 2}, "ProducerSettings has no setting 'retries'"),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Producer("g", "h:1", **given)


@pytest.mark.parametrize("client", [Producer, PushConsumer, LitePullConsumer])
@pytest.mark.parametrize("group", ["", " ", "a b", "DEFAULT_PRODUCER", "DEFAULT_CONSUMER", "x" * 256])
def test_a_group_must_be_named_properly(client: type[Any], group: str) -> None:
    forbidden = "DEFAULT_PRODUCER" if client is Producer else "DEFAULT_CONSUMER"
    if group.startswith("DEFAULT") and group != forbidden:
        client(group)
        return
    with pytest.raises(MessageIllegal):
        client(group)


def test_base_settings_are_part_of_all() -> None:
    for kind in KINDS:
        assert set(options_of(ClientSettings)) < set(options_of(kind))


def test_a_start_time_is_a_time_or_its_text() -> None:
    with pytest.raises(ConfigurationError, match="use yyyyMMddHHmmss"):
        PushConsumer("g", consume_timestamp="yesterday")
    PushConsumer("g", consume_timestamp="20260102030405")


def test_what_is_not_given_may_stand_in_the_environment() -> None:
    environment = {"ORBITMQ_TLS": "true", "ORBITMQ_INSTANCE_NAME": "mine", "ORBITMQ_RETRY_TIMES": "9"}
    settings = complete(ProducerSettings, {"instance_name": "given"}, environment)
    assert (settings["tls"], settings["instance_name"], settings["retry_times"]) == (True, "given", 2)
    with pytest.raises(ConfigurationError, match="ORBITMQ_TLS: value 'maybe' is not allowed; use true or false"):
        complete(ProducerSettings, {}, {"ORBITMQ_TLS": "maybe"})
