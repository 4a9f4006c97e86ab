"""Doors to the world: clock, files, option tables, background services, logging. Knows nothing of messages."""
