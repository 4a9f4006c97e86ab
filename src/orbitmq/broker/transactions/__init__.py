"""Transactions: half messages are stored, but not delivered before their producer commits them."""
