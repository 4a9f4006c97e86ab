"""The record of masters and promotions in a store: `config/mastership.json`. RocketMQ has no such file and ignores it.

The epoch is the number of the last promotion of this broker name that is known here: its time in milliseconds since
1970, and greater than any known before. So it increases without a coordinator, also if a slave does not know earlier
promotions. 0 is before the first.
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
    """Of a slave: its log was a prefix of its master's when they were last compared."""
    superseded_by: str = ""
    """Of a former master: the address of the later one."""
    master_role: str = ""
    """Of a slave: the last known `brokerRole` of its master."""
    former_master: str = ""
    """Of a promoted slave: the address of the master that it replaced."""


class MastershipRecord:
    """The file and its content. StoreDamaged when it cannot be read: starting at 0 would lose a promotion."""

    def __init__(self, options: StoreOptions) -> None:
        self.path = options.root / "config" / "mastership.json"
        self.known = load_with_backup(self.path, _parsed) or Mastership()
        self._saving = asyncio.Lock()

    def next_epoch(self, now_ms: int) -> int:
        """The epoch of a promotion at `now_ms`."""
        return max(self.known.epoch + 1, now_ms)

    def save(self, **changes: Any) -> None:
        """Change fields, on disk first. OSError when the disk fails: then nothing is changed."""
        known = msgspec.structs.replace(self.known, **changes)
        if known != self.known:
            save_with_backup(self.path, msgspec.json.encode(known).decode())
            self.known = known

    async def note(self, **changes: Any) -> None:
        """`save` in a thread. If the disk fails, the change is kept in memory and the error is logged."""
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
        raise StoreDamaged(f"not a mastership record: {error}") from error
