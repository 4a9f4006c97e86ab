"""Key-value settings survive the process in the file Java writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import RequestRejected, StoreDamaged
from orbitmq.namesrv import kv as kv_module
from orbitmq.namesrv.kv import KVConfig
from tests.support.golden import GOLDEN


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "namesrv" / "kvConfig.json"


def test_values_survive_a_restart(path: Path) -> None:
    first = KVConfig(path)
    first.load()
    first.put("N", "k", "v")
    first.put("N", "gone", "x")
    first.delete("N", "gone")
    second = KVConfig(path)
    second.load()
    assert second.value("N", "k") == "v"
    assert second.value("N", "gone") is None
    assert second.table("N") == {"k": "v"}
    assert second.table("M") is None


def test_file_is_javas(path: Path) -> None:
    golden = GOLDEN / "configs" / "namesrv_kvConfig.json"
    path.parent.mkdir()
    path.write_bytes(golden.read_bytes())
    kv = KVConfig(path)
    kv.load()
    assert kv.table("GOLDNS") == {"a": "b"}
    assert kv.table("NS_1") == {}
    kv.put("NS_1", "k", "v")
    kv.delete("NS_1", "k")
    assert path.read_bytes() == golden.read_bytes()


def test_nothing_is_written_before_the_first_value(path: Path) -> None:
    kv = KVConfig(path)
    kv.load()
    kv.delete("N", "k")
    assert not path.parent.exists()


def test_backup_serves_when_the_file_is_damaged(path: Path) -> None:
    kv = KVConfig(path)
    kv.put("N", "k", "first")
    kv.put("N", "k", "second")
    path.write_text("{half")
    again = KVConfig(path)
    again.load()
    assert again.value("N", "k") == "first"


def test_settings_are_not_silently_lost_when_both_files_are_damaged(path: Path) -> None:
    kv = KVConfig(path)
    kv.put("N", "k", "first")
    kv.put("N", "k", "second")
    path.write_text("{half")
    path.with_name(path.name + ".bak").write_text("{half")
    with pytest.raises(StoreDamaged):
        KVConfig(path).load()


def test_value_that_cannot_be_written_is_not_kept(path: Path) -> None:
    path.parent.write_text("a file where the directory should be")
    kv = KVConfig(path)
    with pytest.raises(FileExistsError):
        kv.put("N", "k", "v")
    assert kv.value("N", "k") is None


def test_settings_have_a_limit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole of them is written at each change, and anybody may make one."""
    monkeypatch.setattr(kv_module, "SIZE_MAX", 100)
    kv = KVConfig(path)
    kv.put("n", "key", "v" * 94)
    with pytest.raises(RequestRejected, match="100 is the limit"):
        kv.put("n", "other", "v")
    kv.put("n", "key", "w" * 96)
    kv.delete("n", "key")
    kv.put("n", "other", "v")
    kv.delete("n", "other")
    with pytest.raises(RequestRejected, match="100 is the limit"):
        kv.put("m" * 100, "k", "v")  # a namespace stays when its keys are gone


def test_settings_taken_over_that_are_too_many_may_be_replaced_and_removed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kv = KVConfig(path)
    kv.put("n", "key", "v" * 200)
    monkeypatch.setattr(kv_module, "SIZE_MAX", 100)
    kv.put("n", "key", "w" * 200)
    with pytest.raises(RequestRejected, match="100 is the limit"):
        kv.put("n", "key", "w" * 201)
    kv.put("n", "key", "w" * 150)
    assert kv.value("n", "key") == "w" * 150
