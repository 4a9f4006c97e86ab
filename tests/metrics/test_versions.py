"""Version numbers in words, as RocketMQ's own table of them has it."""

from __future__ import annotations

import pytest

from orbitmq.metrics.versions import version_name


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (79, "79"), (212, "212"), (213, "v4_0_0"), (393, "v4_9_0"), (406, "v4_9_7_snapshot"), (407, "v4_9_7"),
        (413, "v5_0_0"), (479, "v5_3_3"), (611, "v5_9_9"),
    ],
)  # fmt: skip
def test_a_version_has_its_name(number: int, name: str) -> None:
    assert version_name(number) == name
