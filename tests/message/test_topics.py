"""Names of topics and groups."""

from __future__ import annotations

import pytest

from orbitmq.errors import MessageIllegal
from orbitmq.message.topics import check_group, check_topic


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
