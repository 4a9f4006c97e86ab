"""Accounts are hashed, read again when the file changes, and refused by name when something is wrong with it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orbitmq.dashboard import accounts
from orbitmq.dashboard.accounts import UNKNOWN_NAME_HASH, AccountFile, hashed, is_right, put, remove
from orbitmq.dashboard.roles import Role, role_of
from orbitmq.errors import ConfigurationError

PASSWORD = "a long enough one"


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost stands in each hash: what is proven holds for any."""
    monkeypatch.setattr(accounts, "COST", 16)


def test_a_password_is_known_by_its_hash_and_nothing_else() -> None:
    kept = hashed(PASSWORD)
    assert PASSWORD not in kept
    assert is_right(PASSWORD, kept)
    assert not is_right(PASSWORD + "x", kept)
    assert not is_right("x" * 5000, kept)
    assert hashed(PASSWORD) != kept, "salted"
    assert not is_right("", UNKNOWN_NAME_HASH)


def test_what_is_no_password_is_refused() -> None:
    for wrong in ("short", "x" * 2000):
        with pytest.raises(ConfigurationError, match="a password has 8 characters"):
            hashed(wrong)


def test_accounts_come_and_go_while_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "dashboard.toml"
    put(path, "anna", Role.ADMIN, PASSWORD)
    assert path.stat().st_mode & 0o777 == 0o600
    file = AccountFile(path)
    assert file.accounts()["anna"].role is Role.ADMIN
    path.write_text("# ours\n" + path.read_text())
    put(path, "ben.o'x", Role.VIEWER, PASSWORD)
    assert {name: one.role for name, one in file.accounts().items()} == {"anna": Role.ADMIN, "ben.o'x": Role.VIEWER}
    put(path, "anna", Role.OPERATOR, PASSWORD + "2")
    os.utime(path, (1, 1))
    anna = file.accounts()["anna"]
    assert anna.role is Role.OPERATOR
    assert is_right(PASSWORD + "2", anna.hashed)
    remove(path, "anna")
    assert list(file.accounts()) == ["ben.o'x"]
    assert path.read_text().startswith("# ours\n")
    with pytest.raises(ConfigurationError, match="there is no account anna"):
        remove(path, "anna")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[accounts.a]\nrole = 'chief'\npassword = 'x'", "there is no role 'chief'"),
        ("[accounts.a]\nrole = 'admin'", "needs a role and a password"),
        ("[accounts.a]\nrole = 'admin'\npassword = 'plain text'", "hashed"),
        ("[accounts.a]\nrole = 'admin'\npassword = 'scrypt$1048576$64$1$AA==$AA=='", "MiB"),
        ("[accounts.a]\nrole = 'admin'\npassword = 'scrypt$16$8$1$?$AA=='", ""),
        ("accounts = 3", ""),
        ("[[", ""),
        ("\xff", ""),
    ],
)
def test_a_file_that_is_wrong_is_named(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "dashboard.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigurationError, match=f"dashboard.toml: .*{told}"):
        AccountFile(path).accounts()


def test_a_file_that_is_missing_tells_how_one_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="orbitmq dashboard account NAME"):
        AccountFile(tmp_path / "none.toml").accounts()


def test_names_and_roles() -> None:
    assert [role_of(role.word) for role in Role] == list(Role)
    for name in ("", "x" * 65, "a\nb"):
        with pytest.raises(ConfigurationError, match="printable"):
            put(Path("never"), name, Role.VIEWER, PASSWORD)
