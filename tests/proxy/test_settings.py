"""Settings in responses: nothing that clients need is missing or zero, and the rest stays as they sent it."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import StatusError
from orbitmq.proxy.settings import DEFAULT_GROUP_BACKOFF, GroupRules, ServerSettings, merged_settings
from orbitmq.wire.v2.enums import ClientType, Code, Language
from orbitmq.wire.v2.messages import Settings, milliseconds_of, set_time

SERVER = ServerSettings()
STEPS_MS = [
    1000, 5000, 10_000, 30_000, *(minutes * 60_000 for minutes in range(1, 11)), 1_200_000, 1_800_000, 3_600_000,
    7_200_000,
]  # fmt: skip


def producer() -> Any:
    settings = Settings(client_type=ClientType.PRODUCER)
    settings.publishing.topics.add(name="Orders")
    settings.user_agent.language = Language.RUST
    settings.request_timeout.seconds = 3
    settings.access_point.addresses.add(host="mq.example.com", port=80)
    return settings


def consumer() -> Any:
    settings = Settings(client_type=ClientType.PUSH_CONSUMER)
    settings.subscription.group.name = "billing"
    settings.subscription.subscriptions.add().topic.name = "Orders"
    return settings


def steps_ms(settings: Any) -> list[int]:
    return [milliseconds_of(step) for step in settings.backoff_policy.customized_backoff.next]


def test_a_producer_gets_backoff_and_limits_and_its_own_words() -> None:
    sent = producer()
    before = sent.SerializeToString()
    merged = merged_settings(sent, None, SERVER)
    assert sent.SerializeToString() == before, "the settings of the client are kept as they were sent"
    backoff = merged.backoff_policy
    assert backoff.max_attempts == 3
    times = backoff.exponential_backoff
    assert (milliseconds_of(times.initial), milliseconds_of(times.max), times.multiplier) == (10, 1000, 2.0)
    assert (merged.publishing.max_body_size, merged.publishing.validate_message_type) == (4194304, True)
    assert merged.HasField("metric")
    assert not merged.metric.on
    for name in ("backoff_policy", "metric"):
        merged.ClearField(name)
    merged.publishing.ClearField("max_body_size")
    merged.publishing.ClearField("validate_message_type")
    assert merged == sent


def test_a_producer_without_topics_is_served() -> None:
    settings = Settings()
    settings.publishing.SetInParent()
    assert merged_settings(settings, None, SERVER).publishing.max_body_size == 4194304


def test_a_consumer_without_configured_group_gets_the_defaults() -> None:
    merged = merged_settings(consumer(), None, SERVER)
    subscription = merged.subscription
    assert subscription.receive_batch_size == 32
    assert milliseconds_of(subscription.long_polling_timeout) == 20_000
    assert subscription.HasField("fifo")
    assert not subscription.fifo
    assert merged.backoff_policy.max_attempts == 17
    assert steps_ms(merged) == STEPS_MS
    assert [entry.topic.name for entry in subscription.subscriptions] == ["Orders"]


def _with_own_values() -> Any:
    settings = consumer()
    settings.subscription.receive_batch_size = 5
    settings.subscription.fifo = True
    set_time(settings.subscription.long_polling_timeout, 30_000)
    settings.backoff_policy.max_attempts = 4
    set_time(settings.backoff_policy.customized_backoff.next.add(), 7)
    return settings


def test_without_configured_group_values_of_the_client_win() -> None:
    merged = merged_settings(_with_own_values(), None, SERVER)
    merged.ClearField("metric")
    assert merged == _with_own_values()


def test_the_configuration_of_the_group_wins_over_the_client() -> None:
    merged = merged_settings(_with_own_values(), GroupRules(retry_max=2, backoff=(100, 200)), SERVER)
    subscription = merged.subscription
    assert (subscription.receive_batch_size, subscription.fifo) == (32, False)
    assert milliseconds_of(subscription.long_polling_timeout) == 20_000
    assert merged.backoff_policy.max_attempts == 3
    assert steps_ms(merged) == [100, 200]


def test_times_of_a_group_may_grow() -> None:
    merged = merged_settings(_with_own_values(), GroupRules(is_fifo=True, backoff=DEFAULT_GROUP_BACKOFF), SERVER)
    assert merged.subscription.fifo
    assert merged.backoff_policy.WhichOneof("strategy") == "exponential_backoff"
    times = merged.backoff_policy.exponential_backoff
    assert (milliseconds_of(times.initial), milliseconds_of(times.max), times.multiplier) == (5_000, 7_200_000, 2.0)


@pytest.mark.parametrize(("retry_max", "attempts"), [(0, 1), (-1, 1), (16, 17), ((1 << 31) - 1, (1 << 31) - 1)])
def test_attempts_are_one_more_than_retries(retry_max: int, attempts: int) -> None:
    merged = merged_settings(consumer(), GroupRules(retry_max=retry_max), SERVER)
    assert merged.backoff_policy.max_attempts == attempts


def test_a_client_that_does_nothing_is_refused() -> None:
    with pytest.raises(StatusError) as raised:
        merged_settings(Settings(client_type=ClientType.PRODUCER), None, SERVER)
    assert raised.value.code == Code.BAD_REQUEST


@given(st.binary(max_size=120), st.none() | st.builds(GroupRules, st.booleans(), st.integers(-9, 99)))
def test_no_field_that_clients_read_is_missing(data: bytes, group: GroupRules | None) -> None:
    try:
        sent = Settings.FromString(data)
        sent.MergeFrom(consumer())
    except DecodeError:
        return
    merged = merged_settings(sent, group, SERVER)
    assert merged.subscription.receive_batch_size > 0
    assert milliseconds_of(merged.subscription.long_polling_timeout) >= 0
    assert merged.subscription.HasField("fifo")
    assert merged.backoff_policy.max_attempts > 0
    assert merged.backoff_policy.WhichOneof("strategy")
