"""Tag expressions mean what RocketMQ's mean."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.errors import MessageIllegal
from orbitmq.filter.tags import tag_subscription, wants
from tests.support.golden import vectors


@pytest.mark.parametrize("case", vectors()["tag_subscription"], ids=lambda case: repr(case["sub"]))
def test_expressions_compile_as_in_java(case: dict[str, Any]) -> None:
    expected = case["result"]
    if "error" in expected:
        with pytest.raises(MessageIllegal):
            tag_subscription("T", case["sub"])
        return
    found = tag_subscription("T", case["sub"], 7)
    assert found.expression == expected["subString"]
    assert found.tags == frozenset(expected["tagsSet"])
    assert found.codes == frozenset(expected["codeSet"])
    assert (found.topic, found.version, found.expression_type) == ("T", 7, expected["expressionType"])


def test_a_consumer_compares_tags_and_not_their_hashes() -> None:
    subscription = tag_subscription("T", "AaAa || x")
    assert tag_subscription("T", "BBBB").codes < subscription.codes  # the two tags share their hash
    assert wants(subscription, "AaAa")
    assert not wants(subscription, "BBBB")
    assert not wants(subscription, None)
    assert wants(tag_subscription("T", "*"), None)
