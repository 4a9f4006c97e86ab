"""The store's options and what follows from them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orbitmq.errors import ConfigurationError, StoreDamaged
from orbitmq.store.options import StoreOptions
from tests.support.process import wait_until
from tests.support.stores import open_store, record

DEFAULTS = {
    "storePathRootDir": "~/store",
    "storePathCommitLog": "",
    "readOnlyCommitLogStorePaths": "",
    "rocketmq.broker.multiPathSplitter": ",",
    "mappedFileSizeCommitLog": "1073741824",
    "mappedFileSizeConsumeQueue": "6000000",
    "enableConsumeQueueExt": "false",
    "mappedFileSizeConsumeQueueExt": "50331648",
    "enableMultiDispatch": "false",
    "enableLmq": "false",
    "maxLmqConsumeQueueNum": "20000",
    "flushDiskType": "ASYNC_FLUSH",
    "syncFlushTimeout": "5000",
    "flushIntervalCommitLog": "500",
    "flushCommitLogLeastPages": "4",
    "flushCommitLogThoroughInterval": "10000",
    "flushCommitLogTimed": "true",
    "transientStorePoolEnable": "false",
    "transientStorePoolSize": "5",
    "fastFailIfNoBufferInStorePool": "false",
    "commitIntervalCommitLog": "200",
    "commitCommitLogLeastPages": "4",
    "commitCommitLogThoroughInterval": "200",
    "warmMapedFileEnable": "false",
    "flushLeastPagesWhenWarmMapedFile": "4096",
    "flushIntervalConsumeQueue": "1000",
    "flushConsumeQueueLeastPages": "2",
    "flushConsumeQueueThoroughInterval": "60000",
    "brokerRole": "ASYNC_MASTER",
    "haCopyWholeLog": "true",
    "haHousekeepingInterval": "20000",
    "haMasterAddress": "",
    "haSendHeartbeatInterval": "5000",
    "haSlaveAddresses": "",
    "haSlaveFallbehindMax": "268435456",
    "haTransferBatchSize": "32768",
    "offsetCheckInSlave": "false",
    "slaveTimeout": "3000",
    "cleanResourceInterval": "10000",
    "deleteWhen": "04",
    "fileReservedTime": "72",
    "diskMaxUsedSpaceRatio": "75",
    "rocketmq.broker.diskSpaceCleanForciblyRatio": "0.85",
    "rocketmq.broker.diskSpaceWarningLevelRatio": "0.9",
    "cleanFileForciblyEnable": "true",
    "cleanUnreadFileForciblyEnable": "false",
    "deleteCommitLogFilesInterval": "100",
    "deleteConsumeQueueFilesInterval": "100",
    "redeleteHangedFileInterval": "120000",
    "destroyMapedFileIntervalForcibly": "120000",
    "osPageCacheBusyTimeOutMills": "1000",
    "maxMessageSize": "4194304",
    "checkCRCOnRecover": "true",
    "maxTransferBytesOnMessageInMemory": "262144",
    "maxTransferCountOnMessageInMemory": "32",
    "maxTransferBytesOnMessageInDisk": "65536",
    "maxTransferCountOnMessageInDisk": "8",
    "accessMessageInMemoryMaxRatio": "40",
    "messageIndexEnable": "true",
    "messageIndexSafe": "false",
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
    "maxMsgsNumBatch": "64",
    "defaultQueryMaxNum": "32",
}


def test_defaults_are_rocketmqs() -> None:
    assert StoreOptions().pairs() == DEFAULTS
    assert StoreOptions().commit_log_directories[0] == Path.home() / "store" / "commitlog"


def test_what_separates_directories_can_be_chosen() -> None:
    pairs = {"storePathCommitLog": "/a,b; ~/c", "readOnlyCommitLogStorePaths": "/d;;/e"}
    options = StoreOptions.parse({**pairs, "rocketmq.broker.multiPathSplitter": ";"})
    assert options.commit_log_directories == (Path("/a,b"), Path.home() / "c")
    assert options.read_only_commit_log_directories == (Path("/d"), Path("/e"))
    assert StoreOptions.parse(pairs).commit_log_directories == (Path("/a"), Path("b; ~/c"))


def test_queue_files_hold_whole_entries() -> None:
    options = StoreOptions.parse({"mappedFileSizeConsumeQueue": "1001", "storePathRootDir": "/s"})
    assert options.consume_queue_file_size == 1020
    assert options.commit_log_directories[0] == Path("/s/commitlog")


def test_a_log_file_must_hold_a_message() -> None:
    with pytest.raises(ConfigurationError, match="mappedFileSizeCommitLog"):
        StoreOptions.parse({"mappedFileSizeCommitLog": "100"})


@pytest.mark.parametrize(
    ("changed", "opens"),
    [
        ({"mapped_file_size_commit_log": 8192}, False),
        ({"mapped_file_size_consume_queue": 400}, False),
        ({"max_hash_slot_num": 9}, False),
        ({"max_index_num": 30}, False),
        ({"mapped_file_size_consume_queue_ext": 8192}, True),
    ],
)
def test_the_page_says_what_an_existing_store_does_with_another_size(
    tmp_path: Path, changed: dict[str, int], *, opens: bool
) -> None:
    """Each option of a size or number of files: whether the store opens, as its sentence says."""
    usual = {"message_index_enable": True, "enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 4096}
    store = open_store(tmp_path, **usual)
    store.put(record(properties=b"KEYS\x01k"))
    store.close()
    ((name, _),) = changed.items()
    ((key, declared),) = [(key, one) for key, (field, one) in StoreOptions.table().items() if field == name]
    assert ("does not open: set it back" in declared.text) is not opens
    assert ("keeps its own" in declared.text) is opens
    if opens:
        open_store(tmp_path, **{**usual, **changed}).close()
        return
    with pytest.raises(StoreDamaged, match=key):
        open_store(tmp_path, **{**usual, **changed})
    if name in ("max_hash_slot_num", "max_index_num"):
        shutil.rmtree(tmp_path / "index")
        store = open_store(tmp_path, **{**usual, **changed})
        wait_until(lambda: store.query("T", "k", 5, 0, 1 << 62).buffers, 10, "the key to be in the index again")
        store.close()
