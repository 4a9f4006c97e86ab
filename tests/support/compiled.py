"""Tests with the modules compiled, as users get them.

Such a module takes no object of a test's own in place of one of a compiled class, and lets nobody replace its methods.
A test that tries is told from one that fails: it is skipped, and says so. It runs with the modules interpreted.
"""

from __future__ import annotations

import inspect
import re
import sys
import traceback
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

import orbitmq
from orbitmq.store.index.loops import IS_COMPILED

PLACE = str(Path(orbitmq.__file__).parent)
_NAMED = re.compile(r"orbitmq\.[\w.]+ object expected; got (tests\.|types\.SimpleNamespace)")
_UNNAMED = re.compile(
    r"'\w+' object attribute '\w+' is read-only"
    r"|interpreted classes cannot inherit from compiled"
    r"|nobody would call it there: "
)


def stand_in_refused(error: BaseException) -> str | None:
    """Why a test cannot run with compiled modules; None when that is not what ended it."""
    if not IS_COMPILED or not isinstance(error, TypeError | AttributeError):
        return None
    text = str(error)
    if not _NAMED.match(text) and not (_UNNAMED.match(text) and not _is_raised_by_us(error)):
        return None
    return f"it puts something of its own in place of what is compiled: {error}"


def _is_raised_by_us(error: BaseException) -> bool:
    """Whether it left code of orbitmq: then it is a fault, whatever it says."""
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    return last.startswith((PLACE, "src/orbitmq"))


def refuse_stand_ins() -> None:
    """Have pytest's monkeypatch say so where compiled code would go on calling what is replaced."""
    replace = pytest.MonkeyPatch.setattr

    @wraps(replace)
    def checked(self: pytest.MonkeyPatch, target: Any, name: Any, *rest: Any, **more: Any) -> None:
        place = target if inspect.ismodule(target) else sys.modules.get(getattr(target, "__module__", ""))
        file = getattr(place, "__file__", None) or ""
        if file.endswith(".so") and file.startswith(PLACE) and callable(getattr(target, name, None)):
            raise TypeError(f"nobody would call it there: {target}.{name}")
        replace(self, target, name, *rest, **more)

    pytest.MonkeyPatch.setattr = checked  # type: ignore[method-assign,assignment]
