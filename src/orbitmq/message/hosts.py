"""Host fields of a message: 4 or 16 address bytes in network order, then the port as a 32-bit number.

Pure byte work; names are never resolved.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final

from orbitmq.errors import MessageIllegal, UnitError

HOST_V4_SIZE: Final = 8
HOST_V6_SIZE: Final = 20
HOSTS_REMEMBERED: Final = 4096  # one broker talks to some thousand clients; the same hosts come with every message


@lru_cache(HOSTS_REMEMBERED)
def encode_host(ip: str, port: int) -> bytes:
    """8 bytes for an IPv4 address, 20 for IPv6. MessageIllegal for anything that is no address."""
    try:
        return ipaddress.ip_address(ip).packed + port.to_bytes(4, "big")
    except (ValueError, OverflowError) as error:
        raise MessageIllegal(f"{ip!r} with port {port} is no host address") from error


@lru_cache(HOSTS_REMEMBERED)
def decode_host(data: bytes) -> tuple[str, int]:
    """Address text and port. UnitError when `data` has neither of the two sizes."""
    if len(data) not in (HOST_V4_SIZE, HOST_V6_SIZE):
        raise UnitError(f"a host field of {len(data)} bytes")
    return str(ipaddress.ip_address(data[:-4])), int.from_bytes(data[-4:], "big", signed=True)


@lru_cache(HOSTS_REMEMBERED)
def host_text(data: bytes) -> str:
    """`10.0.0.1:10911`, `[fd00::1]:10911`."""
    return address_text(*decode_host(data))


def address_text(host: str, port: int) -> str:
    """`host:port`, an IPv6 address in brackets: many clients can take it in no other form."""
    host = host.strip("[]")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
