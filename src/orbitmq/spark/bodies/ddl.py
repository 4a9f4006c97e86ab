"""Fields as SQL writes them, `id BIGINT, tags ARRAY<STRING>`, as types of Arrow. Spark's own parser is in the JVM, and
the processes that plan reads have no connection to that."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa

from orbitmq.spark.cluster_options import bad_option

TOKEN = re.compile(r"\s*(?:(?P<quoted>`(?:[^`]|``)*`)|(?P<text>'[^']*')|(?P<word>\w+)|(?P<sign>[<>(),:]))")
TIMESTAMP = pa.timestamp("us", "UTC")
PLAIN: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
}
DECIMAL = ("decimal", "dec", "numeric")
DEPTH_MAX = 100  # levels of nesting: far beyond any schema, and before Python's own limit


def parse_ddl(text: str) -> pa.StructType:
    """The type of a list of fields, or of `struct<...>`, which Spark calls the type of a column. SourceError names what
    cannot be read, and where."""
    parser = _Parser(text)
    found = parser.kind() if parser.words[:2] == ["struct", "<"] else parser.fields()
    parser.end()
    return found


class _Parser:
    """Reads tokens from the left."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        at, text = 0, text.strip()
        while at < len(text):
            found = TOKEN.match(text, at)
            if found is None:
                raise bad_option(f"option bodySchema: cannot read {text[at : at + 20]!r} at {at}")
            self._tokens.append(found[0].strip())
            at = found.end()
        self._at = self._depth = 0

    @property
    def words(self) -> list[str]:
        """The next two tokens in lower case, empty behind the last."""
        return [*map(str.lower, self._tokens[self._at : self._at + 2]), "", ""]

    def fields(self) -> pa.StructType:
        found: dict[str, pa.DataType] = {}
        for name, kind in self._listed(self._field):
            if name in found:
                raise bad_option(f"option bodySchema: field {name} occurs twice")
            found[name] = kind
        return pa.struct(list(found.items()))

    def kind(self) -> pa.DataType:
        name = self._take().lower()
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise bad_option(f"option bodySchema has more than {DEPTH_MAX} levels")
        found = self._kind(name)
        self._depth -= 1
        return found

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise self._unexpected("the end")

    def _kind(self, name: str) -> pa.DataType:
        if name == "struct":
            return self._within("<", self.fields, ">")
        if name == "array":
            return pa.list_(self._within("<", self.kind, ">"))
        if name == "map":
            kinds = self._within("<", lambda: self._listed(self.kind), ">")
            if len(kinds) != 2 or kinds[0] != pa.string():
                raise bad_option("option bodySchema: a map is MAP<STRING, ...>")
            return pa.map_(*kinds)
        if name in DECIMAL:
            digits = [10, 0]
            if self.words[0] == "(":
                digits = self._within("(", lambda: self._listed(self._number), ")")
            if not (len(digits) <= 2 and 1 <= digits[0] <= 38 and 0 <= sum(digits[1:]) <= digits[0]):
                raise bad_option(
                    "option bodySchema: a decimal has 1 to 38 digits: DECIMAL(digits, digits behind the point)"
                )
            return pa.decimal128(digits[0], sum(digits[1:]))
        if name not in PLAIN:
            known = ", ".join((*PLAIN, "decimal", "array", "map", "struct"))
            raise bad_option(f"option bodySchema: no type {name}; the types are {known}")
        return PLAIN[name]

    def _field(self) -> tuple[str, pa.DataType]:
        """A name, its type, and what says nothing about reading: NOT NULL and a comment."""
        name = self._take()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        if self.words[0] == ":":
            self._at += 1
        kind = self.kind()
        if self.words[:2] == ["not", "null"]:
            self._at += 2
        if self.words[0] == "comment":
            self._at += 2
        return name, kind

    def _number(self) -> int:
        word = self._take()
        if not word.isdecimal():
            raise bad_option(f"option bodySchema: {word} is no number")
        return int(word)

    def _listed(self, item: Callable[[], object]) -> list:  # type: ignore[type-arg]
        found = [item()]
        while self.words[0] == ",":
            self._at += 1
            found.append(item())
        return found

    def _within(self, opening: str, item: Callable[[], pa.DataType], closing: str) -> pa.DataType:
        self._require(opening)
        found = item()
        self._require(closing)
        return found

    def _require(self, sign: str) -> None:
        if self.words[0] != sign:
            raise self._unexpected(sign)
        self._at += 1

    def _take(self) -> str:
        if self._at == len(self._tokens) or not re.match(r"[\w`]", self._tokens[self._at]):
            raise self._unexpected("a name")
        self._at += 1
        return self._tokens[self._at - 1]

    def _unexpected(self, wanted: str) -> Exception:
        found = self._tokens[self._at] if self._at < len(self._tokens) else "the end"
        before = " ".join(self._tokens[max(0, self._at - 3) : self._at])
        return bad_option(f"option bodySchema: {found!r} after {before!r}, where {wanted!r} was expected")
