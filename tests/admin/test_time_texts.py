"""Points in time are read as operators write them, and anything else is refused with the forms there are."""

from __future__ import annotations

from datetime import datetime

import pytest

from orbitmq.admin.time_texts import moment_ms
from orbitmq.errors import AdminError

NOW_MS = 1_700_000_000_000
LOCAL_MS = round(datetime(2024, 5, 1, 8, 30, 15).timestamp() * 1000)  # noqa: DTZ001 - local time is meant


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("now", NOW_MS),
        ("1650000000000", 1_650_000_000_000),
        ("0", 0),
        ("@2h", NOW_MS - 7_200_000),
        ("2h", NOW_MS - 7_200_000),
        ("@500ms", NOW_MS - 500),
        ("@3d", NOW_MS - 259_200_000),
        ("2024-05-01T08:00:00Z", 1_714_550_400_000),
        ("2024-05-01T10:00:00+02:00", 1_714_550_400_000),
        ("2024-05-01T08:30:15", LOCAL_MS),
        ("2024-05-01#08:30:15:123", LOCAL_MS + 123),
        ("2024-05-01#08:30:15", LOCAL_MS),
    ],
)
def test_a_point_in_time(text: str, found: int) -> None:
    assert moment_ms(text, NOW_MS) == found


@pytest.mark.parametrize(
    "text", ["", "soon", "@2", "@h", "2024-13-01", "2024-05-01#25:00:00:000", "-5", "2024-05-01#x"]
)
def test_what_is_no_time_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(AdminError, match="no point in time") as caught:
        moment_ms(text, NOW_MS)
    assert "@2h" in (caught.value.hint or "")
