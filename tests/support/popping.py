"""A member that receives by POP, in tests."""

from __future__ import annotations

from orbitmq.client import MessageExt
from orbitmq.client.sync import SimpleConsumer
from tests.support.process import wait_until


def received(member: SimpleConsumer) -> list[MessageExt]:
    """The next messages; on a busy machine they may take several requests."""
    return wait_until(lambda: member.receive(timeout=1.0), 60, "a message")
