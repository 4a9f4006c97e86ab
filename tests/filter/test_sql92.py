"""SQL92 expressions select what RocketMQ selects, are bounded, and say where they are wrong."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import ExpressionIllegal
from orbitmq.filter.sql92 import DEPTH_MAX, LENGTH_MAX, compile_sql92
from tests.support.expressions import ALPHABET, outcome
from tests.support.golden import vectors

ERROR = "error"


def test_every_golden_expression_has_rocketmqs_outcome() -> None:
    golden = vectors()["sql92"]
    wrong = {}
    for case in golden["cases"]:
        wanted = [ERROR if isinstance(result, str) else result for result in case.get("results", ())]
        found = outcome(case["expr"], golden["propertySets"])
        if found != (wanted if case["compile"] == "ok" else None):
            wrong[case["expr"]] = found
    assert not wrong
    assert len(golden["cases"]) > 400


@pytest.mark.parametrize(
    ("text", "properties", "result"),
    [
        ("a = 3", {"a": "3"}, True),
        ("a = 3", {"a": "3.0"}, ERROR),
        ("a = 3.0", {"a": "3"}, True),
        ("a = 3000000000", {"a": "3000000000"}, True),
        ("a = 3", {"a": "3000000000"}, ERROR),
        ("a = 3L", {"a": "3000000000"}, ERROR),  # the letter does not make it a long
        ("a > b", {"a": "10", "b": "9"}, True),
        ("a = b", {"a": "1.0", "b": "1"}, False),
        ("a = b", {}, True),
        ("a = b", {"a": "1"}, False),
        ("a = b", {"b": "1"}, None),
        ("a = TRUE", {"a": "TrUe"}, True),
        ("TRUE = a", {"a": "true"}, ERROR),
        ("a", {"a": "true"}, False),
        ("NOT a = 4", {"a": "4"}, False),
        ("NOT (a = 4)", {"a": "3"}, True),
        ("-a > 1", {"a": "5"}, None),
        ("a > -5", {"a": "-4"}, True),
        ("a LIKE 'x'", {"a": "y"}, False),
        ("a = 3 so on, whatever it is @", {"a": "3"}, True),
        ("a > 3 + 4", {"a": "5"}, True),
        ("a = 007", {"a": "0"}, True),
        ("a = '中''文'", {"a": "中'文"}, True),
        ("a BETWEEN 1 AND 3 AND b NOT IN ('x', 'y')", {"a": "2", "b": "z"}, True),
        ("zz = 1 OR a = 1", {"a": "2"}, None),
        ("a = 1 OR b > 1", {"a": "1", "b": "x"}, True),
        ("b > 1 OR a = 1", {"a": "1", "b": "x"}, ERROR),
        ("a > 1.5", {"a": "NaN"}, True),
        ("a = 5.0", {"a": " 0x1.4p2d\t"}, True),
        ("a > b", {"a": "0.0", "b": "-0.0"}, True),
        ("a = 3", {"a": "٣"}, True),
        ("a = 3", {"a": "𝟛"}, ERROR),
        ("a = 3", {"a": "3_0"}, ERROR),
        ("a < 1.0", {"a": "-0x1p9999"}, True),
    ],
)
def test_types_and_nulls(text: str, properties: dict[str, str], result: object) -> None:
    assert outcome(text, [properties]) == [result]
    assert compile_sql92(text).matches(properties) is (result is True)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "more is expected at line 1, column 1"),
        ("a = ", "more is expected at line 1, column 5"),
        ("(a = 1\nAND b = 2", "more is expected at line 2, column 10"),
        ("a != 3", "'!' is not allowed here at line 1, column 3"),
        ("a == 3", "'=' is not expected at line 1, column 4"),
        ("a = 1 @", "'@' is not allowed here at line 1, column 7"),
        ("a = NULL", "'=': NULL cannot be compared, use IS NULL at line 1, column 3"),
        ("b = 1 AND\n a > 'x'", "'>': only numbers and properties have an order at line 2, column 4"),
        ("a BETWEEN 5 AND 1", "'BETWEEN': the lower bound is above the upper one at line 1, column 3"),
        ("a IN (1)", "'1' is not expected at line 1, column 7"),
        ("'x' IN ('x')", "'IN': only a property can be IN a list at line 1, column 5"),
        ("a AND 'x'", "'AND': neither true nor false at line 1, column 3"),
        ("5", "the expression is neither true nor false"),
        ("a > 0.0", "'0.0': the number is too small or too large at line 1, column 5"),
        ("a > 9223372036854775808", "'9223372036854775808': the number does not fit into 64 bits at line 1, column 5"),
        ("TRUE = 5", "'=': TRUE and FALSE cannot be compared with another constant at line 1, column 6"),
        ("a > " + "9" * 4000, "the number does not fit into 64 bits at line 1, column 5"),
    ],
)
def test_an_illegal_expression_is_refused_with_its_place(text: str, complaint: str) -> None:
    with pytest.raises(ExpressionIllegal) as caught:
        compile_sql92(text)
    assert str(caught.value).endswith(complaint)


def test_length_and_depth_are_bounded() -> None:
    chain = " OR ".join(f"a = {number}" for number in range(340))
    assert compile_sql92(chain).matches({"a": "339"}), "a chain is wide, not deep"
    parentheses = "(" * 2000 + "a = 1" + ")" * 2000
    assert compile_sql92(parentheses).matches({"a": "1"})
    deepest = "NOT " * (DEPTH_MAX - 2) + "a"
    assert compile_sql92(deepest).matches({"a": "1"}) is False
    with pytest.raises(ExpressionIllegal, match=f"nested deeper than {DEPTH_MAX}"):
        compile_sql92("NOT NOT " + deepest)
    with pytest.raises(ExpressionIllegal, match="double minus"):
        compile_sql92("a > " + "--" * 101 + "1")
    with pytest.raises(ExpressionIllegal, match=f"longer than {LENGTH_MAX}"):
        compile_sql92("a = 1" + " " * LENGTH_MAX)


@given(st.lists(st.sampled_from(ALPHABET), max_size=30).map(" ".join) | st.text(max_size=60), st.text(max_size=8))
def test_any_text_is_compiled_or_refused_and_any_property_is_judged(text: str, value: str) -> None:
    try:
        expression = compile_sql92(text)
    except ExpressionIllegal:
        return
    assert expression.matches({"a": value, "b": value}) in (True, False)


@pytest.mark.parametrize("value", ["9{}x", "0x{}", "0x{}.", "1.{}x", ".{}1x", "{}e"])
def test_looking_for_a_number_takes_as_long_as_the_text(value: str) -> None:
    """If every way to part the digits were tried, this would never end."""
    assert not compile_sql92("a > 1.5 AND a < 1.6").matches({"a": value.format("1" * 1_000_000)})


def test_nothing_of_the_text_is_code() -> None:
    expression = compile_sql92("__import__ = 'os' OR a = '{0.__class__}'")
    assert expression.matches({"a": "{0.__class__}"})


def test_only_who_compiles_an_expression_loads_the_parser() -> None:
    script = (
        "import sys, orbitmq.broker.broker, orbitmq.client, orbitmq.cli.main; assert 'lark' not in sys.modules;"
        "from orbitmq.filter.sql92 import prepare; prepare(); assert 'lark' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
