"""Slows down attempts to guess secrets: after a number of wrong signatures from an address, responses are delayed.

Right signatures are never delayed, so other clients behind the same address or with the same account are not affected.
Pure; must not know requests or connections.
"""

from __future__ import annotations

import ipaddress
import math
from collections import OrderedDict
from typing import Final

FREE_TRIES: Final = 20  # a restarted client with an old secret fails about this often before it gives up
INTERVAL_S: Final = 1.0  # between further ones
LATE_S: Final = 2.0  # less than the 3 s of a client's timeout, so that it receives the reason
REST_SECONDS: Final = 10.0  # that a connection with too many wrong signatures takes a place of its address's
RESTS: Final = "access.rests"
"""Attribute of a connection whose signatures are not checked any more; its value says why."""
TOO_OFTEN: Final = "this connection has signed wrongly too often and is about to be closed"
ADDRESSES_MAX: Final = 10_000  # some 2 MB; the address with the oldest failure is dropped first
_NETWORK_BITS: Final = 64  # of IPv6: a host usually owns its whole /64 network


class SignatureBrake:
    """When the tries of each address are paid off; times in seconds of a clock that only grows."""

    def __init__(self) -> None:
        self._paid_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._paid_at)

    def wrong(self, host: str, now_s: float) -> float:
        """Count a wrong signature. Returns the delay of its response in seconds: `LATE_S` when there were too many."""
        place = _place(host)
        paid_at = max(self._paid_at.pop(place, -math.inf), now_s - FREE_TRIES * INTERVAL_S) + INTERVAL_S
        self._paid_at[place] = paid_at = min(paid_at, now_s + LATE_S)
        if len(self._paid_at) > ADDRESSES_MAX:
            self._paid_at.popitem(last=False)
        return max(0.0, paid_at - now_s)


def _place(host: str) -> str:
    """The address, or the network of an IPv6 one."""
    if ":" not in host:
        return host
    try:
        network = ipaddress.ip_network((host.strip("[]").partition("%")[0], _NETWORK_BITS), strict=False)
    except ValueError:
        return host
    return str(network)
