"""A transaction producer made of single requests, for live tests against either system: it sends half messages, decides
when it is told to, and hears what it is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from orbitmq.errors import BrokerError
from orbitmq.message.flags import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from orbitmq.message.ids import decode_offset_message_id
from orbitmq.message.properties import PGROUP, TRAN_MSG, UNIQ_KEY, encode_properties
from orbitmq.message.unit import Unit, decode_unit
from orbitmq.net.remoting import Remoting
from orbitmq.net.routing import Router
from orbitmq.operations.pulls import view_message
from orbitmq.operations.sends import send
from orbitmq.operations.settings import change_broker_settings
from orbitmq.operations.transactions import end_transaction
from orbitmq.wire.bodies import HeartbeatData, ProducerData
from orbitmq.wire.command import Command, request
from orbitmq.wire.headers import SendMessageV2Header
from orbitmq.wire.headers_transaction import CheckTransactionStateHeader, EndTransactionHeader
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode

COMMIT, ROLLBACK = TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
BORN_MS = 1_700_000_000_123
TIMEOUT_MS = 10_000
HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Prepared:
    """What the answer to a half message told."""

    unique_id: str
    queue_offset: int
    log_offset: int


@dataclass(frozen=True)
class Question:
    """CHECK_TRANSACTION_STATE as it came."""

    header: CheckTransactionStateHeader
    unit: Unit

    @property
    def prepared(self) -> Prepared:
        return Prepared(self.header.msg_id or "", self.header.tran_state_table_offset, self.header.commit_log_offset)


class RawProducer:
    """One member of a producer group at one broker. Questions come into `asked`."""

    def __init__(self, address: str, group: str, client_id: str = "raw") -> None:
        self.address = address
        self.group = group
        self.client_id = client_id
        self.asked: asyncio.Queue[Question] = asyncio.Queue()
        router = Router("raw-producer")
        router.add(RequestCode.CHECK_TRANSACTION_STATE, self._hear)
        self.remoting = Remoting(router)

    def _hear(self, _connection: object, command: Command) -> None:
        self.asked.put_nowait(Question(command.header(CheckTransactionStateHeader), decode_unit(command.body)))

    async def register(self) -> None:
        """Become a producer of the group that can be asked."""
        body = encode(HeartbeatData(self.client_id, [], [ProducerData(self.group)]))
        answer = await self.remoting.call(self.address, request(RequestCode.HEART_BEAT, body=body), TIMEOUT_MS)
        assert answer.code == 0

    async def prepare(
        self,
        topic: str,
        body: bytes,
        unique_id: str,
        properties: Mapping[str, str] = {},
        *,
        born_ms: int = BORN_MS,
        queue_id: int = 0,
        flag: int = 0,
        sys_flag: int = 0,
    ) -> Prepared:
        known = {TRAN_MSG: "true", PGROUP: self.group, UNIQ_KEY: unique_id}
        header = SendMessageV2Header(
            producer_group=self.group,
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=sys_flag,
            born_timestamp=born_ms,
            flag=flag,
            properties=encode_properties({name: value for name, value in {**known, **properties}.items() if value}),
            reconsume_times=0,
        )
        reply = await send(self.remoting, self.address, header, body, timeout_ms=TIMEOUT_MS)
        place = decode_offset_message_id(reply.offset_msg_id).physical_offset
        return Prepared(unique_id, reply.queue_offset, place)

    def end_header(self, prepared: Prepared, decision: int, **changes: object) -> EndTransactionHeader:
        fields: dict[str, object] = {
            "producer_group": self.group,
            "tran_state_table_offset": prepared.queue_offset,
            "commit_log_offset": prepared.log_offset,
            "commit_or_rollback": decision,
            "msg_id": prepared.unique_id,
            "transaction_id": prepared.unique_id,
        }
        return EndTransactionHeader(**{**fields, **changes})  # type: ignore[arg-type]

    async def end(self, prepared: Prepared, decision: int, **changes: object) -> None:
        """BrokerError when the decision is refused."""
        header = self.end_header(prepared, decision, **changes)
        await end_transaction(self.remoting, self.address, header, timeout_ms=TIMEOUT_MS)

    async def refusal(self, prepared: Prepared, decision: int, **changes: object) -> tuple[int, str]:
        """Code and remark of a decision that must be refused."""
        try:
            await self.end(prepared, decision, **changes)
        except BrokerError as error:
            return error.code, error.remark
        raise AssertionError("the decision was taken")

    async def units_from(self, log_offset: int) -> list[Unit]:
        """Everything in the log from a message on."""
        units: list[Unit] = []
        while True:
            try:
                stored = await view_message(self.remoting, self.address, log_offset)
            except BrokerError:
                return units
            units.append(decode_unit(stored))
            log_offset += len(stored)


async def ask_from(address: str, age_ms: int) -> None:
    """From what age on the broker asks about what is undecided."""
    remoting = Remoting()
    try:
        await change_broker_settings(remoting, address, {"transactionTimeOut": str(age_ms)})
    finally:
        await remoting.close()


@contextmanager
def asked_from(address: str, age_ms: int, usual_ms: int) -> Iterator[None]:
    """Meanwhile the broker asks about half messages of this age; then about those of the usual one again."""
    asyncio.run(ask_from(address, age_ms))
    try:
        yield
    finally:
        asyncio.run(ask_from(address, usual_ms))


@contextmanager
def left_alone(address: str, usual_ms: int) -> Iterator[None]:
    """Nothing is asked about meanwhile: on a slow machine a round comes between any two requests of a test. What is
    prepared must have been born now.
    """
    with asked_from(address, HOUR_MS, usual_ms):
        yield


@asynccontextmanager
async def raw_producer(address: str, group: str, client_id: str = "raw") -> AsyncIterator[RawProducer]:
    """A registered producer."""
    made = RawProducer(address, group, client_id)
    try:
        await made.register()
        yield made
    finally:
        await made.remoting.close()
