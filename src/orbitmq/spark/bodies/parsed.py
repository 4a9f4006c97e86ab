"""The result of parsing one body, and the JSON text of what is rescued. Knows no format."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class ParsedBody:
    """`value` has the fields that fit, `rescued` the others by their path, `errors` say what did not fit."""

    value: Mapping[str, Any] | None
    rescued: dict[str, Any] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


Parse = Callable[[bytes], ParsedBody]


class Misfit(ValueError):
    """A value that the schema does not allow."""


def nothing(body: bytes, error: str) -> ParsedBody:
    """A body of which nothing fits: rescued as a whole under the empty path, bytes that are no text as base64."""
    return ParsedBody(None, {"": as_json_value(body)}, [error])


def as_json_value(data: bytes) -> str:
    """Bytes as JSON can have them: text where they are UTF-8, else base64."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()


def as_json(rescued: Mapping[str, Any]) -> str:
    """The text of column `_rescued`."""
    try:
        return json.dumps(rescued)
    except RecursionError:  # a value may be too deeply nested to be written; the column `body` has it
        return json.dumps(dict.fromkeys(rescued))


def misfit(value: Any, kind: object) -> Misfit:
    """The error for a value that is not of this type."""
    return Misfit(f"{as_json({'': value})[5:-1][:100]} is no {kind}")
