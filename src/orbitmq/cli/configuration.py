"""The configuration of a daemon: a properties file, flags that override it, and warnings about odd keys.

Must not know any daemon: callers pass the option classes that parse the pairs.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path

from orbitmq.cli.foreign_keys import FIXED, OF_THE_BROKER, WITHOUT_EFFECT, check_fixed
from orbitmq.errors import ConfigurationError
from orbitmq.runtime.options import Options, read_properties, unknown_keys


def read(
    file: Path | None, flags: Mapping[str, str | None], *known: type[Options], settings: Sequence[str] = ()
) -> tuple[dict[str, str], list[str]]:
    """The pairs, and one warning for each key without effect. Flags override `settings`, `KEY=VALUE` each, and those
    override the file.

    ConfigurationError if the file cannot be read, requires something that orbitmq does not do, or if a setting has no
    known key.
    """
    pairs = read_properties(file) if file else {}
    odd = unknown_keys(pairs, *known)
    for key in filter(FIXED.__contains__, odd):
        check_fixed(key, pairs[key])
    remarks = [f"{file}: {_remark(key, known)}" for key in odd if key not in FIXED]
    given = {key: value for key, value in flags.items() if value is not None}
    return pairs | _settings(settings, known) | given, remarks


def _settings(settings: Sequence[str], known: tuple[type[Options], ...]) -> dict[str, str]:
    pairs = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigurationError(f"--set {setting}: use KEY=VALUE")
        pairs[key.strip()] = value
    for key in unknown_keys(pairs, *known):
        raise ConfigurationError(f"--set {key}: there is no such option{_near(key, known)}")
    return pairs


def _remark(key: str, known: tuple[type[Options], ...]) -> str:
    reason = WITHOUT_EFFECT.get(key) or OF_THE_BROKER.get(key)
    if reason:
        return f"{key} has no effect in orbitmq: {reason}"
    return f"unknown key {key} is ignored{_near(key, known)}"


def _near(key: str, known: tuple[type[Options], ...]) -> str:
    names = [name for options in known for name in options.table()]
    near = difflib.get_close_matches(key, names, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def as_properties(*options: Options) -> str:
    """The effective configuration in the format of a properties file, one line for each key."""
    declared = {key: option for table in options for key, (_, option) in table.table().items()}
    pairs = {key: value for table in options for key, value in table.pairs().items()}
    return "".join(f"{key}={_escaped(str(declared[key].shown(value)))}\n" for key, value in pairs.items())


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return "\\" + text if text[:1].isspace() else text
