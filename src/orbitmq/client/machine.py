"""The addresses of this machine, as the operating system lists them. Knows no client."""

from __future__ import annotations

import socket
import struct
import sys

_SIOCGIFADDR = 0x8915  # Linux: the IPv4 address of an interface
_INTERFACE_NAME_SIZE = 256


def own_addresses() -> list[str]:
    """One address an interface in their order; bridges are left out, they belong to containers."""
    if sys.platform != "linux":
        return _addresses_of_name()
    found = [_address_of(name) for _, name in socket.if_nameindex() if not name.startswith(("br-", "docker", "virbr"))]
    return [address for address in found if address] or _addresses_of_name()


def _address_of(interface: str) -> str | None:
    import fcntl

    question = struct.pack(f"{_INTERFACE_NAME_SIZE}s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, question)
        except OSError:
            return None  # an interface without an IPv4 address
    return socket.inet_ntoa(answer[20:24])


def _addresses_of_name() -> list[str]:
    try:
        return [str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)]
    except OSError:
        return []
