"""Making a slave the master of its broker name: the request, and what is known before it is done. orbitmq's own."""

from __future__ import annotations

from msgspec import Struct

from orbitmq.wire.header import Header


class PromoteSlaveHeader(Header):
    """PROMOTE_SLAVE (30002). `dry_run` only looks; `force` does it although there are doubts; `role` is ASYNC_MASTER or
    SYNC_MASTER, that of the former master where it is empty.
    """

    dry_run: bool = False
    force: bool = False
    role: str = ""


class PromotionReport(Struct, frozen=True, kw_only=True):
    """What stands for and against it. Offsets are places in the commit log, -1 where nothing is known.

    `alive` says why it is refused in any case, `doubts` why it needs force; `saved` whether the configuration file says
    it, too. `role` is the one it gets, `master_role` the former master's, "" where that is not known.
    """

    broker_name: str
    address: str
    log_end: int
    master_end: int
    master_end_age_s: int
    missing_bytes: int
    alive: str | None = None
    doubts: list[str]
    done: bool
    saved: bool
    role: str = ""
    master_role: str = ""
