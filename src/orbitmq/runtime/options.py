"""Options are declared once, as fields of frozen dataclasses: key, default, unit, check and one sentence.

The properties file, the printed configuration and the reference page are read from that declaration.
Keys are those of Apache RocketMQ. This module must not know any concrete option.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeAlias

from orbitmq.errors import ConfigurationError

Value: TypeAlias = str | int | float | bool | frozenset[int]

HIDDEN = "******"
CONFIGURATION_FILE_MAX = 1 << 20  # a properties file is a few KiB; a larger one is some other file


@dataclass(frozen=True)
class Option:
    """One declared option. `default` also sets the type: str, int, float, bool, or a set of numbers (written with
    spaces or commas between them).

    `pattern` must match the whole text; `changeable` means that its owner reads the value at each use, so that a change
    takes effect at run time, and that a peer on the network may change it. A `secret` value is in no error and no
    printed configuration. `from_environment` allows a variable as well, whose name its owner knows.
    """

    key: str
    default: Value
    text: str
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    pattern: str = ""
    changeable: bool = False
    secret: bool = False
    from_environment: bool = False

    def parse(self, text: str) -> Value:
        """The value of `text`; ConfigurationError names key, value and what is allowed."""
        value = self._convert(text.strip())
        if isinstance(value, float) and not math.isfinite(value):
            raise self._refused(text)
        number = None if isinstance(value, (str, frozenset)) else value
        too_small = self.minimum is not None and number is not None and number < self.minimum
        too_large = self.maximum is not None and number is not None and number > self.maximum
        other = bool(self.choices) and value not in self.choices
        if too_small or too_large or other or (self.pattern and not re.fullmatch(self.pattern, str(value))):
            raise self._refused(text)
        return value

    def allowed(self) -> str:
        """What may be written, in words."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        kind = {
            bool: "true or false",
            int: "a whole number",
            float: "a number",
            str: "text",
            frozenset: "whole numbers",
        }[type(self.default)]
        if self.minimum is not None and self.maximum is not None:
            return f"{kind} from {_limit(self.minimum)} to {_limit(self.maximum)}"
        if self.minimum is not None:
            return f"{kind}, at least {_limit(self.minimum)}"
        return kind

    def _convert(self, text: str) -> Value:
        try:
            if isinstance(self.default, bool):
                return {"true": True, "false": False}[text.lower()]
            if isinstance(self.default, int):
                return int(text)
            if isinstance(self.default, float):
                return float(text)
            if isinstance(self.default, frozenset):
                return frozenset(int(part) for part in text.replace(",", " ").split())
        except (KeyError, ValueError):
            raise self._refused(text) from None
        return text

    def _refused(self, text: str) -> ConfigurationError:
        return ConfigurationError(f"option {self.key}: value {self.shown(text)!r} is not allowed; use {self.allowed()}")

    def shown(self, value: object) -> object:
        """The value as people may see it."""
        return HIDDEN if self.secret and value else value


def _limit(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def option(
    key: str,
    default: Any,
    text: str,
    *,
    unit: str = "",
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Iterable[str] = (),
    pattern: str = "",
    changeable: bool = False,
    secret: bool = False,
) -> Any:
    """Declare a field of an `Options` class."""
    declared = Option(key, default, text, unit, minimum, maximum, tuple(choices), pattern, changeable, secret)
    return dataclasses.field(default=default, metadata={"option": declared}, repr=not secret)


@dataclass(frozen=True)
class Options:
    """Base of every option class: a frozen dataclass whose fields are made with `option`."""

    @classmethod
    def table(cls) -> dict[str, tuple[str, Option]]:
        """Key -> (attribute name, declaration), in the order of declaration."""
        fields = [f for f in dataclasses.fields(cls) if "option" in f.metadata]
        return {f.metadata["option"].key: (f.name, f.metadata["option"]) for f in fields}

    @classmethod
    def parse(cls, pairs: Mapping[str, str]) -> Self:
        """Read the keys this class declares from `pairs`; others are ignored."""
        table = cls.table()
        values = {table[key][0]: table[key][1].parse(text) for key, text in pairs.items() if key in table}
        return cls(**values)

    def pairs(self) -> dict[str, str]:
        """Key -> effective value in the form of a properties file."""
        return {key: as_text(getattr(self, name)) for key, (name, _) in self.table().items()}

    def replace(self, **changes: Any) -> Self:
        """A copy with attributes (not keys) changed."""
        return dataclasses.replace(self, **changes)


def change(options: Options, pairs: Mapping[str, str]) -> None:
    """Change options of a running process in place, so that everything that holds them sees it; all of them, or none
    and ConfigurationError. This is the only place that changes a frozen option.
    """
    changed = options.parse({**options.pairs(), **pairs})
    for name, _ in options.table().values():
        object.__setattr__(options, name, getattr(changed, name))


def as_text(value: Value) -> str:
    """A value as Java's properties files write it."""
    if isinstance(value, frozenset):
        return " ".join(map(str, sorted(value)))
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_properties(path: Path) -> dict[str, str]:
    """The pairs of a Java properties file; ConfigurationError names the file and the cause."""
    import javaproperties  # only daemons read such files; Spark executors have options without having the package

    try:
        if path.stat().st_size > CONFIGURATION_FILE_MAX:
            raise ConfigurationError(f"{path}: larger than {CONFIGURATION_FILE_MAX} bytes, this is no properties file")
        with path.open(encoding="utf-8") as file:
            return dict(javaproperties.load(file))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(f"{path}: cannot be read as a properties file: {reason}") from error


def rewrite_properties(path: Path, pairs: Mapping[str, str]) -> str:
    """The text of a properties file with some values replaced or added; comments and the other lines stay.

    ConfigurationError as in `read_properties`.
    """
    import javaproperties

    try:
        file = javaproperties.PropertiesFile.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(f"{path}: cannot be read as a properties file: {reason}") from error
    file.update(pairs)
    return file.dumps()


def unknown_keys(pairs: Mapping[str, str], *known: type[Options]) -> list[str]:
    """Keys of `pairs` that none of the option classes declares."""
    declared = {key for options in known for key in options.table()}
    return [key for key in pairs if key not in declared]
