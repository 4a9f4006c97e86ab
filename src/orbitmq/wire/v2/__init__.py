"""The protocol of RocketMQ 5 clients, gRPC service apache.rocketmq.v2.MessagingService: enums, messages and methods.

Only `messages` imports Protobuf, so the enums cost a program nothing that serves no such client.
"""
