"""A store's record of masters and promotions: `config/mastership.json`. RocketMQ has no such file and ignores it.

The epoch is the number of the last known promotion of this broker name: its time in milliseconds since 1970, and always
greater than any epoch known before. So epochs increase without a coordinator, also at a slave that missed promotions. 0
is before the first.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from orbitmq.errors import StoreDamaged
from orbitmq.runtime.files import load_with_backup, save_with_backup
from orbitmq.store.options import StoreOptions

_log = logging.getLogger(__name__)


class Mastership(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The content of the file."""

    epoch: int = 0
    led: bool = False
    """Whether that promotion was this broker's own."""
    follows: bool = False
    """Of a slave: its log was the beginning of its master's when they were compared last."""
    superseded_by: str = ""
    """At a former master: the address of the later one."""
    master_role: str = ""
    """At a slave: its master's `brokerRole` at the last response."""
    former_master: str = ""
    """Of a promoted slave: where the master was whose place it took."""


class MastershipRecord:
    """The file and its content. StoreDamaged if it cannot be read: starting at 0 again would lose a promotion."""

    def __init__(self, options: StoreOptions) -> None:
        self.path = options.root / "config" / "mastership.json"
        self.known = load_with_backup(self.path, _parsed) or Mastership()
        self._saving = asyncio.Lock()

    def next_epoch(self, now_ms: int) -> int:
        """The number of a promotion that happens now."""
        return max(self.known.epoch + 1, now_ms)

    def save(self, **changes: Any) -> None:
        """Change the record, on disk first. OSError if the disk refuses; then nothing is changed."""
        known = msgspec.structs.replace(self.known, **changes)
        if known != self.known:
            save_with_backup(self.path, msgspec.json.encode(known).decode())
            self.known = known

    async def note(self, **changes: Any) -> None:
        """`save` off the event loop. If the disk refuses, the change holds until the process ends, and is logged."""
        async with self._saving:
            try:
                await asyncio.to_thread(self.save, **changes)
            except OSError as error:
                self.known = msgspec.structs.replace(self.known, **changes)
                _log.error("event=mastership_not_saved path=%s error=%s", self.path, error)


def _parsed(text: str) -> Mastership:
    try:
        return msgspec.json.decode(text, type=Mastership)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"no record of masters: {error}") from error
