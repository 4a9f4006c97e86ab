"""SQL92 expressions over message properties: `color = 'red' AND (price > 100 OR vip IS NOT NULL)`. Pure.

The grammar is that of RocketMQ 4.9, which parses as far as the text is valid: what follows a complete expression is
ignored, as long as its first token is valid. The text becomes closures, once; it is never run as code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from orbitmq.errors import ExpressionIllegal
from orbitmq.filter import terms
from orbitmq.filter.terms import Properties, Term, TermError, TermType

if TYPE_CHECKING:
    from lark import Lark, Token

LENGTH_MAX = 4096  # characters; at most 4,000 words, which take 10 ms of the event loop that compiles them
LINE_COMMENTS_MAX = 100  # the lexer looks for the end of the line after each `--`, to the end of the text
DEPTH_MAX = 200  # closures inside closures, each a frame of the thousand that Python allows
READING_COST = 72  # finding the properties of a message takes as long as so many characters of an expression
COMPILED_MAX = 4096  # expressions remembered, about 10 KiB each; members of a group bring the same one again and again

GRAMMAR = r"""
start: any_of

?any_of: all_of
    | all_of (OR all_of)+
?all_of: equality
    | equality (AND equality)+
?equality: comparison
    | equality EQUAL comparison -> equal
    | equality UNEQUAL comparison -> unequal
    | equality IS NULL -> is_null
    | equality IS NOT NULL -> is_not_null
?comparison: unary
    | comparison (LESS | LESS_EQUAL | MORE | MORE_EQUAL) unary -> ordered
    | comparison BETWEEN unary AND unary -> between
    | comparison NOT BETWEEN unary AND unary -> outside
    | comparison IN "(" STRING ("," STRING)* ")" -> one_of
    | comparison NOT IN "(" STRING ("," STRING)* ")" -> none_of
?unary: primary
    | "+" unary
    | MINUS unary -> negative
    | NOT unary -> opposite
?primary: STRING -> text
    | INTEGER -> integer
    | DOUBLE -> double
    | TRUE -> true
    | FALSE -> false
    | NULL -> null
    | NAME -> named
    | "(" any_of ")"

// Words first look like names; the callback of the lexer tells them apart, whatever their case.
%declare NOT AND OR BETWEEN IN TRUE FALSE NULL IS
NAME: /[a-zA-Z_$][a-zA-Z0-9_$]*/
STRING: /'(?:[^']|'')*'/
DOUBLE.2: /[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
INTEGER: /(?:0|[1-9][0-9]*)[lL]?/
EQUAL: "="
UNEQUAL: "<>"
LESS: "<"
LESS_EQUAL: "<="
MORE: ">"
MORE_EQUAL: ">="
MINUS: "-"
BLANK: /[ \t\n\r\f]+/
// A comment of this form needs the end of its line; without one it is two minus signs.
LINE_COMMENT.2: /--[^\n\r]*[\n\r]/
COMMENT: /\/\*(?:[^*]|\*(?!\/))*\*\//
%ignore BLANK
%ignore LINE_COMMENT
%ignore COMMENT
"""
WORDS = frozenset(("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"))


class Sql92Expression:
    """A compiled expression. Two of the same text are the same."""

    def __init__(self, text: str, condition: Term) -> None:
        self.text = text
        self.evaluate = condition.evaluate
        self.cost = READING_COST + len(text)
        """How long one message takes, in some twentieths of a microsecond."""

    def matches(self, properties: Properties) -> bool:
        """Whether a message with these properties matches: the expression is true, not null, and can be evaluated."""
        try:
            return self.evaluate(properties) is True
        except ValueError:
            return False


@lru_cache(COMPILED_MAX)
def compile_sql92(text: str) -> Sql92Expression:
    """Compile an expression; ExpressionIllegal says what is wrong with it and where."""
    if len(text) > LENGTH_MAX:
        raise ExpressionIllegal(f"an expression of {len(text)} characters is longer than {LENGTH_MAX}")
    if text.count("--") > LINE_COMMENTS_MAX:
        raise ExpressionIllegal(f"an expression with more than {LINE_COMMENTS_MAX} comments or double minus signs")
    return Sql92Expression(text, _parse(text))


def prepare() -> None:
    """Make the parser now, which takes a tenth of a second; else the first expression does it."""
    _parser()


def _parse(text: str) -> Term:
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken  # as in _parser

    steps: Any = _parser().parse_interactive(text)
    try:
        for token in steps.iter_parse():
            _ = token
        term: Term = steps.feed_eof()
    except UnexpectedToken as error:
        try:
            term = steps.feed_eof()  # the expression was complete before that token, or is invalid
        except UnexpectedToken:
            if not error.token:
                _fail("more is expected", text.count("\n") + 1, len(text) - text.rfind("\n"))
            _fail(f"{str(error.token)!r} is not expected", error.line, error.column)
    except UnexpectedCharacters as error:
        _fail(f"{error.char!r} is not allowed here", error.line, error.column)
    return term


@cache
def _parser() -> Lark:
    from lark import Lark  # here, for importing it takes longer than all else that a client imports

    meaning: Any = _Meaning()  # its methods are called while the parser reads, so there is never a tree
    return Lark(GRAMMAR, parser="lalr", lexer="basic", transformer=meaning, lexer_callbacks={"NAME": _token})


def _token(token: Token) -> Token:
    word = token.upper()
    return token.update(type=word) if word in WORDS else token


class _Meaning:
    """The terms of the grammar's rules. Each method gets the words and terms of its rule in their order."""

    def start(self, parts: list[Term]) -> Term:
        try:
            return terms.condition(parts[0])
        except TermError as error:
            raise ExpressionIllegal(f"the expression is {error}") from error

    def any_of(self, parts: list[Any]) -> Term:
        return _at(parts[1], terms.any_of, parts[::2])

    def all_of(self, parts: list[Any]) -> Term:
        return _at(parts[1], terms.all_of, parts[::2])

    def equal(self, parts: list[Any]) -> Term:
        left, sign, right = parts
        return _at(sign, terms.equal, left, right)

    def unequal(self, parts: list[Any]) -> Term:
        return _at(parts[1], terms.opposite, self.equal(parts))

    def is_null(self, parts: list[Any]) -> Term:
        return _at(parts[1], terms.is_null, parts[0])

    def is_not_null(self, parts: list[Any]) -> Term:
        return _at(parts[1], terms.opposite, self.is_null(parts))

    def ordered(self, parts: list[Any]) -> Term:
        left, sign, right = parts
        return _at(sign, terms.ordered, left, str(sign), right)

    def between(self, parts: list[Any]) -> Term:
        term, word, low, _and, high = parts
        return _at(word, terms.between, term, low, high)

    def outside(self, parts: list[Any]) -> Term:
        term, word, _between, low, _and, high = parts
        return _at(word, terms.outside, term, low, high)

    def one_of(self, parts: list[Any]) -> Term:
        term, word, *texts = parts
        return _at(word, terms.one_of, term, [_unquoted(text) for text in texts])

    def none_of(self, parts: list[Any]) -> Term:
        term, word, *words = parts
        return _at(word, terms.opposite, self.one_of([term, *words]))

    def negative(self, parts: list[Any]) -> Term:
        return terms.negative(parts[1])

    def opposite(self, parts: list[Any]) -> Term:
        return _at(parts[0], terms.opposite, parts[1])

    def text(self, parts: list[Token]) -> Term:
        return terms.constant(TermType.TEXT, _unquoted(parts[0]))

    def integer(self, parts: list[Token]) -> Term:
        return _at(parts[0], terms.integer, parts[0].rstrip("lL"))

    def double(self, parts: list[Token]) -> Term:
        return _at(parts[0], terms.double, str(parts[0]))

    def true(self, _parts: list[Token]) -> Term:
        return terms.constant(TermType.BOOLEAN, True)

    def false(self, _parts: list[Token]) -> Term:
        return terms.constant(TermType.BOOLEAN, False)

    def null(self, _parts: list[Token]) -> Term:
        return terms.constant(TermType.NULL, None)

    def named(self, parts: list[Token]) -> Term:
        return terms.named(str(parts[0]))


def _at(word: Token, make: Callable[..., Term], *parts: Any) -> Term:
    """The term made of these parts; an error has the position of `word`."""
    try:
        term = make(*parts)
    except TermError as error:
        _fail(f"{str(word)!r}: {error}", word.line, word.column)
    if term.depth > DEPTH_MAX:
        _fail(f"{str(word)!r}: nested deeper than {DEPTH_MAX}", word.line, word.column)
    return term


def _unquoted(text: Token) -> str:
    return text[1:-1].replace("''", "'")


def _fail(what: str, line: int | None, column: int | None) -> NoReturn:
    raise ExpressionIllegal(f"{what} at line {line}, column {column}")
