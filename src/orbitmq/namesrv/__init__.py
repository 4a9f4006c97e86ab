"""The name server: the route table of topics and brokers, in memory only; brokers register every 30 s."""
