"""Whether a slave's log is a prefix of its master's, and where they differ.

Messages of the master are read by their physical offset, which every RocketMQ broker supports: the same bytes at the
same offset are the same message, for they contain offsets and times. Nothing is changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from orbitmq.errors import BrokerError, LogsDiffer
from orbitmq.net.remoting import Remoting
from orbitmq.operations.pulls import view_message
from orbitmq.operations.statistics import runtime_info
from orbitmq.store.replica import ReplicaStore
from orbitmq.wire.codes import ResponseCode

TIMEOUT_MS = 5000


async def check_agreement(store: ReplicaStore, remoting: Remoting, address: str, begin: int, end: int) -> None:
    """Return if the broker at `address`, whose log has these limits, can continue the log of `store`; compares its last
    message.

    LogsDiffer with the offset and a remedy; RemotingError if the broker does not respond.
    """
    if store.is_empty:
        return
    last = await asyncio.to_thread(store.last_message)  # it reads every queue
    if last is None:
        raise LogsDiffer("this log has messages and its queues have none, so it cannot be compared; start it empty")
    place, _ = last
    ends_at = store.copied_to
    if ends_at > end:
        more = f"{ends_at - end} bytes more than its master at {address}, which ends at {end}"
        at = await first_difference(store, remoting, address, begin)
        raise LogsDiffer(f"this log ends at {ends_at}, that is {more}; {_differs_words(at, end)}")
    if place < begin:
        raise LogsDiffer(
            f"the master at {address} has its log from {begin} on and this one ends at {ends_at}: the part between has "
            "expired there; move this store's directory away and start empty"
        )
    if not await _is_same(store, remoting, address, place):
        at = await first_difference(store, remoting, address, begin)
        raise LogsDiffer(f"this log is not the beginning of that of {address}; {_differs_words(at, end)}")


async def log_limits(remoting: Remoting, address: str) -> tuple[int, int]:
    """The beginning and end of a broker's log; both are 0 for an empty one of RocketMQ's."""
    try:
        figures = await runtime_info(remoting, address, timeout_ms=TIMEOUT_MS)
    except BrokerError as error:
        if "NoSuchElementException" not in error.remark:
            raise
        return 0, 0
    return max(0, int(figures["commitLogMinOffset"])), int(figures["commitLogMaxOffset"])


async def first_difference(store: ReplicaStore, remoting: Remoting, address: str, begin: int = 0) -> int | None:
    """The first message of `store` that the broker lacks; None if it has all from `begin` on."""

    async def is_same(place: int) -> bool:
        return await _is_same(store, remoting, address, place)

    files = [start for start in store.file_starts() if start >= begin]
    same_files = await _count_same(files, is_same)
    if files and not same_files:
        return files[0]
    start = files[same_files - 1] if files else max(store.file_starts(), default=0)
    places = await asyncio.to_thread(store.message_places, start)
    places = [place for place in places if place >= begin]
    same = await _count_same(places, is_same)
    if same < len(places):
        return places[same]
    return files[same_files] if same_files < len(files) else None


async def _count_same(places: Sequence[int], is_same: Callable[[int], Awaitable[bool]]) -> int:
    """How many of the places, from the first on, hold the same; logs that differ once differ from there on."""
    low, high = 0, len(places)
    while low < high:
        middle = (low + high) // 2
        if await is_same(places[middle]):
            low = middle + 1
        else:
            high = middle
    return low


async def _is_same(store: ReplicaStore, remoting: Remoting, address: str, place: int) -> bool:
    own = store.unit_at(place)
    try:
        return own is not None and bytes(own) == await view_message(remoting, address, place, timeout_ms=TIMEOUT_MS)
    except BrokerError as error:
        if error.code != ResponseCode.SYSTEM_ERROR:
            raise  # another error than that there is no message at this offset
        return False


def _differs_words(place: int | None, end: int) -> str:
    where = f"they differ from {place} on" if place is not None else f"they agree up to {end}"
    return f"{where}. Nothing is changed: keep the log you trust, and move the other store's directory away"
