"""Reads secrets from a variable or a file, never from the command line, which every user of the machine can read."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from orbitmq.errors import ConfigurationError


def secret_of(variable: str | None, file: Path | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """None if neither is given; `-` for the file is standard input. ConfigurationError if there is no secret."""
    if variable is not None:
        if not environment.get(variable):
            raise ConfigurationError(f"the environment has no {variable}")
        return environment[variable]
    if file is None:
        return None
    try:
        text = sys.stdin.readline() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"{file}: {error}") from error
    if not text.strip():
        raise ConfigurationError(f"{file}: no secret in it")
    return text.strip()
