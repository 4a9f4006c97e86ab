"""Headers and bodies of requests about the master of a broker name: exchange and promotion. Specific to orbitmq."""

from __future__ import annotations

from msgspec import Struct

from orbitmq.wire.header import Header, Int64

EPOCH_MAX = 253_402_300_799_000
"""The end of the year 9999 in milliseconds: later times cannot be formatted."""


class BrokerMastershipHeader(Header):
    """EXCHANGE_MASTERSHIP (30003): request and response have the same fields, each about its sender.

    `epoch` is the last promotion that the sender knows. `refusal` says why it serves no requests: a superseded master,
    or a slave whose log differs from the master's; "" when it serves. A slave has `resigned` if that promotion was its
    own and its operator has made it a slave again. One that `elects` has the number of an election as its epoch.
    """

    broker_name: str
    broker_addr: str
    is_master: bool
    epoch: Int64
    refusal: str = ""
    resigned: bool = False
    elects: bool = False


class PromoteSlaveHeader(Header):
    """PROMOTE_SLAVE (30002). `dry_run` changes nothing; `force` overrides doubts; `role` is ASYNC_MASTER or
    SYNC_MASTER, by default that of the former master.
    """

    dry_run: bool = False
    force: bool = False
    role: str = ""


class SwitchMasterHeader(Header):
    """SWITCH_MASTER (30007). `member` is the replica that becomes the master; sent to the master, which hands over.

    With `unclean` it is sent to the replica itself, which is not in sync, while there is no master.
    """

    member: str
    unclean: bool = False


class SetMaintenanceHeader(Header):
    """SET_MAINTENANCE (30008). With `maintenance` no replica but the last master is elected. Sent to the master; if
    there is none, to a replica in sync, which then stands for election.
    """

    maintenance: bool


class PromotionReport(Struct, frozen=True, kw_only=True):
    """The outcome of PROMOTE_SLAVE. Offsets are physical offsets, -1 when unknown.

    `alive` names the master that still responds, which refuses the promotion in any case; `doubts` are reasons that
    `force` overrides. `saved` says whether the configuration file was rewritten. `role` is the new role, `master_role`
    that of the former master, "" when unknown.
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
