"""SQL92 expressions for tests: their outcomes, and a stream of random ones, legal and nearly legal."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from orbitmq.errors import ExpressionIllegal
from orbitmq.filter.sql92 import compile_sql92

# Everything an expression is made of, and what is nearly that.
_WORDS = """
a b c zz a$1 _b TAGS 5 -5 0 007 5L 2147483648 -2147483648 9223372036854775807 9223372036854775808 5.0 -1.5 .5 5. 1e2 5e
0.0 4.9e-324 1e400 0x1F 'x' '5' '' 'it''s' 'true' TRUE false NULL null AND and OR or NOT not IN in IS BETWEEN between
= <> < <= > >= ( ) , + - ( ) AND OR NOT = > a b a b 5 -- /* */ /**/ != == @ LIKE " % * /
"""
ALPHABET = tuple(_WORDS.split())
# What properties say in them.
VALUES = (
    "5", "7", "-5", "+5", "05", "5.0", "5.", ".5e1", " 5", "5 ", "5f", "0x1p3", "1e400", "NaN", "-Infinity", "-0.0",
    "0", "", "x", "true", "TRUE", "it's", "٣", "1_0",
    "2147483648", "-2147483648", "9223372036854775807", "9223372036854775808",
)  # fmt: skip
_OPERANDS = (
    "a",
    "b",
    "c",
    "zz",
    "5",
    "-5",
    "- -5",
    "-a",
    "5.0",
    "2147483648",
    "-9223372036854775807",
    "1.5e0",
    "'x'",
    "'5'",
    "TRUE",
    "NULL",
)


def outcome(text: str, property_sets: Sequence[Mapping[str, str]]) -> list[object] | None:
    """True, False, None or "error" for each set of properties; None when the text is not compiled."""
    try:
        evaluate = compile_sql92(text).evaluate
    except ExpressionIllegal:
        return None
    results: list[object] = []
    for properties in property_sets:
        try:
            results.append(evaluate(properties))
        except ValueError:
            results.append("error")
    return results


def random_expressions(seed: int, count: int) -> Iterator[str]:
    """Half of them are built by the grammar, the others words in a row."""
    rng = random.Random(seed)
    for number in range(count):
        if number % 2:
            yield _built(rng, 4)
        else:
            yield " ".join(rng.choices(ALPHABET, k=rng.randint(1, 9)))


def random_properties(seed: int, count: int) -> list[dict[str, str]]:
    rng = random.Random(seed)
    return [{name: rng.choice(VALUES) for name in "abc" if rng.random() < 0.8} for _ in range(count)]


def _built(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.2:
        return _leaf(rng)
    left, right = _built(rng, depth - 1), _built(rng, depth - 1)
    return rng.choice(
        (
            f"{left} AND {right}", f"{left} OR {right}", f"NOT ({left})", f"({left}) = {right}",
            f"({left}) <> ({right})", f"{left} IS NULL", f"({left})", f"{left} or {right} and {left}",
        )
    )  # fmt: skip


def _leaf(rng: random.Random) -> str:
    one, two, three = rng.choices(_OPERANDS, k=3)
    sign = rng.choice(("=", "<>", "<", "<=", ">", ">="))
    return rng.choice(
        (
            f"{one} {sign} {two}", f"{one} {sign} {two}", f"a {sign} {two}", f"{one} IS NULL", f"{one} IS NOT NULL",
            f"{one} BETWEEN {two} AND {three}", f"a NOT BETWEEN {two} AND {three}", "b IN ('5', 'x', '')",
            "c NOT IN ('true')", f"NOT {one}", one, "a",
        )
    )  # fmt: skip
