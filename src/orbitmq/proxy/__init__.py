"""What RocketMQ 5 clients send and receive by gRPC: checks, messages in both protocols, receipts, settings."""
