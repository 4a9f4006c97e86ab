"""Transactions: messages that wait, invisible, until their producer says whether they are delivered."""
