"""Whether a slave's log is the beginning of its master's, and from where on it is not.

The master is asked for messages by their place in the log, which every broker of RocketMQ answers: the same bytes at
the same place are the same message, for numbers, place and times are in them. Nothing is changed.
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
    """Return when the broker at `address`, whose log has these limits, can go on where the log of `store` ends; it is
    compared at its last message.

    LogsDiffer with the place, and with what to do; RemotingError when the broker does not answer.
    """
    if store.is_empty:
        return
    last = await asyncio.to_thread(store.last_message)  # it looks at every queue
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
            f"the master at {address} has its log from {begin} on and this one ends at {ends_at}: what lies between is "
            "gone there; move this store's directory away and start empty"
        )
    if not await _is_same(store, remoting, address, place):
        at = await first_difference(store, remoting, address, begin)
        raise LogsDiffer(f"this log is not the beginning of that of {address}; {_differs_words(at, end)}")


async def log_limits(remoting: Remoting, address: str) -> tuple[int, int]:
    """Where the log of a broker begins and ends; both are 0 of RocketMQ's without a message, which cannot tell."""
    try:
        figures = await runtime_info(remoting, address, timeout_ms=TIMEOUT_MS)
    except BrokerError as error:
        if "NoSuchElementException" not in error.remark:
            raise
        return 0, 0
    return max(0, int(figures["commitLogMinOffset"])), int(figures["commitLogMaxOffset"])


async def first_difference(store: ReplicaStore, remoting: Remoting, address: str, begin: int = 0) -> int | None:
    """Place of the first message of `store` that the broker does not have there; None when it has all of them that
    follow `begin`.
    """

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
            raise  # it does not say that there is no message at this place
        return False


def _differs_words(place: int | None, end: int) -> str:
    where = f"they differ from {place} on" if place is not None else f"they agree up to {end}"
    return f"{where}. Nothing is changed: keep the log you trust, and move the other store's directory away"
