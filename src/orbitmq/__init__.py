"""orbitmq: a message system compatible with Apache RocketMQ 4.9 on the wire and on disk."""

__version__ = "0.1.0"
