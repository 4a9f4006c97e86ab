"""Configuration keys of Apache RocketMQ 4.9 that orbitmq knows but ignores, each with the reason.

A file written for RocketMQ must be accepted, so such a key is only a warning with a reason of its own. A key that
promises something orbitmq does not do (DLedger, agreement among several nodes) must have the value that turns it off.
Must not know the keys that have an effect: the option classes declare those.
"""

from __future__ import annotations

from orbitmq.errors import ConfigurationError

_REASONS = {
    "one event loop serves all requests, there are no thread pools": """
        adminBrokerThreadPoolNums clientCallbackExecutorThreads clientManageThreadPoolNums clientWorkerThreads
        consumerManageThreadPoolNums endTransactionThreadPoolNums heartbeatThreadPoolNums
        processReplyMessageThreadPoolNums pullMessageThreadPoolNums putMessageFutureThreadPoolNums
        queryMessageThreadPoolNums sendMessageThreadPoolNums serverCallbackExecutorThreads serverSelectorThreads
        serverWorkerThreads useEpollNativeSelector
    """,
    "requests do not wait in queues between threads": """
        clientManagerThreadPoolQueueCapacity consumerManagerThreadPoolQueueCapacity
        endTransactionPoolQueueCapacity heartbeatThreadPoolQueueCapacity
        pullThreadPoolQueueCapacity putThreadPoolQueueCapacity queryThreadPoolQueueCapacity
        replyThreadPoolQueueCapacity sendThreadPoolQueueCapacity
    """,
    "limits and buffers of connections are fixed": """
        channelNotActiveInterval clientAsyncSemaphoreValue clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout
        clientOnewaySemaphoreValue clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize
        connectTimeoutMillis serverAsyncSemaphoreValue serverChannelMaxIdleTimeSeconds serverOnewaySemaphoreValue
        serverPooledByteBufAllocatorEnable serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize
        writeBufferHighWaterMark writeBufferLowWaterMark
    """,
    "it only concerns the Java process": """
        debugLockEnable isolateLogEnable messageStorePlugIn transferMsgByHeap
        useReentrantLockWhenPutMessage
    """,
    "Apache RocketMQ 4.9 does not act on it either": """
        commercialBaseCount commercialBigCount commercialEnable commercialTimerCount commercialTransCount
        enableBatchPush filterServerNums flushConsumerOffsetHistoryInterval haListenPort highSpeedMode maxDelayTime
        putMsgIndexHightWater
    """,
    "it is for brokers that write a store twice, which RocketMQ no longer supports": "duplicationEnable",
    "there is no DLedger commit log": """
        dLegerGroup dLegerPeers dLegerSelfId preferredLeaderId storePathDLedgerCommitLog
    """,
    "the size of bitmaps follows from the expected consumers and the error rate": "bitMapLengthConsumeQueueExt",
    "deliveries of delayed messages do not wait for the disk": """
        enableScheduleAsyncDeliver scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked
    """,
    "metrics are collected by topic and group, not by queue": "diskFallRecorded enableDetailStat",
    "metrics of deleted topics and groups are always removed": "autoDeleteUnusedStats",
    "deliveries of delayed messages are always counted": "enableScheduleMessageStats",
    "routes of another environment are not looked up": "clusterTest productEnvName",
    "name servers are given by namesrvAddr": "fetchNamesrvAddrByAddressServer",
}
WITHOUT_EFFECT = {key: reason for reason, keys in _REASONS.items() for key in keys.split()}

# Keys of the broker that are also in files of name servers.
OF_THE_BROKER = {"rocketmqHome": "a name server reads no files there"}

# key -> (the only value, why no other)
FIXED = {
    "enableDLegerCommitLog": ("false", "there is no DLedger commit log"),
}


def check_fixed(key: str, value: str) -> None:
    """ConfigurationError if `key` is in FIXED and `value` is not the only supported one."""
    only, reason = FIXED[key]
    if value.strip() != only:
        raise ConfigurationError(f"option {key}: value {value!r} is not allowed; use {only} ({reason})")
