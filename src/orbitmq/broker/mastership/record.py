"""What a store remembers of masters and promotions: `config/mastership.json`. RocketMQ has no such file and leaves it.

The epoch is the number of the last promotion of this broker name that is known here: its time in milliseconds since
1970, and more than any number known before. So it rises from promotion to promotion though nobody hands numbers out,
also where a slave never heard how often its name was promoted. 0 is before the first.
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
    """What is kept."""

    epoch: int = 0
    led: bool = False
    """Whether that promotion was this broker's own."""
    follows: bool = False
    """Of a slave: its log was the beginning of its master's when they were compared last."""
    superseded_by: str = ""
    """Of a former master: where the later one is."""
    master_role: str = ""
    """Of a slave: the `brokerRole` of its master when it was asked last."""
    former_master: str = ""
    """Of a promoted slave: where the master was whose place it took."""


class MastershipRecord:
    """The file and what it says. StoreDamaged when it cannot be read: to begin at 0 again would forget a promotion."""

    def __init__(self, options: StoreOptions) -> None:
        self.path = options.root / "config" / "mastership.json"
        self.known = load_with_backup(self.path, _parsed) or Mastership()
        self._saving = asyncio.Lock()

    def next_epoch(self, now_ms: int) -> int:
        """The number of a promotion that happens now."""
        return max(self.known.epoch + 1, now_ms)

    def save(self, **changes: Any) -> None:
        """Change what is known, on disk first. OSError when the disk refuses: then nothing is changed."""
        known = msgspec.structs.replace(self.known, **changes)
        if known != self.known:
            save_with_backup(self.path, msgspec.json.encode(known).decode())
            self.known = known

    async def note(self, **changes: Any) -> None:
        """`save` beside the event loop. What the disk refuses holds until the process ends, and is logged."""
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
