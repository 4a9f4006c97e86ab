"""The name server: the route table of topics and brokers. Routes are kept in memory only; brokers register every 30
s.
"""
