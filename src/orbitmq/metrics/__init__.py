"""Figures for Prometheus: the tables of metrics, the pages that brokers and name servers serve, and the exporter, which
asks a whole cluster of either system.

Every figure is declared in a table (`table_native`, `table_exporter`) and read from counters that exist anyway. Must
not know dashboards, rules or commands.
"""
