"""Files that any part keeps its state in, when one of them is there and cannot be read: an error that names the file,
never a silent beginning, and the file stays as it is. What a broker recovers is in test_live_damaged_state.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from orbitmq.broker.access import files as acl
from orbitmq.broker.mastership.record import MastershipRecord
from orbitmq.broker.slave.kept_role import keep_role, kept_role_path, with_kept_role
from orbitmq.cli import contexts
from orbitmq.client.offset_store import FileOffsets
from orbitmq.client.outbox.file import OutboxFile
from orbitmq.dashboard.accounts import AccountFile, put
from orbitmq.dashboard.roles import Role
from orbitmq.errors import OrbitMQError
from orbitmq.message.model import MessageQueue
from orbitmq.namesrv.kv import KVConfig
from orbitmq.pipeline import moves
from orbitmq.pipeline.moves import Migration
from orbitmq.store.options import ASYNC_MASTER, SLAVE, StoreOptions
from tests.support.access import PLAIN_ACL, write_acl

QUEUE = MessageQueue("T", "b", 0)
CLUSTERS = ("here", "there")


class Part(NamedTuple):
    """How a part writes its file below a directory, twice where it keeps a backup; and reads it: the error is named."""

    write: Callable[[Path], Path]
    read: Callable[[Path], Any]
    has_backup: bool = True
    has_to_be_there: bool = False
    cut: bytes | None = None
    """What is left of it where half a file may be a whole one."""


def options(root: Path) -> StoreOptions:
    return StoreOptions(store_path_root_dir=str(root), broker_role=SLAVE)


def write_settings(root: Path) -> Path:
    settings = KVConfig(root / "kv.json")
    settings.put("N", "k", "1")
    settings.put("N", "k", "2")
    return root / "kv.json"


def write_role(root: Path) -> Path:
    for _ in range(2):
        keep_role(options(root), ASYNC_MASTER)
    return kept_role_path(options(root))


def write_mastership(root: Path) -> Path:
    record = MastershipRecord(options(root))
    record.save(epoch=1)
    record.save(epoch=2)
    return record.path


async def offsets(root: Path) -> int:
    """Add one to what is stored; tells what was there."""
    store = FileOffsets(str(root), "10.0.0.1@DEFAULT", "g")
    try:
        await store.open()
        before = await store.stored(QUEUE)
        store.table.raise_to(QUEUE, max(before, 0) + 1)
        await store.commit([QUEUE])
    finally:
        store.close()
    return before


def write_offsets(root: Path) -> Path:
    for _ in range(2):
        asyncio.run(offsets(root))
    return root / "10.0.0.1@DEFAULT/g/offsets.json"


def write_migration(root: Path) -> Path:
    for passes in range(2):
        Migration("m", CLUSTERS, passes).save(root / "state.json")
    return root / "state.json"


def write_accounts(root: Path) -> Path:
    put(root / "dashboard.toml", "anna", Role.ADMIN, "correct horse")
    return root / "dashboard.toml"


def write_contexts(root: Path) -> Path:
    path = root / "config.toml"
    path.write_text('current = "production"\n\n[contexts.production]\nname-servers = ["10.0.0.1:9876"]\n')
    return path


def outbox(root: Path) -> OutboxFile:
    return OutboxFile(root, bytes_max=1 << 20, deliver=lambda callback: callback())


def write_outbox(root: Path) -> Path:
    file = outbox(root)
    for _ in range(50):
        file.put(file.next_number(), bytes(1000), lambda _error: None)
    file.close()
    return root / "data.mdb"


PARTS = {
    "kvConfig.json": Part(write_settings, lambda root: KVConfig(root / "kv.json").load()),
    "promoted.json": Part(write_role, lambda root: with_kept_role(options(root))),
    "mastership.json": Part(write_mastership, lambda root: MastershipRecord(options(root))),
    "offsets.json": Part(write_offsets, lambda root: asyncio.run(offsets(root))),
    "a migration's state": Part(write_migration, lambda root: moves.load(root / "state.json", CLUSTERS)),
    "dashboard.toml": Part(
        write_accounts,
        lambda root: AccountFile(root / "dashboard.toml").accounts(),
        has_backup=False,
        has_to_be_there=True,
    ),
    "plain_acl.yml": Part(
        lambda root: write_acl(root, PLAIN_ACL),
        lambda root: acl.parse(root / "conf/plain_acl.yml", acl.load_document(root / "conf/plain_acl.yml")),
        has_backup=False,
        has_to_be_there=True,
        cut=PLAIN_ACL.encode()[:10],
    ),
    "config.toml": Part(write_contexts, lambda root: contexts.load(root / "config.toml"), has_backup=False),
    "data.mdb": Part(write_outbox, lambda root: outbox(root).close(), has_backup=False),
}


@pytest.mark.parametrize("kind", ["empty", "cut"])
@pytest.mark.parametrize("name", PARTS)
def test_a_damaged_file_without_a_backup_is_an_error_that_names_it(tmp_path: Path, name: str, kind: str) -> None:
    part = PARTS[name]
    path = part.write(tmp_path)
    path.with_name(path.name + ".bak").unlink(missing_ok=True)
    half = path.read_bytes()[: path.stat().st_size // 2]
    damaged = b"" if kind == "empty" else part.cut or half
    path.write_bytes(damaged)
    for _ in range(2):
        with pytest.raises(OrbitMQError) as raised:
            part.read(tmp_path)
        assert str(path) in str(raised.value)
        assert path.read_bytes() == damaged, "nothing is written over it"
    if not part.has_to_be_there:
        path.unlink()
        part.read(tmp_path)


@pytest.mark.parametrize("kind", ["empty", "cut"])
@pytest.mark.parametrize("name", [name for name, part in PARTS.items() if part.has_backup])
def test_a_backup_stands_in_for_a_damaged_file_and_the_log_says_so(
    tmp_path: Path, name: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    part = PARTS[name]
    path = part.write(tmp_path)
    assert path.with_name(path.name + ".bak").exists()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 if kind == "cut" else 0])
    part.read(tmp_path)
    assert f"event=state_file_replaced path={path}" in caplog.text
