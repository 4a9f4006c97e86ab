"""The role that a promotion gave is read as it was written, and a file that says nothing useful is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.broker.slave.kept_role import is_fresh, keep_role, kept_role_path, settle_role, with_kept_role
from orbitmq.errors import StoreDamaged
from orbitmq.store.options import ASYNC_MASTER, SLAVE, SYNC_MASTER, StoreOptions


@pytest.fixture
def options(tmp_path: Path) -> StoreOptions:
    """Of a slave."""
    return StoreOptions.parse({"storePathRootDir": str(tmp_path), "brokerRole": SLAVE})


def test_the_role_counts_until_the_file_is_removed(options: StoreOptions) -> None:
    assert with_kept_role(options) == options
    keep_role(options, ASYNC_MASTER)
    keep_role(options, SYNC_MASTER)  # which leaves the former as a backup
    assert with_kept_role(options).broker_role == SYNC_MASTER
    kept_role_path(options).unlink()
    assert with_kept_role(options) == options
    assert not is_fresh(options)


def test_it_is_fresh_until_it_is_settled(options: StoreOptions) -> None:
    settle_role(options)
    assert not kept_role_path(options).exists(), "a broker that was never promoted has no role to keep"
    keep_role(options, SYNC_MASTER)
    assert is_fresh(options)
    settle_role(options)
    assert not is_fresh(options)
    assert with_kept_role(options).broker_role == SYNC_MASTER
    keep_role(options, SYNC_MASTER)
    assert is_fresh(options), "promoted once more"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"brokerRole": "SLAVE"}'])
def test_what_is_no_role_is_named(options: StoreOptions, text: str) -> None:
    path = kept_role_path(options)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(StoreDamaged, match=f"{path} cannot be read; repair or remove it"):
        with_kept_role(options)
    assert is_fresh(options), "a broker that is configured as a master starts, and takes care"
    settle_role(options)
    assert path.read_text() == text
