"""Undo files: the state before a destructive change, from which it can be restored.

They are in `~/.local/state/orbitmq/undo` (XDG_STATE_HOME is followed). Must not know what a file undoes.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orbitmq.cli.places import state_folder
from orbitmq.errors import BadArgument, ConfigurationError

FORMAT = "orbitmq-undo/v1"
FILE_BYTES_MAX = 64 << 20
"""Offsets of a hundred thousand queues are 10 MB."""


def save(undo: Mapping[str, Any]) -> str:
    """Write the file before anything is changed, and return the command that restores it: `offset undo FILE`.
    `undo["command"]` names the command."""
    place = state_folder("undo")
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = place / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{time.monotonic_ns()}.json"
    with path.open("x", encoding="utf-8") as file:
        json.dump({"format": FORMAT, "savedAtMs": time.time_ns() // 1_000_000, **undo}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    return f"{undo['command']} {path}"


def load(path: Path, *commands: str) -> dict[str, Any]:
    """Read a file that `save` wrote for one of these commands. ConfigurationError for anything else, BadArgument if it
    cannot be read.
    """
    try:
        data = path.read_bytes()[:FILE_BYTES_MAX]
        undo = json.loads(data)
    except OSError as error:
        raise BadArgument(f"{path}: {error.strerror}", f"undo files are in {state_folder('undo')}") from error
    except ValueError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    if not isinstance(undo, dict) or undo.get("format") != FORMAT or undo.get("command") not in commands:
        raise ConfigurationError(f"{path}: not an undo file of `orbitmq {commands[0]}`")
    return undo
