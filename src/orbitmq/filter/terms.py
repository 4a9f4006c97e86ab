"""The meaning of the parts of an SQL92 expression: each is a closure over a message's properties. Pure; knows no
grammar.

Properties are texts, or missing. An expression is true, false or null; the type of every part is known from the text,
so a closure is made for just these types. A comparison that fails (a property that is no number next to a number)
raises ValueError: such a message does not match. Rules and quirks are those of RocketMQ 4.9, for orbitmq must deliver
what its broker delivers.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol


class Properties(Protocol):
    """The properties of a message, such as a dictionary."""

    def get(self, name: str, /) -> str | None:
        """A property; None when it is missing."""


Evaluate = Callable[[Properties], Any]  # a value of the term's kind, or None for null

INT32, INT64 = (-(1 << 31), (1 << 31) - 1), (-(1 << 63), (1 << 63) - 1)
INT64_DIGITS = 19
_INTEGER = re.compile(r"[+-]?[0-9\u0660-\uffff]+")  # Java reads digits of other scripts, those of 16 bits
_DOUBLE = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
    r"|(?P<hex>0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+))(?P<suffix>[fFdD])?)"
)
_BLANKS = "".join(map(chr, range(33)))  # what Java takes off both ends of a text


class TermType(Enum):
    """What values a term has when it is not null. NOTHING is always null, and is not the literal NULL."""

    PROPERTY = auto()
    TEXT = auto()
    INTEGER = auto()
    LONG = auto()
    DOUBLE = auto()
    BOOLEAN = auto()
    NULL = auto()
    NOTHING = auto()


class Term(NamedTuple):
    """A part of an expression. `literal` is set for constants except -1. `depth` counts nested closures."""

    kind: TermType
    evaluate: Evaluate
    depth: int = 1
    literal: bool = False


class TermError(Exception):
    """The parts do not match; the text says why. The parser adds the position."""


# -------------------------------------------------------------------------------------------------- constants and names


def constant(kind: TermType, value: object) -> Term:
    return Term(kind, lambda _: value, literal=True)


def integer(text: str) -> Term:
    """A whole number, of 32 bits if it fits, else of 64; which one matters to the texts it is compared with."""
    value = int(text) if len(text) <= INT64_DIGITS else INT64[1] + 1
    if value > INT64[1]:
        raise TermError("the number does not fit into 64 bits")
    return constant(TermType.LONG if value > INT32[1] else TermType.INTEGER, value)


def double(text: str) -> Term:
    """A number with a point or an exponent. There is no zero of this kind, as in RocketMQ."""
    value = float(text)
    if not value or math.isinf(value):
        raise TermError("the number is too small or too large")
    return constant(TermType.DOUBLE, value)


def named(name: str) -> Term:
    """A property of the message."""
    return Term(TermType.PROPERTY, lambda properties: properties.get(name))


# ---------------------------------------------------------------------------------------------------- true, false, null


def condition(term: Term) -> Term:
    """The term as a condition. A property by itself is never true, whatever its text."""
    if term.kind is TermType.PROPERTY:
        value = term.evaluate
        return Term(TermType.BOOLEAN, lambda properties: None if value(properties) is None else False, term.depth + 1)
    if term.kind in (TermType.BOOLEAN, TermType.NULL):
        return term
    raise TermError("neither true nor false")


def any_of(terms: Sequence[Term]) -> Term:
    """OR: true as soon as one is; else null if one is."""
    conditions = [condition(term).evaluate for term in terms]

    def evaluate(properties: Properties) -> bool | None:
        result: bool | None = False
        for wanted in conditions:
            value = wanted(properties)
            if value:
                return True
            if value is None:
                result = None
        return result

    return Term(TermType.BOOLEAN, evaluate, _depth(*terms))


def all_of(terms: Sequence[Term]) -> Term:
    """AND: false as soon as one is; else null if one is."""
    conditions = [condition(term).evaluate for term in terms]

    def evaluate(properties: Properties) -> bool | None:
        result: bool | None = True
        for wanted in conditions:
            value = wanted(properties)
            if value is None:
                result = None
            elif not value:
                return False
        return result

    return Term(TermType.BOOLEAN, evaluate, _depth(*terms))


def opposite(term: Term) -> Term:
    """NOT, which leaves null null."""
    value = condition(term).evaluate

    def evaluate(properties: Properties) -> bool | None:
        found = value(properties)
        return None if found is None else not found

    return Term(TermType.BOOLEAN, evaluate, _depth(term))


# ---------------------------------------------------------------------------------------------------------- comparisons


def negative(term: Term) -> Term:
    """A minus before a term: null for anything but a number."""
    if term.kind in (TermType.INTEGER, TermType.LONG, TermType.DOUBLE):
        value = -term.evaluate({})
        return Term(term.kind, lambda _: value)
    return Term(TermType.NOTHING, lambda _: None)


def equal(left: Term, right: Term) -> Term:
    """Null and null are equal; null on the left only makes null, on the right only false."""
    if TermType.NULL in (left.kind, right.kind) and (left.literal or right.literal):
        raise TermError("NULL cannot be compared, use IS NULL")
    if left.literal and right.literal and left.kind is TermType.BOOLEAN and right.kind is not TermType.BOOLEAN:
        raise TermError("TRUE and FALSE cannot be compared with another constant")
    return _equality(left, right)


def is_null(term: Term) -> Term:
    value = term.evaluate
    return Term(TermType.BOOLEAN, lambda properties: value(properties) is None, _depth(term))


def ordered(left: Term, sign: str, right: Term) -> Term:
    """One of < <= > >=: null if either side is. Two properties are compared as doubles."""
    for term in (left, right):
        if term.kind not in (TermType.PROPERTY, TermType.INTEGER, TermType.LONG, TermType.DOUBLE, TermType.NOTHING):
            raise TermError("only numbers and properties have an order")
    both_named = left.kind is right.kind is TermType.PROPERTY
    of_left, of_right = (_double, _double) if both_named else _conversions(left.kind, right.kind)
    compare, value, other = _SIGNS[sign], left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> bool | None:
        found, limit = value(properties), other(properties)
        if found is None or limit is None:
            return None
        return bool(compare(of_left(found), of_right(limit)))

    return Term(TermType.BOOLEAN, evaluate, _depth(left, right))


def between(term: Term, low: Term, high: Term) -> Term:
    """At least `low` and at most `high`; two constants the wrong way round are an error."""
    if low.literal and high.literal and ordered(low, ">", high).evaluate({}):
        raise TermError("the lower bound is above the upper one")
    return all_of((ordered(term, ">=", low), ordered(term, "<=", high)))


def outside(term: Term, low: Term, high: Term) -> Term:
    return any_of((ordered(term, "<", low), ordered(term, ">", high)))


def one_of(term: Term, texts: Sequence[str]) -> Term:
    """Whether a property is one of these texts; null if it is missing."""
    if term.kind is not TermType.PROPERTY:
        raise TermError("only a property can be IN a list")
    value, members = term.evaluate, frozenset(texts)

    def evaluate(properties: Properties) -> bool | None:
        found = value(properties)
        return None if found is None else found in members

    return Term(TermType.BOOLEAN, evaluate, _depth(term))


def _equality(left: Term, right: Term) -> Term:
    value, other = left.evaluate, right.evaluate
    of_left, of_right = _conversions(left.kind, right.kind)

    def evaluate(properties: Properties) -> bool | None:
        found, wanted = value(properties), other(properties)
        if found is None:
            return True if wanted is None else None
        return wanted is not None and bool(of_left(found) == of_right(wanted))

    return Term(TermType.BOOLEAN, evaluate, _depth(left, right))


def _depth(*terms: Term) -> int:
    return 1 + max(term.depth for term in terms)


# ---------------------------------------------------------------------------------------------------------- conversions


def _ranged(low: int, high: int) -> Callable[[str], int]:
    def integer(text: str) -> int:
        if not _INTEGER.fullmatch(text) or not low <= (value := int(text)) <= high:
            raise ValueError(text)
        return value

    return integer


def _rank(value: float) -> tuple[bool, float, float]:
    """Doubles in Java's order: -0.0 before 0.0, NaN behind everything and equal to itself."""
    return (True, 0.0, 0.0) if math.isnan(value) else (False, value, math.copysign(1.0, value))


def _double(text: str) -> tuple[bool, float, float]:
    found = _DOUBLE.fullmatch(text.strip(_BLANKS))
    if found is None:
        raise ValueError(text)
    value = found[0].removesuffix(found["suffix"] or "")
    try:
        return _rank(float.fromhex(value) if found["hex"] else float(value))
    except OverflowError:  # of a hexadecimal one; a decimal one is infinite by itself
        return _rank(-math.inf if value[0] == "-" else math.inf)


def _boolean(text: str) -> bool:
    return text.lower() == "true"


def _same(value: object) -> object:
    return value


def _never(text: str) -> object:
    raise ValueError(text)


def _one(_: object) -> int:
    return 1


def _two(_: object) -> int:
    return 2


Conversion = Callable[[Any], Any]
_SIGNS: dict[str, Callable[[Any, Any], object]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_NUMBERS = (TermType.INTEGER, TermType.LONG, TermType.DOUBLE)
_TEXTS = (TermType.PROPERTY, TermType.TEXT)
_FROM_TEXT: dict[TermType, Conversion] = {
    TermType.INTEGER: _ranged(*INT32),
    TermType.LONG: _ranged(*INT64),
    TermType.DOUBLE: _double,
    TermType.BOOLEAN: _boolean,
}


def _conversions(left: TermType, right: TermType) -> tuple[Conversion, Conversion]:
    """Makes values of these types comparable. A text becomes the type of the other side, but TRUE = 'true' fails."""
    if left in _TEXTS and right in _FROM_TEXT:
        return _FROM_TEXT[right], _rank if right is TermType.DOUBLE else _same
    if right in _TEXTS and left in _NUMBERS:
        return _rank if left is TermType.DOUBLE else _same, _FROM_TEXT[left]
    if right in _TEXTS and left is TermType.BOOLEAN:
        return _same, _never
    if TermType.DOUBLE in (left, right) and left in _NUMBERS and right in _NUMBERS:
        return _rank, _rank
    if TermType.BOOLEAN in (left, right) and left is not right:
        return _one, _two  # never equal
    return _same, _same
