"""The broker: handlers, topics, groups, offsets, held pulls, delayed messages; `broker.py` wires them to a store."""
