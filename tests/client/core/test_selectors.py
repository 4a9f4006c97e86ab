"""What an application says it wants, and what brokers are told."""

from __future__ import annotations

import pytest

from orbitmq.client.core.selectors import MessageSelector, subscription_of
from orbitmq.errors import MessageIllegal
from orbitmq.message.config import SQL92, SubscriptionData
from orbitmq.message.java_hash import string_hash


def test_a_text_and_a_tag_selector_are_tags() -> None:
    told = SubscriptionData("T", "a || b", frozenset("ab"), frozenset(map(string_hash, "ab")), 7)
    assert subscription_of("T", "a || b", 7) == subscription_of("T", MessageSelector.tag("a || b"), 7) == told
    assert subscription_of("T", "*") == SubscriptionData("T")


def test_an_sql_selector_leaves_tags_and_hashes_empty() -> None:
    told = SubscriptionData("T", "a > 5 || b", version=7, expression_type=SQL92)
    assert subscription_of("T", MessageSelector.sql("a > 5 || b"), 7) == told


@pytest.mark.parametrize("expression", ["", "  "])
def test_an_empty_expression_is_refused(expression: str) -> None:
    with pytest.raises(MessageIllegal):
        MessageSelector.sql(expression)
