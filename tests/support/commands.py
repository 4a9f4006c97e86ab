"""The `orbitmq` command, run inside the test; what it prints as JSON is held against the published schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
from typer.testing import CliRunner

from orbitmq.cli.main import app

SCHEMAS = Path(__file__).parents[2] / "docs" / "reference" / "schemas"


def orbitmq(*arguments: object, code: int | None = 0, typed: str | bytes | None = None) -> Any:
    """The result of `orbitmq ARGUMENTS`, which must end with `code`, None for any; `typed` is its standard input."""
    result = CliRunner().invoke(app, list(map(str, arguments)), input=typed, prog_name="orbitmq")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert code in (None, result.exit_code), f"{result.exit_code}: {result.output}"
    return result


def answer(*arguments: object, code: int | None = 0) -> dict[str, Any]:
    """The envelope it prints with -o json, valid by the schema of its kind."""
    told: dict[str, Any] = json.loads(orbitmq(*arguments, "-o", "json", code=code).stdout)
    schema = json.loads((SCHEMAS / f"{told['kind']}.json").read_text(encoding="utf-8"))
    jsonschema.validate(told, schema, format_checker=jsonschema.FormatChecker())
    return told


def items(*arguments: object, code: int | None = 0) -> list[dict[str, Any]]:
    """The items of that envelope."""
    found: list[dict[str, Any]] = answer(*arguments, code=code)["items"]
    return found
