"""The store's options and what follows from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.store.options import StoreOptions

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
    assert StoreOptions().commit_log_directory == Path.home() / "store" / "commitlog"


def test_what_separates_directories_can_be_chosen() -> None:
    pairs = {"storePathCommitLog": "/a,b; ~/c", "readOnlyCommitLogStorePaths": "/d;;/e"}
    options = StoreOptions.parse({**pairs, "rocketmq.broker.multiPathSplitter": ";"})
    assert options.commit_log_directories == (Path("/a,b"), Path.home() / "c")
    assert options.read_only_commit_log_directories == (Path("/d"), Path("/e"))
    assert StoreOptions.parse(pairs).commit_log_directories == (Path("/a"), Path("b; ~/c"))


def test_queue_files_hold_whole_entries() -> None:
    options = StoreOptions.parse({"mappedFileSizeConsumeQueue": "1001", "storePathRootDir": "/s"})
    assert options.consume_queue_file_size == 1020
    assert options.commit_log_directory == Path("/s/commitlog")


def test_a_log_file_must_hold_a_message() -> None:
    with pytest.raises(ConfigurationError, match="mappedFileSizeCommitLog"):
        StoreOptions.parse({"mappedFileSizeCommitLog": "100"})
