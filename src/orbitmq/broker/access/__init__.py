"""Access control of RocketMQ 4.x: accounts in YAML files, signed requests, permissions on topics and groups."""
