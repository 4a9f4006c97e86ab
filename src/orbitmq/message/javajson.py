"""The JSON dialect of Apache RocketMQ's bodies and files (fastjson 1.2): reader and two writers.

It differs from JSON in the keys of maps: integers are unquoted (`{0:"a"}`) and objects are keys themselves
(`{{"queueId":0}:10}`). The reader also accepts single quotes, unquoted names, superfluous commas and `$ref`, as Java's
does. Pure: text in, values out. Must not know what any body means.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]  # the stubs leave it out
from typing import Any

import msgspec

from orbitmq.errors import BodyError

DEPTH_MAX = 64  # no body of the protocol nests deeper than 8; a hostile one must not exhaust the stack
# The limit for an untrusted text that is no standard JSON: some 5,000 values, or 40,000 characters with non-standard
# escapes. Reading it takes 10 ms, in which nothing else runs: texts that cost more than LENIENT_ALWAYS may cost
# LENIENT_A_SECOND in total, a two-hundredth of the time. The bytes do not matter: properties of 32 KiB are one value,
# and clients of other languages send them so.
LENIENT_MAX = 40_000
LENIENT_ALWAYS = 2_000
LENIENT_A_SECOND = 20_000
VALUE_COST, ESCAPE_COST = 8, 1
REFERRED_MAX = 100_000  # values that `$ref` may repeat in total: a short text must not expand without bound
REFERRED_TEXT = 100  # characters of a text count as one such value

_decode_standard = msgspec.json.decode
_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE = re.compile(r"[\s,]*")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?[LlFfDdBbSs]?")
_WORD = re.compile(r"[A-Za-z_$][A-Za-z0-9_$.\-]*")
_PLAIN = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}
_WORDS = {"true": True, "false": False, "null": None, "undefined": None, "NaN": None}


class ObjectKey(dict[str, Any]):
    """An object used as the key of a map; equal and hashed by its members. Do not change it after use."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


class Allowance:
    """What texts of strangers may cost that are no standard JSON, at a time and in a second."""

    def __init__(self) -> None:
        self._left = float(LENIENT_MAX)

    def refill(self, seconds: float) -> None:
        """This much time has passed; call this often."""
        self._left = min(self._left + seconds * LENIENT_A_SECOND, LENIENT_MAX)

    @property
    def most(self) -> int:
        """The limit of the next text."""
        return max(int(self._left), LENIENT_ALWAYS)

    def spend(self, cost: float) -> None:
        """So much was taken."""
        if cost > LENIENT_ALWAYS:
            self._left = max(self._left - cost, 0.0)  # a debt would be paid by others


def loads(text: str | bytes | bytearray | memoryview, lenient_max: int | Allowance | None = None) -> Any:
    """Read one value; BodyError with the position if it is invalid.

    Keys of objects are `str`, `int` (unquoted numbers) or `ObjectKey`. Non-standard JSON takes a hundred times as long
    to read: `lenient_max` limits its cost, see LENIENT_MAX, or that of many texts; None is no limit.
    """
    try:
        data = text.encode() if isinstance(text, str) else bytes(text)
    except UnicodeEncodeError as error:
        raise BodyError(f"body has an incomplete character at {error.start}") from error
    try:
        # Most texts are plain JSON; `$ref` needs the walk below.
        if b'"$ref"' not in data:
            return _shallow(_decode_standard(data), data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        characters = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BodyError(f"body is not UTF-8 at byte {error.start}") from error
    if not isinstance(lenient_max, Allowance):
        return _Reader(characters, math.inf if lenient_max is None else lenient_max).document()
    most = lenient_max.most
    reader = _Reader(characters, most)
    try:
        return reader.document()
    finally:
        lenient_max.spend(most - reader.left)


def _shallow(value: Any, data: bytes) -> Any:
    """The value, unless it nests deeper than the limit; checked only if the text has enough brackets."""
    if data.count(b"[") + data.count(b"{") > DEPTH_MAX:
        level = [value] if isinstance(value, (dict, list)) else []
        for _ in range(DEPTH_MAX):
            level = [
                member
                for container in level
                for member in (container.values() if type(container) is dict else container)
                if type(member) is dict or type(member) is list  # most members are scalars: they are not visited twice
            ]
            if not level:
                break
        if any(level):
            raise _too_deep()
    return value


def _content(value: Any) -> Iterable[Any]:
    """The members of an object or array, none of a plain value."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _too_deep() -> BodyError:
    return BodyError(f"body nests deeper than {DEPTH_MAX} levels")


class _Reader:
    """Recursive descent over one text."""

    def __init__(self, text: str, cost_max: float) -> None:
        self._text = text
        self.left = cost_max
        self._scans = True  # as long as JSON's own scanner takes all texts: its error counts lines from the beginning
        self._at = 0
        self._references: list[tuple[Any, Any, str]] = []

    def document(self) -> Any:
        value = self._value(0)
        self._skip()
        if self._at != len(self._text):
            raise self._wrong("the end")
        self._follow(value)
        return value

    def _follow(self, root: Any) -> None:
        """Replace references by their targets, which may contain no further ones: that excludes cycles."""
        targets = [_resolve(root, path) for _, _, path in self._references]
        left = REFERRED_MAX
        for target in targets:
            left = _without_referred(target, left)
        for (container, key, _), target in zip(self._references, targets, strict=True):
            container[key] = target

    def _wrong(self, expected: str) -> BodyError:
        return BodyError(f"body is not JSON: {expected} expected at character {self._at}")

    def _skip(self) -> str:
        match = _SPACE.match(self._text, self._at)
        assert match is not None
        self._at = match.end()
        return self._text[self._at : self._at + 1]

    def _value(self, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise _too_deep()
        self._spend(VALUE_COST)
        sign = self._skip()
        if sign == "{":
            return self._object(depth)
        if sign == "[":
            return self._array(depth)
        if sign in ('"', "'") and sign:
            return self._string(sign)
        number = _NUMBER.match(self._text, self._at)
        if number is not None:
            self._at = number.end()
            return _number(number)
        word = _WORD.match(self._text, self._at)
        if word is not None and word.group() in _WORDS:
            self._at = word.end()
            return _WORDS[word.group()]
        raise self._wrong("a value")

    def _object(self, depth: int) -> Any:
        self._at += 1
        result: dict[Any, Any] = {}
        while (sign := self._skip()) != "}":
            key = self._key(sign, depth)
            if self._skip() != ":":
                raise self._wrong("':'")
            self._at += 1
            result[key] = self._value(depth + 1)
            self._note_reference(result, key)
        self._at += 1
        return result

    def _array(self, depth: int) -> list[Any]:
        self._at += 1
        result: list[Any] = []
        while self._skip() != "]":
            result.append(self._value(depth + 1))
            self._note_reference(result, len(result) - 1)
        self._at += 1
        return result

    def _note_reference(self, container: Any, key: Any) -> None:
        if _is_reference(container[key]):
            self._references.append((container, key, container[key]["$ref"]))

    def _key(self, sign: str, depth: int) -> Any:
        if sign == "{":
            return ObjectKey(_hashable(self._value(depth + 1)))
        if sign in ('"', "'") and sign:
            return self._string(sign)
        number = _NUMBER.match(self._text, self._at)
        if number is not None:
            self._at = number.end()
            return _number(number)
        word = _WORD.match(self._text, self._at)
        if word is None:
            raise self._wrong("a key")
        self._at = word.end()
        return word.group()

    def _string(self, quote: str) -> str:
        self._at += 1
        if quote == '"' and self._scans:
            try:
                text, self._at = scanstring(self._text, self._at, False)
                return _join_surrogates(text)
            except ValueError:  # it has escapes that JSON does not know, or no end
                self._scans = False
        parts: list[str] = []
        while True:
            plain = _PLAIN[quote].match(self._text, self._at)
            assert plain is not None
            parts.append(plain.group())
            self._at = plain.end()
            sign = self._text[self._at : self._at + 1]
            if not sign:
                raise self._wrong("the end of a text")
            self._at += 1
            if sign == quote:
                return _join_surrogates("".join(parts))
            parts.append(self._escape())

    def _spend(self, cost: int) -> None:
        self.left -= cost
        if self.left < 0:
            raise BodyError(f"body is not standard JSON, and too much of it is not read, at character {self._at}")

    def _escape(self) -> str:
        self._spend(ESCAPE_COST)
        sign = self._text[self._at : self._at + 1]
        self._at += 1
        if sign in ("u", "x"):
            digits = self._text[self._at : self._at + (4 if sign == "u" else 2)]
            self._at += len(digits)
            try:
                return chr(int(digits, 16))
            except ValueError:
                raise self._wrong("hexadecimal digits") from None
        return _ESCAPES.get(sign, sign)


def _number(match: re.Match[str]) -> int | float:
    text = match.group().rstrip("LlFfDdBbSs")
    try:
        return float(text) if match.group(1) or match.group(2) else int(text)
    except ValueError:
        raise BodyError(f"body has a number of {len(text)} digits") from None


def _join_surrogates(text: str) -> str:
    """Java escapes a character beyond the basic plane as two units; make them one character again."""
    if _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _hashable(value: dict[Any, Any]) -> dict[Any, Any]:
    if any(isinstance(member, (dict, list)) for member in value.values()):
        raise BodyError("an object used as a key may only have scalar members")
    return value


def _resolve(root: Any, path: str) -> Any:
    """The value a fastjson reference path points to: `$`, then `.name` and `[index]` steps."""
    value = root
    for name, index in re.findall(r"\.([^.\[\]]+)|\[(\d+)\]", path):
        try:
            value = value[name] if name else value[int(index)]
        except (KeyError, IndexError, TypeError, ValueError):
            raise BodyError(f"body refers to {path:.80}, which does not exist") from None
    return value


def _is_reference(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get("$ref"), str)


def _without_referred(value: Any, left: int) -> int:
    """The number of values that references may still add after one refers to `value`; stops at zero."""
    if _is_reference(value):
        raise BodyError(f"body refers to a part that refers to {value['$ref']:.80} in turn")
    left -= 1 + (len(value) // REFERRED_TEXT if isinstance(value, str) else 0)
    if left < 0:
        raise BodyError(f"body refers to more than {REFERRED_MAX} values")
    for member in _content(value):
        left = _without_referred(member, left)
    return left


_ESCAPED = re.compile(r'["\\\x00-\x1f\x7f-\x9f\u2028\u2029]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quote(text: str) -> str:
    """A text as Java writes it: short escapes where they exist, other control characters as \\u001F, the rest raw."""
    return '"' + _ESCAPED.sub(lambda m: _SHORT.get(m.group()) or f"\\u{ord(m.group()):04X}", text) + '"'


def _scalar(value: Any) -> str | None:
    """The text of a plain value, None for objects and arrays."""
    if isinstance(value, str):
        return quote(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else "null"
    return None


def _members(value: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    """Java leaves out members whose value is null."""
    return [(key, member) for key, member in value.items() if member is not None]


def _key_text(key: Any) -> str:
    return dumps(key) if isinstance(key, Mapping) else _scalar(key) or quote(str(key))


def dumps(value: Any) -> str:
    """Compact form: no spaces, null members omitted, numbers and objects as bare keys. Order is the mapping's own."""
    text = _scalar(value)
    if text is not None:
        return text
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_key_text(k)}:{dumps(v)}" for k, v in _members(value)) + "}"
    if isinstance(value, Iterable):
        return "[" + ",".join(map(dumps, value)) + "]"
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _pretty_key(key: Any, depth: int) -> str:
    return dumps_pretty(key, depth) if isinstance(key, Mapping) else _key_text(key)


def dumps_pretty(value: Any, depth: int = 0) -> str:
    """The form of Java's files: tabs, one member a line; number-keyed maps on one line, arrays of numbers inline."""
    inner, outer = "\n" + "\t" * (depth + 1), "\n" + "\t" * depth
    if isinstance(value, Mapping):
        members = [f"{_pretty_key(k, depth + 1)}:{dumps_pretty(v, depth + 1)}" for k, v in _members(value)]
        if not members:
            return "{}"
        if all(isinstance(key, (int, Mapping)) for key in value):
            return "{" + ",".join(members) + outer + "}"
        return "{" + inner + ("," + inner).join(members) + outer + "}"
    if isinstance(value, (list, tuple, set, frozenset)) and any(isinstance(item, Mapping) for item in value):
        return "[" + inner + ("," + inner).join(dumps_pretty(item, depth + 1) for item in value) + outer + "]"
    return dumps(value)
