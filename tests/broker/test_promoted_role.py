"""The role that a promotion gave is read as it was written, and a file that says nothing useful is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.broker.slave.promoted_role import is_recently_promoted, save_promoted_role, promoted_role_path, mark_clients_moved, with_promoted_role
from orbitmq.errors import StoreDamaged
from orbitmq.store.options import ASYNC_MASTER, SLAVE, SYNC_MASTER, StoreOptions


@pytest.fixture
def options(tmp_path: Path) -> StoreOptions:
    """Of a slave."""
    return StoreOptions.parse({"storePathRootDir": str(tmp_path), "brokerRole": SLAVE})


def test_the_role_counts_until_the_file_is_removed(options: StoreOptions) -> None:
    assert with_promoted_role(options) == options
    save_promoted_role(options, ASYNC_MASTER)
    save_promoted_role(options, SYNC_MASTER)  # which leaves the former as a backup
    assert with_promoted_role(options).broker_role == SYNC_MASTER
    promoted_role_path(options).unlink()
    assert with_promoted_role(options) == options
    assert not is_recently_promoted(options)


def test_it_is_fresh_until_it_is_settled(options: StoreOptions) -> None:
    mark_clients_moved(options)
    assert not promoted_role_path(options).exists(), "a broker that was never promoted has no role to keep"
    save_promoted_role(options, SYNC_MASTER)
    assert is_recently_promoted(options)
    mark_clients_moved(options)
    assert not is_recently_promoted(options)
    assert with_promoted_role(options).broker_role == SYNC_MASTER
    save_promoted_role(options, SYNC_MASTER)
    assert is_recently_promoted(options), "promoted once more"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"brokerRole": "SLAVE"}'])
def test_what_is_no_role_is_named(options: StoreOptions, text: str) -> None:
    path = promoted_role_path(options)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(StoreDamaged, match=f"{path} cannot be read; repair or remove it"):
        with_promoted_role(options)
    assert is_recently_promoted(options), "a broker that is configured as a master starts, and takes care"
    mark_clients_moved(options)
    assert path.read_text() == text
