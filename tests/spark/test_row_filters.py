"""What tasks keep: by exact values of a property, and by SQL92 as a broker would."""

from __future__ import annotations

import numpy as np
import pytest

from orbitmq.filter.sql92 import compile_sql92
from orbitmq.message.properties import decode_properties
from orbitmq.spark.row_filters import PropertyIn, RowFilter, Sql92
from orbitmq.spark.units import Units, unit_positions
from tests.spark.queue_model import stored_unit

TAGS = ["TagA", "TagB", None, "TagC", "TagA"]


def units() -> Units:
    region = b"".join(stored_unit(offset, tag) for offset, tag in enumerate(TAGS))
    return Units(region, unit_positions(region))


@pytest.mark.parametrize(
    ("each", "kept"),
    [
        (PropertyIn("TAGS", frozenset(("TagA", "TagC"))), [0, 3, 4]),
        (PropertyIn("TAGS", frozenset()), []),
        (PropertyIn("UNIQ_KEY", frozenset(("ID2",))), [2]),
        (Sql92("TAGS IS NULL OR TAGS = 'TagB'"), [1, 2]),
        (Sql92("UNIQ_KEY <> 'ID1' AND TAGS IN ('TagA', 'TagB')"), [0, 4]),
        (Sql92("missing > 5"), []),
    ],
)
def test_rows_that_are_kept(each: RowFilter, kept: list[int]) -> None:
    assert np.flatnonzero(each.wanted(units())).tolist() == kept


def test_an_expression_keeps_what_a_broker_would_deliver() -> None:
    text = "TAGS = 'TagB' OR NOT (UNIQ_KEY IN ('ID3', 'ID4'))"
    texts = units().properties_text().to_pylist()
    by_message = [compile_sql92(text).matches(decode_properties(each)) for each in texts]
    assert Sql92(text).wanted(units()).tolist() == by_message
