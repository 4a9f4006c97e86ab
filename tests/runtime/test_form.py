"""An installation knows its form, and says why it is interpreted."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq import __version__
from orbitmq.runtime import form as module
from orbitmq.runtime.form import COMPILED, INTERPRETED, described, form
from orbitmq.store.index.loops import IS_COMPILED


def test_the_form_is_that_of_the_modules() -> None:
    assert form() == (COMPILED if IS_COMPILED else INTERPRETED)


def test_an_interpreted_installation_gives_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "form", lambda: INTERPRETED)
    cost = "a message costs about twice the CPU"
    assert described(tmp_path) == f"{__version__} (interpreted: from a source tree; {cost})"
    (tmp_path / "interpreted.txt").write_text("there is no C compiler (cc)\n")
    assert described(tmp_path) == f"{__version__} (interpreted: there is no C compiler (cc); {cost})"
