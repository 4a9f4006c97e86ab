"""HTTP and JSON for applications without a client of RocketMQ: send, receive, acknowledge, follow a topic, lag.

A request is signed with the caller's own account and passed on, so brokers decide what it may. The gateway keeps no
messages and has no account. Its operations are rows of a table, of which routes and the OpenAPI document are made.
"""
