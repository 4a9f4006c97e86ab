"""Messages that the front keeps invisible while their push consumer works on them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from orbitmq.errors import OrbitMQError, RemotingError
from orbitmq.message.pop import Receipt
from orbitmq.proxy.handles import Handle
from orbitmq.proxy.sessions import Session
from orbitmq.runtime.clock import Clock

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
AHEAD_MS: Final = 10_000  # before the end of its time a message is renewed
STEPS_MS: Final = (60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000)
LONGEST_MS: Final = 3 * 3_600_000  # then the consumer is thought to hang, and the message is redelivered
TRIES: Final = 3
STOP_SECONDS: Final = 3.0  # for giving back; the rest is redelivered after its time
GONE_MS: Final = 1000  # when the consumer is gone
AT_A_TIME: Final = 32  # requests to one broker: its round trips overlap
HANDLES_MAX: Final = 50_000  # of a client: more than it can work on; some 400 bytes each

Change = Callable[[Session, str, str, str, Receipt, int], Awaitable[Receipt]]
"""Session, group, topic, address of the broker, receipt and milliseconds -> the receipt from then on."""


@dataclass(slots=True)
class Renewed:
    """A message that is renewed."""

    group: str
    topic: str
    address: str
    handle: Handle
    since_ms: int
    times: int = 0
    failures: int = 0
    renewing: asyncio.Future[None] | None = None

    def ends_ms(self) -> int:
        return self.handle.receipt.pop_ms + self.handle.receipt.invisible_ms


_Found = tuple[Session, tuple[str, str], Renewed]


class Renewal:
    """The handles that are renewed, by client, message id and the handle that the client has."""

    def __init__(self, clock: Clock, change: Change) -> None:
        self._clock = clock
        self._change = change
        self._all: dict[Session, dict[tuple[str, str], Renewed]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._all.values()))

    def add(self, session: Session, group: str, topic: str, message_id: str, address: str, handle: Handle) -> None:
        """Keep a message invisible from now on. A client that has too many of them gets the others again in time."""
        handles = self._all.setdefault(session, {})
        if len(handles) < HANDLES_MAX:
            key = message_id, handle.encode()
            handles[key] = Renewed(group, topic, address, handle, self._clock.now_ms())

    async def take(self, session: Session, message_id: str, text: str) -> Renewed | None:
        """End the renewal of a message, which has its newest handle; None if it was not renewed."""
        found = self.take_at_once(session, message_id, text)
        if found is not None and found.renewing is not None:  # its handle is about to be void
            await asyncio.shield(found.renewing)
        return found

    def take_at_once(self, session: Session, message_id: str, text: str) -> Renewed | None:
        """`take` that does not wait: if it is `renewing`, its handle is about to be void."""
        handles = self._all.get(session)
        return None if handles is None else handles.pop((message_id, text), None)

    def restore(self, session: Session, message_id: str, text: str, one: Renewed) -> None:
        """Go on renewing what was taken, if the client is still there: it knows only the handle by which it was."""
        if (handles := self._all.get(session)) is not None:
            handles[message_id, text] = one

    async def look(self) -> None:
        """Renew what is about to end."""
        before_ms = self._clock.now_ms() + AHEAD_MS
        due = [
            (session, key, one)
            for session, handles in self._all.items()
            for key, one in handles.items()
            if one.ends_ms() <= before_ms
        ]
        await _by_broker(due, self._renew)

    async def _renew(self, session: Session, key: tuple[str, str], one: Renewed) -> None:
        handles = self._all.get(session, {})
        if handles.get(key) is not one:  # it was acknowledged meanwhile: a renewal would deliver it again
            return
        is_last = self._clock.now_ms() - one.since_ms >= LONGEST_MS
        step_ms = GONE_MS if is_last else STEPS_MS[min(one.times, len(STEPS_MS) - 1)]
        one.renewing = asyncio.get_running_loop().create_future()
        try:
            receipt = await self._change(session, one.group, one.topic, one.address, one.handle.receipt, step_ms)
        except OrbitMQError as error:
            one.failures += 1
            if one.failures >= TRIES or is_last:
                handles.pop(key, None)
                text = "event=not_renewed group=%.300s message=%.300s error=%s"
                _log.warning(text, one.group, key[0], error)
            if isinstance(error, RemotingError):
                raise
            return
        else:
            one.handle = Handle(receipt, one.handle.log_offset)
            one.times, one.failures = one.times + 1, 0
        finally:
            one.renewing.set_result(None)
            one.renewing = None
        if is_last or one.ends_ms() <= self._clock.now_ms():  # the message is not this client's any more
            handles.pop(key, None)

    async def leave(self, session: Session) -> None:
        """The client is gone: others get its messages soon."""
        await _by_broker([(session, key, one) for key, one in self._all.pop(session, {}).items()], self._give_back)

    async def stop(self) -> None:
        """Nothing is renewed from now on. The handles of what was renewed are void, so it is redelivered soon; clients
        may still acknowledge the rest.
        """
        left, self._all = self._all, {}
        renewed = [(session, key, one) for session in left for key, one in left[session].items() if one.times]
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await _by_broker(renewed, self._give_back)
        except TimeoutError:
            _log.warning("event=renewals_not_given_back messages=%d", len(renewed))

    async def _give_back(self, session: Session, key: tuple[str, str], one: Renewed) -> None:
        if one.renewing is not None:  # its handle is about to be void
            await asyncio.shield(one.renewing)
        try:
            await self._change(session, one.group, one.topic, one.address, one.handle.receipt, GONE_MS)
        except OrbitMQError as error:  # it is redelivered after its time
            _log.info("event=not_given_back group=%.300s message=%.300s error=%s", one.group, key[0], error)
            if isinstance(error, RemotingError):
                raise


async def _by_broker(found: list[_Found], work: Callable[[Session, tuple[str, str], Renewed], Awaitable[None]]) -> None:
    """Work on each of these, some at a time. A broker that does not respond keeps none waiting but its own: after a
    RemotingError the others of it are left for now.
    """
    lanes: dict[str, list[_Found]] = {}
    for one in found:
        lanes.setdefault(one[2].address, []).append(one)

    async def pass_along(lane: list[_Found]) -> None:
        for at in range(0, len(lane), AT_A_TIME):
            results = await asyncio.gather(*(work(*one) for one in lane[at : at + AT_A_TIME]), return_exceptions=True)
            for error in results:
                if isinstance(error, RemotingError):
                    return
                if isinstance(error, BaseException):
                    raise error

    await asyncio.gather(*map(pass_along, lanes.values()))
