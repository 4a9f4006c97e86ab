"""The user's directories of the command line, for state and for caches.

XDG_STATE_HOME and XDG_CACHE_HOME are followed. Must not know what is in them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def state_folder(name: str, environment: Mapping[str, str] = os.environ) -> Path:
    """`~/.local/state/orbitmq/NAME`: files to keep."""
    return _home("XDG_STATE_HOME", "~/.local/state", environment) / "orbitmq" / name


def cache_folder(name: str, environment: Mapping[str, str] = os.environ) -> Path:
    """`~/.cache/orbitmq/NAME`: files that can be created again."""
    return _home("XDG_CACHE_HOME", "~/.cache", environment) / "orbitmq" / name


def _home(variable: str, usual: str, environment: Mapping[str, str]) -> Path:
    return Path(environment.get(variable) or usual).expanduser()
