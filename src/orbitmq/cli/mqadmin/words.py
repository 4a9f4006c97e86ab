"""Parses the command line of an mqadmin command as RocketMQ's tool does: `-t T`, `-tT`, `--topic T`, `--topic=T`,
`-topic T`, and unambiguous prefixes of long names. Must not know what a command does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orbitmq.cli.mqadmin.table import Letter, Stock
from orbitmq.errors import ConfigurationError

NAME_SERVERS = Letter("n", "namesrvAddr", takes_value=True, required=False, alternative=False)
HELP = Letter("h", "help", takes_value=False, required=False, alternative=False)


@dataclass(frozen=True, slots=True)
class Given:
    """The options of one call, by letter."""

    command: str
    values: Mapping[str, str] = field(default_factory=dict)

    def __contains__(self, letter: str) -> bool:
        return letter in self.values

    def text(self, letter: str, default: str = "") -> str:
        return self.values.get(letter, default).strip()

    def number(self, letter: str, default: int) -> int:
        """ConfigurationError if it is not a number."""
        text = self.values.get(letter)
        if text is None:
            return default
        try:
            return int(text)
        except ValueError:
            raise ConfigurationError(f"-{letter} {text}: use an integer") from None

    def truth(self, letter: str, default: bool) -> bool:
        """`true` in upper or lower case is true; everything else is false, as in Java."""
        text = self.values.get(letter)
        return default if text is None else text.strip().lower() == "true"


def read(command: Stock, words: Sequence[str]) -> Given:
    """ConfigurationError names an unknown word or a missing option."""
    letters = (*command.letters, NAME_SERVERS, HELP)
    values: dict[str, str] = {}
    rest = list(words)
    while rest:
        option, value = _option(command, letters, rest.pop(0))
        if option.takes_value and value is None:
            if not rest:
                raise ConfigurationError(f"-{option.letter} needs a value")
            value = rest.pop(0)
        values[option.letter] = value or ""
    if "h" not in values:
        _complete(command, values)
    return Given(command.name, values)


def _option(command: Stock, letters: Sequence[Letter], word: str) -> tuple[Letter, str | None]:
    """The option of a word, and the value if the word includes it."""
    name, equals, value = word.lstrip("-").partition("=")
    if not word.startswith("-") or not name:
        raise ConfigurationError(f"{word!r} is not an option of {command.name}; orbitmq mqadmin help {command.name}")
    short = {one.letter: one for one in letters}
    if len(name) == 1 and name in short and not equals:
        return short[name], None
    meant = [one for one in letters if one.long == name] or [one for one in letters if one.long.startswith(name)]
    if len(meant) == 1 and len(name) > 1:
        return meant[0], value if equals else None
    if not word.startswith("--") and name[0] in short and short[name[0]].takes_value:
        return short[name[0]], word[2:]
    raise ConfigurationError(f"{command.name} has no option {word}; orbitmq mqadmin help {command.name}")


def _complete(command: Stock, values: Mapping[str, str]) -> None:
    missing = [f"-{one.letter} {one.long}" for one in command.letters if one.required and one.letter not in values]
    alternatives = [one for one in command.letters if one.alternative]
    if alternatives and not any(one.letter in values for one in alternatives):
        missing.append(" or ".join(f"-{one.letter} {one.long}" for one in alternatives))
    if missing:
        raise ConfigurationError(f"{command.name} needs {', '.join(missing)}")
