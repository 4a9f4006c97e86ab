"""How much callers may take of the gateway at a time: each limit with its reason. Knows no operation."""

from __future__ import annotations

from collections import Counter
from typing import Final

from orbitmq.gateway.problems import Refused

CONNECTIONS_MAX: Final = 1000  # some 50 KB each, and a file; a process may usually open 1024 without asking for more
REQUEST_SECONDS: Final = 60.0  # to the end of a request: a body of 8 MiB over a line of 1 Mbit/s
BODY_BYTES_MAX: Final = 8 << 20  # the largest message of a broker, 4 MiB, as base64 or with escapes
BODIES_BYTES_MAX: Final = 64 << 20  # of all requests in progress; parsed they take about twice as much
WAITING_MAX: Final = 500  # receives: half of the connections, so that sends always find one
STREAMS_MAX: Final = 200  # each reads ahead, and holds a pull or a notification at every broker of its topic
EACH_SHARE: Final = 4  # one caller, or for bodies one address, has a quarter of these at most


class Places:
    """Places of one kind, of which each holder gets no more than a share."""

    def __init__(self, what: str, total: int) -> None:
        self.what = what
        self.total = total
        self.refused = 0
        self._taken: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._taken.total()

    def take(self, holder: str, places: int = 1) -> None:
        """Take some. Refused if that is more than the share of the holder, or than there are."""
        share = max(1, self.total // EACH_SHARE)
        if self._taken[holder] + places > share:
            self.refused += 1
            raise Refused(429, f"the share of one caller is {share} {self.what}, which are taken")
        if len(self) + places > self.total:
            self.refused += 1
            raise Refused(429, f"the limit of the gateway is {self.total} {self.what}, which are taken")
        self._taken[holder] += places

    def leave(self, holder: str, places: int = 1) -> None:
        self._taken[holder] -= places
        if not self._taken[holder]:
            del self._taken[holder]
