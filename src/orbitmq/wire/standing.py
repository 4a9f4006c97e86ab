"""What brokers of one name tell each other of masters and promotions. orbitmq's own."""

from __future__ import annotations

from orbitmq.wire.header import Header, Int64

EPOCH_MAX = 253_402_300_799_000
"""The end of the year 9999 in milliseconds: what is beyond it has no words, and soon no room for another one."""


class BrokerStandingHeader(Header):
    """BROKER_STANDING (30003), and its answer: who asks tells of itself, and is told the same of the other.

    `is_master` is the role, `epoch` the number of the last promotion it knows, `refusal` why it serves nothing: a
    master that another one has followed, a slave whose log differs; "" of one that serves. A slave has `resigned` when
    that promotion was its own: its operator gave the place to the master that is asked.
    """

    broker_name: str
    broker_addr: str
    is_master: bool
    epoch: Int64
    refusal: str = ""
    resigned: bool = False
