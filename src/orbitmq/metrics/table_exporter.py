"""The metrics of `orbitmq exporter`: declarations only.

Names that begin with `rocketmq_`, and their labels, are those of the exporter for Apache RocketMQ, odd spellings
included, which dashboards and rules in the field use; all of its families are gauges.
"""

from __future__ import annotations

from orbitmq.metrics.model import Metric, gauge

_BROKER = "cluster brokerIP broker"
_TOPIC = "cluster broker topic"
_GROUP = "cluster broker topic group"
_RUNTIME = "cluster brokerIP brokerHost des boottime broker_version"
_CLIENT = "clientAddr clientId group topic"
_DIFF = "group topic countOfOnlineConsumers msgModel"

_PUT_TIMES = {
    "0ms": "no millisecond", "0to10ms": "less than 10 ms", "10to50ms": "10 to 50 ms", "50to100ms": "50 to 100 ms",
    "100to200ms": "100 to 200 ms", "200to500ms": "200 to 500 ms", "500to1s": "500 ms to 1 s", "1to2s": "1 to 2 s",
    "2to3s": "2 to 3 s", "3to4s": "3 to 4 s", "4to5s": "4 to 5 s", "5to10s": "5 to 10 s",
    "10stomore": "10 s and more",
}  # fmt: skip
_RATES = {
    "put": ("messages stored", "putTps"),
    "getfound": ("reads that found messages", "getFoundTps"),
    "getmiss": ("reads that found none", "getMissTps"),
    "gettotal": ("reads", "getTotalTps"),
    "gettransfered": ("messages delivered", "getTransferedTps"),
}
SECONDS = (10, 60, 600)
"""The intervals of a broker's rates."""


def _runtime(name: str, unit: str, text: str, key: str) -> Metric:
    return gauge(f"rocketmq_brokeruntime_{name}", _RUNTIME, unit, text, f"runtime table, `{key}`")


RUNTIME: tuple[Metric, ...] = (
    _runtime("commitlog_disk_ratio", "", "Disk usage of the commit log, 0 to 1.", "commitLogDiskRatio"),
    _runtime("consumequeue_disk_ratio", "", "Disk usage of the consume queues, 0 to 1.", "consumeQueueDiskRatio"),
    _runtime("dispatch_behind_bytes", "bytes", "Bytes of the commit log not dispatched yet.",
             "dispatchBehindBytes"),
    _runtime("remain_howmanydata_toflush", "bytes", "Bytes not flushed yet, rounded by the broker.",
             "remainHowManyDataToFlush"),
    _runtime("send_threadpool_queue_size", "requests", "Pending sends.", "sendThreadPoolQueueSize"),
    _runtime("send_threadpoolqueue_capacity", "requests", "Limit of pending sends.", "sendThreadPoolQueueCapacity"),
    _runtime("send_threadpoolqueue_headwait_timemills", "ms", "Wait time of the oldest pending send.",
             "sendThreadPoolQueueHeadWaitTimeMills"),
    _runtime("pull_threadpoolqueue_size", "requests", "Pending pulls.", "pullThreadPoolQueueSize"),
    _runtime("pull_threadpoolqueue_capacity", "requests", "Limit of pending pulls.", "pullThreadPoolQueueCapacity"),
    _runtime("pull_threadpoolqueue_headwait_timemills", "ms", "Wait time of the oldest pending pull.",
             "pullThreadPoolQueueHeadWaitTimeMills"),
    _runtime("query_threadpoolqueue_size", "requests", "Pending queries.", "queryThreadPoolQueueSize"),
    _runtime("query_threadpool_queue_capacity", "requests", "Limit of pending queries.",
             "queryThreadPoolQueueCapacity"),
    _runtime("query_threadpoolqueue_headwait_timemills", "ms", "Wait time of the oldest pending query.",
             "queryThreadPoolQueueHeadWaitTimeMills"),
    _runtime("pagecache_lock_time_mills", "ms", "Time the current put has held the lock.",
             "pageCacheLockTimeMills"),
    *(
        _runtime(f"pmdt_{name}", "puts", f"Puts that took {text}, last full minute.", "putMessageDistributeTime")
        for name, text in _PUT_TIMES.items()
    ),
    _runtime("put_latency_99", "ms", "99th percentile of the put latency, last full minute.", "putLatency99"),
    _runtime("put_latency_999", "ms", "99.9th percentile of the put latency, last full minute.", "putLatency999"),
    *(
        _runtime(f"{name}_tps{seconds}", "1/s", f"Mean over {seconds} s of {text}.", key)
        for name, (text, key) in _RATES.items()
        for seconds in SECONDS
    ),
    _runtime("msg_put_total_today_now", "messages", "Messages stored since the start.", "msgPutTotalTodayNow"),
    _runtime("msg_gettotal_today_now", "messages", "Messages delivered since the start.", "msgGetTotalTodayNow"),
    _runtime("msg_puttotal_todaymorning", "messages", "Messages stored until last midnight.",
             "msgPutTotalTodayMorning"),
    _runtime("msg_gettotal_todaymorning", "messages", "Messages delivered until last midnight.",
             "msgGetTotalTodayMorning"),
    _runtime("msg_puttotal_yesterdaymorning", "messages", "Messages stored until the midnight before.",
             "msgPutTotalYesterdayMorning"),
    _runtime("msg_gettotal_yesterdaymorning", "messages", "Messages delivered until the midnight before.",
             "msgGetTotalYesterdayMorning"),
    _runtime("put_message_size_total", "bytes", "Bytes stored since the start.", "putMessageSizeTotal"),
    _runtime("put_message_average_size", "bytes", "Mean size of a message.", "putMessageAverageSize"),
    _runtime("putmessage_times_total", "messages", "Messages stored since the start; 1 for none.",
             "putMessageTimesTotal"),
    _runtime("putmessage_entire_time_max", "ms", "Longest put since the start.", "putMessageEntireTimeMax"),
    _runtime("getmessage_entire_time_max", "ms", "Longest read since the start.", "getMessageEntireTimeMax"),
    _runtime("commitlog_maxoffset", "bytes", "End offset of the commit log.", "commitLogMaxOffset"),
    _runtime("commitlog_minoffset", "bytes", "Begin offset of the commit log.", "commitLogMinOffset"),
    _runtime("commitlogdir_capacity_total", "bytes", "Size of the commit log's disk; rounded.", "commitLogDirCapacity"),
    _runtime("commitlogdir_capacity_free", "bytes", "Free space of that disk; rounded.", "commitLogDirCapacity"),
    _runtime("earliest_message_timestamp", "ms since the epoch", "Store time of the oldest message.",
             "earliestMessageTimeStamp"),
    _runtime("start_accept_sendrequest_time", "ms since the epoch",
             "Time from which the broker accepts messages; mostly 0.",
             "startAcceptSendRequestTimeStamp"),
    _runtime("dispatch_maxbuffer", "", "Always 0.", "dispatchMaxBuffer"),
    _runtime("remain_transientstore_buffer_numbs", "buffers", "Free off-heap buffers.",
             "remainTransientStoreBufferNumbs"),
)  # fmt: skip

CLUSTER: tuple[Metric, ...] = (
    gauge("rocketmq_broker_tps", _BROKER, "messages/s", "Messages stored.", "R315 BROKER_PUT_NUMS, last minute"),
    gauge("rocketmq_broker_qps", _BROKER, "messages/s", "Messages delivered.", "R315 BROKER_GET_NUMS, last minute"),
    gauge("rocketmq_broker_commitlog_diff", _BROKER, "bytes",
          "Replica lag: bytes of the commit log a slave is behind its master, by the slave's address.",
          "runtime tables of both, `commitLogMaxOffset`"),
    gauge("rocketmq_producer_tps", _TOPIC, "messages/s", "Messages stored of a topic.",
          "R315 TOPIC_PUT_NUMS, last minute"),
    gauge("rocketmq_producer_message_size", _TOPIC, "bytes/s", "Bytes stored of a topic.",
          "R315 TOPIC_PUT_SIZE, last minute"),
    gauge("rocketmq_producer_offset", _TOPIC, "messages", "Sum of the end offsets of a topic's queues.", "R202"),
    gauge("rocketmq_topic_retry_offset", _TOPIC, "messages", "As rocketmq_producer_offset, of retry topics.", "R202"),
    gauge("rocketmq_topic_dlq_offset", "cluster broker group", "messages",
          "As rocketmq_producer_offset, of dead-letter topics.",
          "R202"),
    gauge("rocketmq_producer_count", "cluster broker group", "clients", "Producers online.", "R328"),
    gauge("rocketmq_consumer_tps", _GROUP, "messages/s", "Messages delivered to a group per second.",
          "R315 GROUP_GET_NUMS, last minute"),
    gauge("rocketmq_consumer_message_size", _GROUP, "bytes/s", "Bytes delivered to a group per second.",
          "R315 GROUP_GET_SIZE, last minute"),
    gauge("rocketmq_consumer_offset", _GROUP, "messages", "Sum of the offsets of a group in a topic.", "R43"),
    gauge("rocketmq_group_consume_tps", _GROUP, "messages/s", "As rocketmq_consumer_tps, under its older name.",
          "R315 GROUP_GET_NUMS, last minute"),
    gauge("rocketmq_group_consume_total_offset", _GROUP, "messages",
          "As rocketmq_consumer_offset, under its older name.", "R43"),
    gauge("rocketmq_group_diff", _DIFF, "messages",
          "Lag of a group on all brokers; negative where offsets are beyond the end.",
          "R202 and R43; not of broadcasting groups"),
    gauge("rocketmq_group_retrydiff", _DIFF, "messages", "Lag in the retry topic of a group.", "R202 and R43"),
    gauge("rocketmq_group_dlqdiff", _DIFF, "messages", "Lag in the dead-letter topic of a group, if it is consumed.",
          "R202 and R43"),
    gauge("rocketmq_message_accumulation", _GROUP, "messages", "Lag of a group by broker.",
          "R202 and R43"),
    gauge("rocketmq_group_get_latency_by_storetime", _GROUP, "ms",
          "Age of the oldest message that a group has not consumed; 0 without lag.", "R303"),
    gauge("rocketmq_group_get_latency", f"{_GROUP} queueid", "ms",
          "Age of the oldest unconsumed message by queue, of queues with lag.", "R303; --queue-series says how many"),
    gauge("rocketmq_send_back_nums", _GROUP, "messages", "Messages sent back for a retry in the last minute.",
          "R315 SNDBCK_PUT_NUMS, its sum"),
    gauge("rocketmq_group_count", "caddr localaddr group", "clients", "Members of a group online.", "R203"),
    gauge("rocketmq_client_consume_fail_msg_count", _CLIENT, "messages",
          "Messages a client failed to consume in the last hour.", "R307"),
    gauge("rocketmq_client_consume_fail_msg_tps", _CLIENT, "messages/s",
          "Messages the client fails to consume per second.", "R307"),
    gauge("rocketmq_client_consume_ok_msg_tps", _CLIENT, "messages/s",
          "Messages the client consumes per second.", "R307"),
    gauge("rocketmq_client_consume_rt", _CLIENT, "ms", "Consume latency of the client's listener.", "R307"),
    gauge("rocketmq_client_consumer_pull_rt", _CLIENT, "ms", "Pull latency of the client.", "R307"),
    gauge("rocketmq_client_consumer_pull_tps", _CLIENT, "messages/s", "Messages the client pulls per second.", "R307"),
)  # fmt: skip

OWN: tuple[Metric, ...] = (
    gauge("orbitmq_broker_up", _BROKER, "", "1 if the broker responded in the last round, else 0.",
          "R28 of each broker that is or was registered", rocketmq=False),
    gauge("orbitmq_broker_has_master", "cluster broker", "", "1 if a master of the broker name responds, else 0.",
          "R106, and R28 of its brokers", rocketmq=False),
    gauge("orbitmq_broker_start_time_seconds", _BROKER, "s", "Start time of the broker, since the epoch.",
          "runtime table, `bootTimestamp`", rocketmq=False),
    gauge("orbitmq_half_messages", "cluster broker", "messages",
          "Half messages after the offset of the broker's transaction checks.", "R202 and R43 of the half topic",
          rocketmq=False),
    gauge("orbitmq_timer_messages", "cluster broker", "messages", "Timer messages that wait.",
          "runtime table of the master, `timerCongestNum`", rocketmq=False),
    gauge("orbitmq_timer_late_seconds", "cluster broker", "s", "How long the next timer message is overdue.",
          "runtime table of the master, `timerReadBehind`", rocketmq=False),
    gauge("orbitmq_group_online_consumers", "group", "clients",
          "Members online on all brokers; 0 for a group without any.", "R203",
          rocketmq=False),
    gauge("orbitmq_group_lag_messages", "cluster topic group", "messages",
          "Lag of a group on all brokers, counted from the first message that still exists; never negative, and "
          "missing while the data of a broker is missing.", "R202 and R43", rocketmq=False),
    gauge("orbitmq_group_queue_lag_max_messages", "cluster topic group", "messages",
          "Lag of the queue with the largest lag.", "R202 and R43", rocketmq=False),
    gauge("orbitmq_group_queues", "cluster topic group", "queues", "Read queues of the topic.",
          "R21", rocketmq=False),
    gauge("orbitmq_group_ahead_messages", "cluster topic group", "messages",
          "Messages by which offsets of a group are beyond the end of their queues.", "R202 and R43", rocketmq=False),
    gauge("orbitmq_queue_lag_messages", "topic group broker queue", "messages",
          "Lag by queue, of the queues with the largest lag.", "R202 and R43; --queue-series says how many",
          rocketmq=False),
    gauge("orbitmq_scrape_stale_seconds", "target", "s",
          "Age of the last response of a broker or of the name servers.", "the exporter's clock", rocketmq=False),
)  # fmt: skip

EXPORTER: tuple[Metric, ...] = (*CLUSTER, *RUNTIME, *OWN)
"""Everything `orbitmq exporter` serves, in addition to `table_native.PROCESS`."""
