"""Whether a name server of either kind knows a broker, asked in bytes. Knows nothing of orbitmq."""

from __future__ import annotations

import json
import socket
import struct

_GET_BROKER_CLUSTER_INFO = 106


def is_registered(namesrv: str, broker_name: str) -> bool:
    """Whether the name server knows a broker of this name, asked as any client would ask (code 106)."""
    host, _, port = namesrv.rpartition(":")
    header = json.dumps(
        {"code": _GET_BROKER_CLUSTER_INFO, "flag": 0, "language": "PYTHON", "opaque": 1, "version": 407}
    )
    try:
        with socket.create_connection((host, int(port)), timeout=2) as connection:
            connection.sendall(struct.pack(">ii", 4 + len(header), len(header)) + header.encode())
            size = struct.unpack(">i", _read(connection, 4))[0]
            return json.dumps(broker_name).encode() in _read(connection, size)
    except OSError:
        return False


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise ConnectionResetError("closed while answering")
        data += chunk
    return data
