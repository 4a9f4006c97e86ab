"""Connections over asyncio: server, client, request table, timeouts, back-pressure. Knows no store and no request's meaning."""
