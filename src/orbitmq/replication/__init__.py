"""Master to slave: the protocol without I/O, and its two ends.

A slave connects to its master's replication port and reports the end of its log; the master sends what follows, raw
bytes of its log. Both are those of Apache RocketMQ 4.9, so either end may be a RocketMQ broker.
"""
