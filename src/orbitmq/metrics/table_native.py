"""The metrics of `/metrics` of orbitmq's own brokers and name servers: declarations only.

Names that begin with `rocketmq_`, and their labels and units, are those of Apache RocketMQ 5.3.3, if it has the metric.
"""

from __future__ import annotations

from orbitmq.metrics.model import Metric, counter, gauge, histogram

_STORAGE = "storage_type storage_medium"
_GROUP = "topic consumer_group is_retry is_system"

NODE_LABELS = ("cluster", "node_type", "node_id")
"""Labels before the others in all of these; `node_id` is the broker's name, or the name server's address."""

BROKER: tuple[Metric, ...] = (
    counter(
        "rocketmq_messages_in_total", "topic message_type is_system", "messages", "Messages stored, by topic.",
        "counted at each put; a delayed message counts in SCHEDULE_TOPIC_XXXX and, when it is due, in its topic",
    ),
    counter(
        "rocketmq_throughput_in_total", "topic message_type is_system", "bytes", "Bytes stored, by topic.",
        "the same, with the size in the log",
    ),
    counter(
        "rocketmq_messages_out_total", "topic consumer_group is_system", "messages",
        "Messages delivered to consumers, by topic and group.", "counted at each read that finds some",
    ),
    counter(
        "rocketmq_throughput_out_total", "topic consumer_group is_system", "bytes",
        "Bytes delivered to consumers, by topic and group.", "the same, with the size in the log",
    ),
    counter(
        "rocketmq_send_to_dlq_messages_total", "topic consumer_group is_system", "messages",
        "Messages moved to the dead-letter topic of a group.", "messages stored in the group's `%DLQ%` topic",
    ),
    counter(
        "orbitmq_send_back_messages_total", "topic consumer_group", "messages",
        "Messages sent back by a group for a retry.", "counted at each message sent back", rocketmq=False,
    ),
    counter(
        "orbitmq_put_failures_total", "", "messages", "Messages refused by the store.",
        "counted at each put", rocketmq=False,
    ),
    counter(
        "rocketmq_commit_messages_total", "topic", "messages", "Transactions committed.",
        "counted when the op message is stored; zero at the start",
    ),
    counter(
        "rocketmq_rollback_messages_total", "topic", "messages", "Transactions rolled back.",
        "counted when the op message is stored; zero at the start",
    ),
    gauge(
        "rocketmq_half_messages", "", "messages", "Pending transactions.",
        "half messages behind the first open one without an op message",
    ),
    gauge(
        "rocketmq_processor_watermark", "processor", "requests", "Pending requests by kind.",
        "sends for their flush or slave, pulls for messages, queries for a thread",
    ),
    gauge("rocketmq_broker_permission", "", "",
          "Permission of the broker: 4 read, 2 write, 6 both.", "brokerPermission"),
    gauge("rocketmq_topic_number", "", "topics", "Topics of the broker.", "its table of topics"),
    gauge("rocketmq_consumer_group_number", "", "groups", "Consumer groups of the broker.", "its table of groups"),
    gauge(
        "rocketmq_producer_connections", "language version protocol_type", "clients", "Producers online.",
        "heartbeats; a client counts once for each group it is in",
    ),
    gauge(
        "rocketmq_consumer_connections", "consumer_group language version protocol_type consume_mode is_system",
        "clients", "Members of consumer groups online.", "heartbeats",
    ),
    gauge(
        "rocketmq_consumer_lag_messages", _GROUP, "messages", "Lag of a group.",
        "end of each read queue minus the group's offset, which counts from the first message that is still there; "
        "never negative",
    ),
    gauge(
        "rocketmq_consumer_lag_latency_milliseconds", _GROUP, "ms",
        "Age of the oldest message that a group has not consumed; 0 without lag.",
        "store time of the next message, the largest of all queues",
    ),
    gauge(
        "orbitmq_queue_lag_messages", "topic group broker queue", "messages",
        "Lag by queue, of the queues with the largest lag.", "as above; metricsQueueSeries says how many",
        rocketmq=False,
    ),
    gauge(
        "orbitmq_differing_groups", "", "groups",
        "Groups whose members have different subscriptions and therefore miss messages.",
        "heartbeats", rocketmq=False,
    ),
    gauge(
        "rocketmq_storage_size_bytes", _STORAGE, "bytes", "Size of the commit log.", "its end minus its beginning"
    ),
    gauge(
        "rocketmq_storage_flush_behind_bytes", _STORAGE, "bytes", "Bytes of the commit log not flushed yet.",
        "its end minus what is flushed",
    ),
    gauge(
        "rocketmq_storage_dispatch_behind_bytes", _STORAGE, "bytes",
        "Bytes of the commit log not dispatched yet.",
        "always 0: the queue entry is made in the same turn of the event loop",
    ),
    gauge(
        "rocketmq_storage_message_reserve_time_milliseconds", _STORAGE, "ms", "Age of the oldest message.",
        "its store time; 0 without messages",
    ),
    gauge(
        "rocketmq_timing_messages", "topic", "messages", "Delayed messages that are not due yet.",
        "ends of the queues of SCHEDULE_TOPIC_XXXX minus what was delivered; for timer messages, of "
        "rmq_sys_wheel_timer, those in memory",
    ),
    gauge(
        "rocketmq_timer_dequeue_latency_milliseconds", "", "ms",
        "How long the next timer message is overdue; 0 if it is not.", "those in memory; missing for a slave",
    ),
    counter(
        "rocketmq_timer_dequeue_total", "topic", "messages", "Timer messages delivered, by topic.",
        "counted at each; zero at the start",
    ),
    gauge(
        "rocketmq_consumer_inflight_messages", _GROUP, "messages",
        "Messages of a topic, or of a retry topic, that were delivered by POP consumption and are not acknowledged.",
        "those in memory; the groups with most; missing for a slave",
    ),
    counter(
        "rocketmq_pop_revive_retry_messages_total", "", "messages",
        "Messages that were not acknowledged in time, and were put to a retry topic.", "counted at each",
    ),
    gauge(
        "orbitmq_storage_disk_used_ratio", "path", "", "Disk usage of a file system, 0 to 1.",
        "the operating system; of each directory of the log", rocketmq=False,
    ),
    gauge(
        "orbitmq_broker_active", "", "", "1 while the broker stores messages, 0 after a disk failure.",
        "the store", rocketmq=False,
    ),
    gauge(
        "orbitmq_start_time_seconds", "", "s", "Start time of the broker, since the epoch.", "its clock",
        rocketmq=False,
    ),
    gauge(
        "orbitmq_event_loop_late_seconds", "", "s", "Delay of the event loop in reading requests.",
        "measured when requests are read", rocketmq=False,
    ),
    histogram(
        "orbitmq_event_loop_delay_seconds", "clock", "s",
        "Delay of the event loop for ready work: `wall` is all of it, `cpu` the part in which its thread was running.",
        "a timer every 5 ms, and how late it fires: a turn of 30 ms shows as 25 to 30", rocketmq=False,
    ),
    gauge(
        "orbitmq_replication_slaves", "", "brokers", "Slaves connected to this master.",
        "their connections; missing for a slave", rocketmq=False,
    ),
    gauge(
        "orbitmq_replication_behind_bytes", "slave", "bytes",
        "Replica lag: bytes of the commit log a slave has not acknowledged yet.",
        "end of the log minus the slave's last report", rocketmq=False,
    ),
    gauge(
        "orbitmq_replication_serving", "", "",
        "1 if this broker serves messages; 0 of a slave whose log differs or was not compared yet, and of a fenced "
        "master.", "the comparison with its master; responses of other masters",
        rocketmq=False,
    ),
    gauge(
        "orbitmq_replication_epoch_seconds", "", "s",
        "Time of this master's promotion, since the epoch; 0 if it never was promoted.",
        "config/mastership.json; missing for a slave", rocketmq=False,
    ),
    gauge(
        "orbitmq_replication_other_masters", "state", "brokers",
        "Other masters of this broker's name, by state: serving or stopped.",
        "queried every 1 to 30 s; missing for a slave",
        rocketmq=False,
    ),
    gauge(
        "orbitmq_replication_refused_slaves", "", "brokers",
        "Slaves refused because their log differs from this master's.",
        "they report it every 10 s; missing for a slave", rocketmq=False,
    ),
    gauge(
        "orbitmq_election_epoch", "", "",
        "Number of the last election of a master that this broker knows.", "the agreement store; missing without one",
        rocketmq=False,
    ),
    gauge(
        "orbitmq_election_in_sync", "", "brokers",
        "Replicas that have every acknowledged message and may be elected, the master among them.",
        "the agreement store; missing for a slave", rocketmq=False,
    ),
    gauge(
        "orbitmq_election_lease_seconds", "", "s",
        "How long this master may serve without a renewal of its lease.", "the clock; missing for a slave",
        rocketmq=False,
    ),
    gauge(
        "orbitmq_election_maintenance", "", "", "Whether no replica but the last master is elected.",
        "the agreement store; missing without one", rocketmq=False,
    ),
    gauge(
        "orbitmq_election_agreement_up", "", "", "Whether the agreement store has responded to the last request.",
        "it is read every second; missing without one", rocketmq=False,
    ),
    gauge(
        "orbitmq_connections", "", "connections", "Clients, tools and slaves connected.", "the server", rocketmq=False
    ),
    gauge(
        "orbitmq_grpc_connections", "", "connections", "Connections of RocketMQ 5 clients that speak gRPC.",
        "the server for gRPC", rocketmq=False,
    ),
    gauge(
        "orbitmq_grpc_clients", "", "clients",
        "RocketMQ 5 clients that speak gRPC; each counts in orbitmq_connections, too.", "the server for gRPC",
        rocketmq=False,
    ),
    gauge(
        "orbitmq_connection_memory_bytes", "kind", "bytes",
        "Memory of connections: incomplete requests, requests in flight, and responses that peers have not read.",
        "counted where a connection has more than a little; connectionMemoryMax is the limit", rocketmq=False,
    ),
    counter(
        "orbitmq_refusals_total", "limit", "refusals", "Requests and connections refused because a limit is reached.",
        "counted at each; see docs/security.md for the limits", rocketmq=False,
    ),
    histogram(
        "orbitmq_put_latency_seconds", "", "s", "Time the store took to append a message or a batch.",
        "timed at each put; without the wait for flush and slave", rocketmq=False,
    ),
    histogram(
        "rocketmq_message_size", "", "bytes", "Size of a message in the log; those of a batch have their mean.",
        "counted at each put, over all topics",
    ),
    histogram(
        "rocketmq_finish_message_latency_milliseconds", "", "ms", "Time from a half message to its commit.",
        "store time of the half message, over all topics",
    ),
)  # fmt: skip

NAMESRV: tuple[Metric, ...] = (
    gauge(
        "orbitmq_namesrv_brokers", "broker_cluster", "brokers", "Masters and slaves registered.", "the route table",
        rocketmq=False,
    ),
    gauge(
        "orbitmq_namesrv_broker_has_master", "broker_cluster broker", "",
        "1 if a broker name has a master, 0 if only slaves are registered.", "the route table", rocketmq=False,
    ),
    gauge(
        "orbitmq_namesrv_broker_other_masters", "broker_cluster broker", "brokers",
        "Further masters that register under the same broker name; should be 0.", "the route table",
        rocketmq=False,
    ),
    gauge(
        "orbitmq_namesrv_broker_silent_seconds", "broker_cluster broker broker_id", "s",
        "Time since the last registration of a broker; it is removed after 120 s.", "the route table", rocketmq=False,
    ),
    gauge("orbitmq_namesrv_topics", "", "topics", "Topics with a route.", "the route table", rocketmq=False),
    gauge(
        "orbitmq_namesrv_connections", "", "connections", "Brokers, clients and tools connected.", "the server",
        rocketmq=False,
    ),
    gauge(
        "orbitmq_namesrv_connection_memory_bytes", "kind", "bytes", "Memory of connections, as for a broker.",
        "as of a broker", rocketmq=False,
    ),
    histogram(
        "orbitmq_namesrv_event_loop_delay_seconds", "clock", "s",
        "Delay of the event loop for ready work, as for a broker.", "as of a broker", rocketmq=False,
    ),
    counter(
        "orbitmq_namesrv_refusals_total", "limit", "refusals",
        "Requests and connections refused because a limit is reached.",
        "counted at each; see docs/security.md for the limits", rocketmq=False,
    ),
)  # fmt: skip

PROXY: tuple[Metric, ...] = (
    gauge("orbitmq_proxy_connections", "", "connections", "Connections of clients.", "the server", rocketmq=False),
    gauge(
        "orbitmq_proxy_clients", "", "clients", "Clients, by their ids.", "those that have sent something of late",
        rocketmq=False,
    ),
    counter(
        "orbitmq_proxy_calls_total", "method", "calls", "Calls that clients have begun.", "counted at each",
        rocketmq=False,
    ),
    gauge(
        "orbitmq_proxy_connection_memory_bytes", "kind", "bytes", "Memory of connections, as for a broker.",
        "as of a broker", rocketmq=False,
    ),
    counter(
        "orbitmq_proxy_refusals_total", "limit", "refusals",
        "Calls and connections refused because a limit is reached.",
        "counted at each; see docs/security.md for the limits", rocketmq=False,
    ),
)  # fmt: skip

GATEWAY: tuple[Metric, ...] = (
    counter(
        "orbitmq_gateway_requests_total", "operation status", "requests", "Requests, by operation and HTTP status.",
        "counted at each response", rocketmq=False,
    ),
    gauge(
        "orbitmq_gateway_waiting_receives", "", "requests", "Receives that wait for messages.", "those in flight",
        rocketmq=False,
    ),
    gauge("orbitmq_gateway_streams", "", "streams", "Open streams of events.", "those that are open", rocketmq=False),
    gauge(
        "orbitmq_gateway_accounts", "", "accounts", "Accounts with connections to brokers.",
        "those in use within 5 minutes", rocketmq=False,
    ),
    counter(
        "orbitmq_gateway_refusals_total", "limit", "refusals", "Requests refused because a limit is reached.",
        "counted at each; see docs/gateway.md for the limits", rocketmq=False,
    ),
)  # fmt: skip

PROCESS: tuple[Metric, ...] = (
    gauge("orbitmq_build_info", "version python form", "",
          "Always 1; the labels hold the versions, and whether the message path is compiled or interpreted.",
          "the build", rocketmq=False),
    gauge("orbitmq_resident_memory_bytes", "", "bytes", "Memory of the process.", "/proc/self/statm; none elsewhere",
          rocketmq=False),
    counter("orbitmq_cpu_seconds_total", "", "s", "Processor time of the process, in user mode and in the kernel.",
            "the operating system", rocketmq=False),
    gauge("orbitmq_scrape_duration_seconds", "job", "s", "Duration of the last collection.", "timed", rocketmq=False),
    counter("orbitmq_scrape_errors_total", "job target", "failures",
            "Failed collections; the target is the name of a metric or, with the exporter, an address.",
            "counted at each collection", rocketmq=False),
)  # fmt: skip
"""Metrics of every process with a metrics page, without the labels above."""
