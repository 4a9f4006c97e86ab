"""Master to slave: the protocol without I/O, and its two ends.

A slave connects to its master's port for replication and reports how far its log goes; the master sends what follows,
raw bytes of its log. Both are as Apache RocketMQ 4.9 has them, so either end may be one of RocketMQ's.
"""
