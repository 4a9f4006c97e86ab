"""Slows down who guesses secrets: so many wrong signatures of an address are answered at once, further ones later.

Right signatures never pass by here, so that neighbours behind one address, and whoever else uses the account, notice
nothing. Pure; must not know requests or connections.
"""

from __future__ import annotations

import ipaddress
import math
from collections import OrderedDict
from typing import Final

FREE_TRIES: Final = 20  # a restarted client with an old secret asks about so much before it gives up
INTERVAL_S: Final = 1.0  # between further ones
LATE_S: Final = 2.0  # below the 3 s after which clients give up: they hear why
ADDRESSES_MAX: Final = 10_000  # some 2 MB; the one that tried longest ago gives way
_NETWORK_BITS: Final = 64  # of IPv6: whoever has one address there has them all


class SignatureThrottle:
    """When the tries of each address are paid off; times in seconds of a clock that only grows."""

    def __init__(self) -> None:
        self._paid_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._paid_at)

    def wrong(self, host: str, now_s: float) -> float:
        """Note a wrong signature; how long its answer has to wait, `LATE_S` when there were too many."""
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
