"""The options of the store; keys and defaults are RocketMQ's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orbitmq.runtime.options import Options, option

ASYNC_FLUSH = "ASYNC_FLUSH"
SYNC_FLUSH = "SYNC_FLUSH"
ASYNC_MASTER, SYNC_MASTER, SLAVE = "ASYNC_MASTER", "SYNC_MASTER", "SLAVE"
ENTRY_SIZE = 20


@dataclass(frozen=True)
class StoreOptions(Options):
    """The store's directory, file sizes, flush intervals, read limits and index."""

    store_path_root_dir: str = option(
        "storePathRootDir", "~/store", "Directory of the store; `~` is the home directory."
    )
    store_path_commit_log: str = option(
        "storePathCommitLog", "",
        "Directory of the commit log; empty is `commitlog` in the store's directory. Several, separated by commas, "
        "take turns to get a file.",
    )  # fmt: skip
    read_only_commit_log_store_paths: str = option(
        "readOnlyCommitLogStorePaths", "",
        "Further directories of the commit log, separated by `,`, that are read and get no new files.",
    )  # fmt: skip
    multi_path_splitter: str = option(
        "rocketmq.broker.multiPathSplitter", ",", "What separates the directories in these two lists."
    )
    mapped_file_size_commit_log: int = option(
        "mappedFileSizeCommitLog", 1 << 30,
        "Size of one commit log file. A store whose files have another one does not open: set it back.",
        unit="bytes", minimum=4096, maximum=1 << 31,
    )  # fmt: skip
    mapped_file_size_consume_queue: int = option(
        "mappedFileSizeConsumeQueue", 300_000 * ENTRY_SIZE,
        "Size of one consume queue file, rounded up to a multiple of 20. A store whose files "
        "have another one does not open: set it back.",
        unit="bytes", minimum=ENTRY_SIZE, maximum=1 << 31,
    )  # fmt: skip
    enable_consume_queue_ext: bool = option(
        "enableConsumeQueueExt", False, "Keep an extension of each consume queue, with the bitmaps of filters."
    )
    mapped_file_size_consume_queue_ext: int = option(
        "mappedFileSizeConsumeQueueExt", 48 << 20,
        "Size of one file of an extension; an existing extension keeps its own.", unit="bytes",
        minimum=4096, maximum=1 << 31,
    )  # fmt: skip
    enable_multi_dispatch: bool = option(
        "enableMultiDispatch", False,
        "Enter a message also in the queues that its property INNER_MULTI_DISPATCH names.",
    )  # fmt: skip
    enable_lmq: bool = option(
        "enableLmq", False, "Queues of multi-dispatch whose name begins with %LMQ% are light: there is one a name."
    )
    max_lmq_consume_queue_num: int = option(
        "maxLmqConsumeQueueNum", 20_000, "Light queues there may be; a message for a further one is refused.", minimum=1
    )
    broker_role: str = option(
        "brokerRole", ASYNC_MASTER,
        "SLAVE keeps a copy of its master's log and accepts no messages; with SYNC_MASTER a send is confirmed when a "
        "slave has the message, with ASYNC_MASTER at once.", choices=(ASYNC_MASTER, SYNC_MASTER, SLAVE),
    )  # fmt: skip
    ha_master_address: str = option(
        "haMasterAddress", "",
        "Where a slave gets the log from: host:port of its master's replication, which is listenPort + 1; empty is "
        "what the name servers say.",
    )  # fmt: skip
    ha_transfer_batch_size: int = option(
        "haTransferBatchSize", 32 << 10, "Most bytes of the log that go to a slave in one piece; slaves of RocketMQ "
        "cannot take 4 MiB.", unit="bytes", minimum=1024, maximum=2 << 20,
    )  # fmt: skip
    ha_send_heartbeat_interval_ms: int = option(
        "haSendHeartbeatInterval", 5000, "How often master and slave tell each other that they are there.", unit="ms",
        minimum=100,
    )  # fmt: skip
    ha_housekeeping_interval_ms: int = option(
        "haHousekeepingInterval", 20_000, "After how much silence master and slave give each other up.", unit="ms",
        minimum=200,
    )  # fmt: skip
    ha_slave_fallbehind_max: int = option(
        "haSlaveFallbehindMax", 256 << 20,
        "A send to a SYNC_MASTER does not wait for slaves that are so far behind: it is stored, and its status says "
        "SLAVE_NOT_AVAILABLE.", unit="bytes", minimum=1,
    )  # fmt: skip
    slave_timeout_ms: int = option(
        "slaveTimeout", 3000, "How long a send to a SYNC_MASTER waits for a slave; its status is FLUSH_SLAVE_TIMEOUT "
        "then.", unit="ms", minimum=1,
    )  # fmt: skip
    ha_copy_whole_log: bool = option(
        "haCopyWholeLog", True,
        "Have an empty slave copy the whole log of its master; otherwise it begins with the last file, as RocketMQ's.",
    )  # fmt: skip
    offset_check_in_slave: bool = option(
        "offsetCheckInSlave", False,
        "Have a slave correct the offset of a pull that is beyond its log; otherwise it waits for the messages.",
    )  # fmt: skip
    ha_slave_addresses: str = option(
        "haSlaveAddresses", "",
        "Networks that slaves may come from, several separated by `;`, as in `10.0.1.0/24;10.0.2.7`; empty is any, and "
        "with aclEnable this machine alone: whoever may replicate reads every message.",
    )  # fmt: skip
    flush_disk_type: str = option(
        "flushDiskType", ASYNC_FLUSH, "Whether the response to a send is sent before or after its message is on disk.",
        choices=(ASYNC_FLUSH, SYNC_FLUSH),
    )  # fmt: skip
    sync_flush_timeout_ms: int = option(
        "syncFlushTimeout", 5000, "How long a send waits for its flush with SYNC_FLUSH.", unit="ms", minimum=1
    )
    flush_interval_commit_log_ms: int = option(
        "flushIntervalCommitLog", 500, "How often the commit log is flushed.", unit="ms", minimum=1
    )
    flush_commit_log_least_pages: int = option(
        "flushCommitLogLeastPages", 4, "Pages that must be new before the commit log is flushed.", minimum=0
    )
    flush_commit_log_thorough_interval_ms: int = option(
        "flushCommitLogThoroughInterval", 10_000, "How often the commit log is flushed however little is new.",
        unit="ms", minimum=0,
    )  # fmt: skip
    flush_commit_log_timed: bool = option(
        "flushCommitLogTimed", True,
        "Flush the commit log at its interval only; otherwise it is flushed as soon as enough is new.",
    )  # fmt: skip
    transient_store_pool_enable: bool = option(
        "transientStorePoolEnable", False,
        "Append to locked memory and copy it to the files a little later; a process that is killed loses what was not "
        "copied. Not with SYNC_FLUSH.",
    )  # fmt: skip
    transient_store_pool_size: int = option(
        "transientStorePoolSize",
        5,
        "Buffers of that memory, each as large as a commit log file; while none is free messages are refused.",
        minimum=2,
        maximum=64,
    )
    fast_fail_if_no_buffer_in_store_pool: bool = option(
        "fastFailIfNoBufferInStorePool", False,
        "Refuse also what the broker itself stores while no buffer is free for the next file, instead of writing it to "
        "the file directly.",
    )  # fmt: skip
    commit_interval_commit_log_ms: int = option(
        "commitIntervalCommitLog", 200, "How often the buffers are checked.", unit="ms", minimum=1
    )
    commit_commit_log_least_pages: int = option(
        "commitCommitLogLeastPages", 4, "Pages that must be new before they are copied to the file.", minimum=0
    )
    commit_commit_log_thorough_interval_ms: int = option(
        "commitCommitLogThoroughInterval", 200, "How often they are copied however little is new.", unit="ms", minimum=0
    )
    warm_mapped_file_enable: bool = option(
        "warmMapedFileEnable", False,
        "Bring each new commit log file into memory and lock it there before its first message.",
    )  # fmt: skip
    flush_least_pages_when_warm_mapped_file: int = option(
        "flushLeastPagesWhenWarmMapedFile", 4096, "With SYNC_FLUSH, how often a file is flushed while it is warmed.",
        unit="pages", minimum=1,
    )  # fmt: skip
    flush_interval_consume_queue_ms: int = option(
        "flushIntervalConsumeQueue", 1000, "How often consume queues are flushed.", unit="ms", minimum=1
    )
    flush_consume_queue_least_pages: int = option(
        "flushConsumeQueueLeastPages", 2, "Pages that must be new before a consume queue is flushed.", minimum=0
    )
    flush_consume_queue_thorough_interval_ms: int = option(
        "flushConsumeQueueThoroughInterval", 60_000,
        "How often every consume queue is flushed and the checkpoint written.", unit="ms", minimum=0,
    )  # fmt: skip
    clean_resource_interval_ms: int = option(
        "cleanResourceInterval", 10_000, "How often the store removes expired files; each time up to ten.",
        unit="ms", minimum=1,
    )  # fmt: skip
    delete_when: str = option(
        "deleteWhen",
        "04",
        "Hours of the day, local time, in which expired files are removed; several separated by `;`.",
        pattern=r"[\s\d;]*",
        changeable=True,
    )
    file_reserved_time_hours: int = option(
        "fileReservedTime",
        72,
        "Commit log files expire so long after they were last written.",
        unit="hours",
        minimum=0,
        changeable=True,
    )
    disk_max_used_space_ratio: int = option(
        "diskMaxUsedSpaceRatio", 75,
        "From this use of the disk on, expired files are removed at any hour; held within 10 and 95.",
        unit="percent", minimum=0, maximum=100, changeable=True,
    )  # fmt: skip
    disk_clean_forcibly_ratio: float = option(
        "rocketmq.broker.diskSpaceCleanForciblyRatio", 0.85,
        "From this use of the disk on, the oldest files are removed whether or not they have expired, unless they hold "
        "messages that a group has not read.",
        minimum=0.0, maximum=1.0,
    )  # fmt: skip
    disk_warning_ratio: float = option(
        "rocketmq.broker.diskSpaceWarningLevelRatio", 0.90,
        "From this use of the disk on, no message is accepted.", minimum=0.0, maximum=1.0,
    )  # fmt: skip
    clean_file_forcibly_enable: bool = option(
        "cleanFileForciblyEnable",
        True,
        "Remove files that have not expired when the disk is nearly full.",
        changeable=True,
    )
    clean_unread_file_forcibly_enable: bool = option(
        "cleanUnreadFileForciblyEnable", False,
        "Remove them even where a consumer group has not read their messages, as RocketMQ does. Otherwise such files "
        "stay, and messages are refused from rocketmq.broker.diskSpaceWarningLevelRatio on.",
        changeable=True,
    )  # fmt: skip
    delete_commit_log_files_interval_ms: int = option(
        "deleteCommitLogFilesInterval", 100, "Pause between two removed commit log files.", unit="ms", minimum=0
    )
    delete_consume_queue_files_interval_ms: int = option(
        "deleteConsumeQueueFilesInterval", 100, "Pause between two queues that files are removed of.",
        unit="ms", minimum=0,
    )  # fmt: skip
    redelete_hanged_file_interval_ms: int = option(
        "redeleteHangedFileInterval", 120_000,
        "How often it is tried again to free a removed file that a reader still holds.", unit="ms", minimum=1,
    )  # fmt: skip
    destroy_mapped_file_interval_ms: int = option(
        "destroyMapedFileIntervalForcibly", 120_000,
        "How long such a file delays the removal of further ones; its space is freed when its reader releases it.",
        unit="ms", minimum=0,
    )  # fmt: skip
    os_page_cache_busy_timeout_ms: int = option(
        "osPageCacheBusyTimeOutMills", 1000,
        "How long a message waits for a slow disk to allocate room; then it is refused as page cache busy.",
        unit="ms", minimum=1,
    )  # fmt: skip
    max_message_size: int = option("maxMessageSize", 4 << 20, "Largest body, or batch body.", unit="bytes", minimum=10)
    check_crc_on_recover: bool = option(
        "checkCRCOnRecover", True, "Check every body when a start reads the commit log."
    )
    max_transfer_bytes_on_message_in_memory: int = option(
        "maxTransferBytesOnMessageInMemory", 256 << 10, "Bytes of one pull response while the messages are recent.",
        unit="bytes", minimum=1,
    )  # fmt: skip
    max_transfer_count_on_message_in_memory: int = option(
        "maxTransferCountOnMessageInMemory", 32, "Messages of one pull response while they are recent.", minimum=1
    )
    max_transfer_bytes_on_message_in_disk: int = option(
        "maxTransferBytesOnMessageInDisk", 64 << 10, "Bytes of one pull answer of messages no longer in memory.",
        unit="bytes", minimum=1,
    )  # fmt: skip
    max_transfer_count_on_message_in_disk: int = option(
        "maxTransferCountOnMessageInDisk", 8, "Messages of one pull answer of messages no longer in memory.", minimum=1
    )
    access_message_in_memory_max_ratio: int = option(
        "accessMessageInMemoryMaxRatio", 40, "Part of the machine's memory that is taken to hold recent messages.",
        unit="percent", minimum=0, maximum=100,
    )  # fmt: skip
    message_index_enable: bool = option(
        "messageIndexEnable", True, "Whether messages can be found by their keys and their unique id."
    )
    message_index_safe: bool = option(
        "messageIndexSafe", False,
        "After a crash, build unsettled index files anew from the log instead of proving what they hold.",
    )  # fmt: skip
    max_hash_slot_num: int = option(
        "maxHashSlotNum", 5_000_000,
        "Hash slots of one index file. A store whose files have another number does not open: set it back, or remove "
        "index/, which is made anew.",
        minimum=1, maximum=100_000_000,
    )  # fmt: skip
    max_index_num: int = option(
        "maxIndexNum", 20_000_000,
        "Keys one index file can hold, and one more. A store whose files hold another number does not open: set it "
        "back, or remove index/, which is made anew.",
        minimum=2, maximum=80_000_000,
    )  # fmt: skip
    max_msgs_num_batch: int = option(
        "maxMsgsNumBatch",
        64,
        "Most messages one query by key finds.",
        minimum=1,
        maximum=100_000,
        changeable=True,
    )
    default_query_max_num: int = option(
        "defaultQueryMaxNum",
        32,
        "Messages a query by unique id looks for.",
        minimum=1,
        maximum=100_000,
        changeable=True,
    )

    @property
    def root(self) -> Path:
        return Path(self.store_path_root_dir).expanduser()

    @property
    def flushes_each(self) -> bool:
        """Whether a message counts when it is on disk."""
        return self.flush_disk_type == SYNC_FLUSH

    @property
    def uses_transient_pool(self) -> bool:
        return self.transient_store_pool_enable and not self.flushes_each and not self.is_slave

    @property
    def is_slave(self) -> bool:
        """Whether the log is a copy of a master's."""
        return self.broker_role == SLAVE

    @property
    def commit_log_directories(self) -> tuple[Path, ...]:
        """Every directory that gets files of the commit log."""
        return self._paths(self.store_path_commit_log) or (self.root / "commitlog",)

    @property
    def read_only_commit_log_directories(self) -> tuple[Path, ...]:
        """Directories of the commit log that get no new files."""
        return self._paths(self.read_only_commit_log_store_paths)

    def _paths(self, text: str) -> tuple[Path, ...]:
        parts = text.split(self.multi_path_splitter) if self.multi_path_splitter else [text]
        return tuple(Path(part.strip()).expanduser() for part in parts if part.strip())

    @property
    def consume_queue_file_size(self) -> int:
        """The configured size rounded up to whole entries."""
        return -(-self.mapped_file_size_consume_queue // ENTRY_SIZE) * ENTRY_SIZE
