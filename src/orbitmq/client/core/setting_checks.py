"""Valid values of settings, and suggestions for misspelled names. Pure; knows no concrete setting."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import cast

from orbitmq.errors import ConfigurationError
from orbitmq.message.properties import UNPAIRED, can_travel
from orbitmq.runtime.options import Option, Value, as_text

CONSTRUCTOR = (
    "namesrv_addr", "outbox", "listener", "message_model", "consume_from_where", "consume_timestamp",
    "allocate_strategy", "offset_store",
)  # fmt: skip
"""Keywords of constructors that are no settings but may be misspelled as well."""


def meant(name: str, declared: Mapping[str, Option]) -> str:
    """The setting that this unknown name probably means."""
    by_key = [known for known, option in declared.items() if option.key.lower() == name.lower()]
    longer = [known for known in declared if known.startswith(f"{name}_")]
    close = difflib.get_close_matches(name.lower(), [*declared, *CONSTRUCTOR], n=2, cutoff=0.7)
    if found := by_key or longer or close:
        return f"did you mean {' or '.join(found)}?"
    return f"it has {', '.join(sorted(declared))}"


def check(name: str, option: Option, value: object) -> None:
    """ConfigurationError names setting, value and allowed values, unless the value is one of them."""
    if isinstance(value, int) and abs(value) >= 1 << 63:  # whose digits Python may refuse to write
        raise ConfigurationError(f"setting {name}: the number is not allowed; use {option.allowed()}")
    is_right = type(value) is type(option.default)
    if isinstance(value, frozenset):
        is_right = is_right and all(type(item) is int for item in value)
    kind = "" if is_right else f" of type {type(value).__name__}"
    refused = f"setting {name}: value {option.shown(value)!r}{kind} is not allowed"
    if isinstance(value, str) and not can_travel(value):
        raise ConfigurationError(f"{refused}: it {UNPAIRED}")
    try:
        if is_right:
            option.parse(as_text(cast("Value", value)))
            return
    except ConfigurationError:
        pass
    raise ConfigurationError(f"{refused}; use {option.allowed()}")
