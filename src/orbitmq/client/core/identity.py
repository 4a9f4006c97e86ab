"""How a client names itself. Pure: addresses, process id and time come in."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

DEFAULT_INSTANCE = "DEFAULT"


def client_id(client_ip: str, instance_name: str, unit_name: str | None = None, *, stream: bool = False) -> str:
    """The name a broker knows a client by; two clients with one name are one member to it."""
    unit = f"@{unit_name}" if unit_name else ""
    return f"{client_ip}@{instance_name}{unit}{'@STREAM' if stream else ''}"


def own_instance_name(pid: int, nanoseconds: int) -> str:
    """A name no other client has."""
    return f"{pid}#{nanoseconds}"


def client_address(addresses: Sequence[str], fallback: str = "127.0.0.1") -> str:
    """The address of this machine that stands in client and message ids.

    The first IPv4 address that is neither loopback nor 192.168.x.x (container bridges use those), else the last
    IPv4 one, else an IPv6 one in brackets.
    """
    ips = [ip for ip in map(ipaddress.ip_address, addresses) if not ip.is_loopback]
    fours = [str(ip) for ip in ips if ip.version == 4]
    preferred = [ip for ip in fours if not ip.startswith("192.168")]
    if preferred:
        return preferred[0]
    if fours:
        return fours[-1]
    return f"[{ips[0]}]" if ips else fallback


def address_bytes(client_ip: str) -> bytes:
    """The 4 or 16 bytes that stand in unique message ids."""
    try:
        return ipaddress.ip_address(client_ip.strip("[]")).packed
    except ValueError:
        return ipaddress.ip_address(
            "127.0.0.1"
        ).packed  # a host name as client_ip: the id stays unique by its other parts
