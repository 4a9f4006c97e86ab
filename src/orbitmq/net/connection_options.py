"""Options of the connections a server accepts: limits on what any peer may use. Keys are orbitmq's own."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.net.budget import MEMORY_MAX
from orbitmq.runtime.options import Options, option

CONNECTIONS_MAX = 20_000  # about 10 KiB each when quiet; keeps a flood of connections from taking the memory
FRAME_TIMEOUT_MS = 120_000  # as long as a connection may be silent; 16 MiB need 1.1 Mbit/s


@dataclass(frozen=True)
class ConnectionOptions(Options):
    """Limits of one server, all its ports together."""

    connections_max: int = option(
        "connectionsMax",
        CONNECTIONS_MAX,
        "Connections at a time; never more than a third of the files it may open, the others are for messages.",
        minimum=1,
    )
    host_connections_max: int = option(
        "connectionsPerHostMax",
        CONNECTIONS_MAX // 2,
        "Connections from one address at a time, so that one machine leaves room for others. Many machines may stand "
        "behind one address.",
        minimum=1,
    )
    frame_timeout_ms: int = option(
        "frameTimeoutMillis",
        FRAME_TIMEOUT_MS,
        "How long a request may take to arrive, from its first byte to its last.",
        unit="ms",
        minimum=100,
    )
    memory_max: int = option(
        "connectionMemoryMax",
        MEMORY_MAX,
        "Memory of all connections for requests that have not arrived in full, as much for requests that are worked "
        "on, and as much for responses that peers do not read. Beyond it the connection that holds most is closed.",
        unit="bytes",
        minimum=64 << 20,
    )
