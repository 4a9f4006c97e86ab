"""Connections over asyncio: server, client, request table, timeouts, back-pressure. Knows no request's meaning."""
