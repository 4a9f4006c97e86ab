"""A small file survives a crash at any step of its replacement, and damage is never taken for an empty file."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orbitmq.errors import BodyError, StoreDamaged
from orbitmq.runtime import files
from orbitmq.runtime.files import damaged_files, load_with_backup, recover, save_with_backup, whole_entries


class Crash(BaseException):
    """The machine stops here."""


def parse(text: str) -> str:
    if not (text.startswith("<") and text.endswith(">")):
        raise BodyError("damaged")
    return text


def load(path: Path) -> str | None:
    return load_with_backup(path, parse)


@contextmanager
def crash_at(step: int, patch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Stop at the n-th thing that reaches the disk; half of what a write was to bring is there then."""
    taken: list[str] = []

    def stopping(name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def fs(*arguments: Any) -> Any:
            if len(taken) == step:
                if name == "write":
                    arguments[0].write_bytes(arguments[1][: len(arguments[1]) // 2])
                raise Crash
            taken.append(name)
            return act(*arguments)

        return fs

    with patch.context() as context:
        context.setattr(files, "_write_synced", stopping("write", files._write_synced))
        context.setattr(os, "replace", stopping("rename", os.replace))
        yield taken


def test_a_file_is_saved_and_read_back_and_its_predecessor_kept(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    assert load(path) is None
    save_with_backup(path, "<first>")
    save_with_backup(path, "<zweite ü>")
    assert load(path) == "<zweite ü>"
    assert path.with_name("topics.json.bak").read_text() == "<first>"
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["topics.json", "topics.json.bak"]


@pytest.mark.parametrize("step", range(5))
def test_a_crash_between_any_two_steps_leaves_the_old_or_the_new_content(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "topics.json"
    save_with_backup(path, "<oldest>")
    save_with_backup(path, "<old>")
    steps: list[str] = []
    try:
        with crash_at(step, monkeypatch) as steps:
            save_with_backup(path, "<new>")
    except Crash:
        assert load(path) == "<old>"
    else:
        assert steps == ["write", "write", "rename", "rename"]
        assert load(path) == "<new>"
    save_with_backup(path, "<after>")
    assert load(path) == "<after>"


@pytest.mark.parametrize("room", [0, 1])
def test_a_full_disk_leaves_file_and_backup_as_they_were(
    tmp_path: Path, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the new content or the copy of the old one is what does not fit."""
    path = tmp_path / "topics.json"
    save_with_backup(path, "<oldest>")
    save_with_backup(path, "<old>")
    sync, left = os.fdatasync, [room]

    def fdatasync(descriptor: int) -> None:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= 1
        sync(descriptor)

    with monkeypatch.context() as full:
        full.setattr(os, "fdatasync", fdatasync)
        with pytest.raises(OSError, match="No space"):
            save_with_backup(path, "<new>")
    assert load(path) == "<old>"
    assert load(path.with_name("topics.json.bak")) == "<oldest>"
    save_with_backup(path, "<new>")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["topics.json", "topics.json.bak"]
    assert (load(path), load(path.with_name("topics.json.bak"))) == ("<new>", "<old>")


@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "not text"])
def test_the_backup_stands_in_for_a_damaged_file(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "topics.json"
    save_with_backup(path, "<old>")
    save_with_backup(path, "<new>")
    inflict(damage, path)
    assert load(path) == "<old>"


@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "not text"])
@pytest.mark.parametrize("backup_damage", ["empty", "cut", "not text"])
def test_a_damaged_backup_is_not_taken_for_a_fresh_start(tmp_path: Path, damage: str, backup_damage: str) -> None:
    path = tmp_path / "topics.json"
    save_with_backup(path, "<old>")
    save_with_backup(path, "<new>")
    inflict(damage, path)
    inflict(backup_damage, path.with_name("topics.json.bak"))
    with pytest.raises(StoreDamaged, match=r"topics\.json"):
        load(path)


@pytest.mark.parametrize("damage", ["empty", "cut", "not text"])
def test_a_damaged_file_without_a_backup_is_not_taken_for_a_fresh_start(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "topics.json"
    save_with_backup(path, "<old>")
    inflict(damage, path)
    with pytest.raises(StoreDamaged, match=r"topics\.json"):
        load(path)


def test_with_nothing_left_it_is_a_fresh_start(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    save_with_backup(path, "<old>")
    save_with_backup(path, "<new>")
    inflict("gone", path)
    inflict("gone", path.with_name("topics.json.bak"))
    assert load(path) is None
    assert recover(path, parse) == (None, "")


def test_a_file_that_is_first_saved_while_it_is_read_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, look = tmp_path / "state.json", Path.is_file

    def saved_after_the_look(place: Path) -> bool:
        monkeypatch.setattr(Path, "is_file", look)
        found = look(place)
        save_with_backup(path, "<1>")
        return found

    monkeypatch.setattr(Path, "is_file", saved_after_the_look)
    assert load(path) is None
    assert load(path) == "<1>"


@pytest.mark.parametrize("damage", ["empty", "cut", "not text"])
def test_a_damaged_file_never_replaces_a_good_backup(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "topics.json"
    save_with_backup(path, "<old>")
    save_with_backup(path, "<new>")
    inflict(damage, path)
    damaged = path.read_bytes()
    assert recover(path, parse).value == "<old>"
    save_with_backup(path, "<later>")
    assert (load(path), load(path.with_name("topics.json.bak"))) == ("<later>", "<old>")
    assert damaged_files(tmp_path) == ["topics.json.damaged-1"]
    assert (tmp_path / "topics.json.damaged-1").read_bytes() == damaged


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"v":{"n":1},"t":{"a":{"x":1,"y":2},"b":{"x":1,', '{"v":{"n":1},"t":{"a":{"x":1,"y":2}}}'),
        ('{"v":{"n":1},"t":{"a":{"x":1}', '{"v":{"n":1},"t":{"a":{"x":1}}}'),
        ('{"t":{"a":12,"b":34', '{"t":{"a":12}}'),
        ('{"t":{"a,\\"}":1,"b":2', '{"t":{"a,\\"}":1}}'),
        ('{"t":{"a":1}}', '{"t":{"a":1}}'),
        ("{", ""),
        ("", ""),
        ("]", ""),
    ],
)
def test_of_a_file_that_was_cut_off_whole_entries_are_kept(text: str, expected: str) -> None:
    assert whole_entries(text) == expected


def test_the_names_are_on_the_disk_when_a_file_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(files, "sync_directory", synced.append)
    save_with_backup(tmp_path / "topics.json", "<new>")
    files.replace_text(tmp_path / "context", "new")
    assert synced == [tmp_path, tmp_path]


def inflict(damage: str, path: Path) -> None:
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes({"empty": b"", "cut": path.read_bytes()[:-1], "not text": b"<\xff>"}[damage])
