"""Asks a web server for the list of name servers. Knows no name server."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
from urllib.parse import urlsplit

from orbitmq.client.core.addresses import name_servers
from orbitmq.errors import ConnectError

TIMEOUT_S = 3.0
ANSWER_MAX = 64 << 10  # bytes; a list of a thousand servers is shorter


async def look_up(url: str) -> tuple[str, ...]:
    """The addresses in the first line of the answer. ConnectError when there is no answer, or none with addresses."""
    return await asyncio.to_thread(_look_up, url)


def _look_up(url: str) -> tuple[str, ...]:
    parts = urlsplit(url)
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    try:
        with contextlib.closing(http.client.HTTPConnection(parts.netloc, timeout=TIMEOUT_S)) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            text = response.read(ANSWER_MAX).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise ConnectError(f"cannot look name servers up at {url}: {error}") from error
    found = name_servers(text.splitlines()[0] if text.strip() else "")
    if response.status != http.client.OK or not found:
        raise ConnectError(f"{url} gives no addresses of name servers: status {response.status}")
    return found
