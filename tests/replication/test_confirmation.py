"""What becomes of sends that wait until all replicas in sync have their messages."""

from __future__ import annotations

from pathlib import Path

from orbitmq.broker.send_handler import UNCONFIRMED, outcome_of
from orbitmq.replication.master import Replicas
from orbitmq.replication.protocol import Introduction
from orbitmq.runtime.clock import ManualClock
from orbitmq.store.positions import PhysicalOffset
from orbitmq.store.records import PutResult, PutStatus
from orbitmq.wire.codes import ResponseCode
from tests.support.stores import open_store


class Silent:
    """An election that confirms nothing by itself."""

    def joined(self, member: Introduction) -> bool:
        return True

    def reported(self, member: Introduction, place: int) -> None: ...

    def gone(self, member: Introduction) -> None: ...

    def appended(self) -> None: ...


async def test_what_is_not_confirmed_is_refused_when_the_master_steps_down(tmp_path: Path) -> None:
    """FLUSH_SLAVE_TIMEOUT would say that it is stored, and the next master cuts it off."""
    store, clock, found = open_store(tmp_path), ManualClock(), list[PutStatus]()
    replicas = Replicas(store, store.options, clock, confirmation=Silent())
    await replicas.bind("127.0.0.1", 0)
    for end in (10, 20, 30):
        replicas.when_copied(PhysicalOffset(end), found.append)
    replicas.confirm(PhysicalOffset(10))
    assert found == [PutStatus.PUT_OK]
    clock.advance(store.options.slave_timeout_ms)
    replicas.expire()
    assert found[1:] == [PutStatus.FLUSH_SLAVE_TIMEOUT] * 2, "they may be confirmed yet"
    replicas.when_copied(PhysicalOffset(40), found.append)
    replicas.give_up()
    assert found[3:] == [PutStatus.SERVICE_NOT_AVAILABLE]
    await replicas.stop()
    replicas.when_copied(PhysicalOffset(40), found.append)
    replicas.when_copied(PhysicalOffset(10), found.append)
    assert found[4:] == [PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.PUT_OK]
    code, remark = outcome_of(PutResult(found[3], PhysicalOffset(30)), lambda: "")
    assert (code, remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, UNCONFIRMED)
    store.close()
