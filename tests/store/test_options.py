from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.store.options import StoreOptions


def test_defaults_are_rocketmqs() -> None:
    options = StoreOptions()
    assert options.mapped_file_size_commit_log == 1073741824
    assert options.consume_queue_file_size == 6_000_000
    assert options.max_message_size == 4194304
    assert options.commit_log_directory == Path.home() / "store" / "commitlog"


def test_queue_files_hold_whole_entries() -> None:
    options = StoreOptions.parse({"mappedFileSizeConsumeQueue": "1001", "storePathRootDir": "/s"})
    assert options.consume_queue_file_size == 1020
    assert options.commit_log_directory == Path("/s/commitlog")


def test_a_log_file_must_hold_a_message() -> None:
    with pytest.raises(ConfigurationError, match="mappedFileSizeCommitLog"):
        StoreOptions.parse({"mappedFileSizeCommitLog": "100"})
