"""Secrets come from where they are kept; none is a wrong use, not an empty secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.cli.secrets import secret_of
from orbitmq.errors import ConfigurationError


def test_a_secret_of_the_environment_or_of_a_file(tmp_path: Path) -> None:
    assert secret_of("KEY", None, {"KEY": "s"}) == "s"
    (tmp_path / "key").write_text("of the file\n")
    assert secret_of(None, tmp_path / "key", {}) == "of the file"
    assert secret_of(None, None, {}) is None


def test_a_secret_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    for variable, file in (("KEY", None), (None, tmp_path / "none"), (None, tmp_path / "empty")):
        with pytest.raises(ConfigurationError):
            secret_of(variable, file, {})
