"""Metrics for Prometheus: their tables, the pages of brokers and name servers, and the exporter, which polls a whole
cluster of orbitmq or RocketMQ.

Every metric is declared in a table (`table_native`, `table_exporter`) and read from counters that exist anyway. Must
not know dashboards, rules or commands.
"""
