"""Transactions: half messages, invisible to consumers until their producer commits or rolls back."""
