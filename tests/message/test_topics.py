"""Names of topics and groups."""

from __future__ import annotations

import pytest

from orbitmq.errors import MessageIllegal
from orbitmq.message.topics import check_consumer_group, check_group, check_retry_topic, check_topic, retry_topic


@pytest.mark.parametrize("name", [None, "", "  ", "a b", "a\n", "topic,", "t" * 128, "é"])
def test_illegal_topics(name: str | None) -> None:
    with pytest.raises(MessageIllegal):
        check_topic(name)


@pytest.mark.parametrize("name", ["T", "%RETRY%g", "a|b", "t" * 127, "A_b-9"])
def test_legal_topics(name: str) -> None:
    check_topic(name)


def test_a_group_may_be_longer_than_a_topic() -> None:
    check_group("g" * 255)
    with pytest.raises(MessageIllegal, match="255"):
        check_group("g" * 256)


def test_a_consumer_group_is_as_long_as_its_retry_topic_lets_it() -> None:
    check_consumer_group("g" * 120)
    check_topic(retry_topic("g" * 120))
    with pytest.raises(
        MessageIllegal, match=r"group 'g{121}' has 121 characters, at most 120 are allowed, a namespace"
    ):
        check_consumer_group("g" * 121)
    with pytest.raises(MessageIllegal):
        check_topic(retry_topic("g" * 121))


@pytest.mark.parametrize("name", ["東" * 41, "a/b", "a\x00b", "a\x01b", "a\x02b", "a\ud800"])
def test_a_group_that_could_have_no_retry_topic_is_refused(name: str) -> None:
    with pytest.raises(MessageIllegal):
        check_retry_topic(name)


@pytest.mark.parametrize("name", ["東" * 40, "a.b", "a b", "a%b"])
def test_names_that_other_clients_give_their_groups_are_let_through(name: str) -> None:
    check_retry_topic(name)
