"""A small shop on two brokers of orbitmq, with all that a page about a cluster can show: orders that are consumed, a
group behind, dead letters, delayed and half messages, a transaction that was committed, traces, accounts.

    with Shop() as shop, OrbitDashboard(shop.name_server) as dashboard: ...

`note` stands in all that applications choose freely: a tag, keys, properties, bodies, a client's name. Knows no page.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Self

from orbitmq.client import ConsumeConcurrentlyStatus, ConsumeFromWhere, LocalTransactionState, Message, MessageExt
from orbitmq.client.sync import LitePullConsumer, Producer, PushConsumer, TransactionProducer
from orbitmq.message.topics import dlq_topic, retry_topic
from tests.support.access import write_acl
from tests.support.orbit_process import OrbitBroker, OrbitNameServer
from tests.support.process import wait_until

BROKERS = ("broker-a", "broker-b")
ORDERS, MAILS, PAYMENTS = "Orders", "Mails", "Payments"
QUEUES = 4  # of each topic, on each broker
BILLING, ARCHIVE, MAILER, CHECKOUT = "billing", "archive", "mailer", "checkout"
"""Groups: one that consumes, one that is behind and away, one whose messages fail, and a producer's."""
BATCH, MAILED = 60, 3
SECRET = "a secret that no page shows"
ACCESS_KEY = "storefront"
_PATIENCE_S = 60.0
_FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET

_ACCOUNTS = f"""\
globalWhiteRemoteAddresses:
- 127.0.0.1
accounts:
- accessKey: {ACCESS_KEY}
  secretKey: {SECRET}
  admin: false
  defaultTopicPerm: DENY
  topicPerms:
  - {ORDERS}=PUB|SUB
"""


class _Undecided:
    """Commits what has an even number, and does not know of the rest."""

    def execute(self, _message: Message, number: int) -> LocalTransactionState:
        return LocalTransactionState.UNKNOWN if number % 2 else LocalTransactionState.COMMIT_MESSAGE

    def check(self, _message: MessageExt) -> LocalTransactionState:
        return LocalTransactionState.UNKNOWN


class Shop:
    """The running shop. `brokers` may be killed."""

    def __init__(self, note: str = "spring-sale") -> None:
        self._note = note
        self._names = OrbitNameServer()
        self.name_server = self._names.address
        self.brokers = {
            name: OrbitBroker(
                self.name_server,
                name=name,
                aclEnable="true",
                recallMessageEnable="true",
                transactionCheckInterval=86_400_000,  # a check moves a half message away from who looks at it
                mappedFileSizeCommitLog=16 << 20,
                mappedFileSizeConsumeQueue=20 * 3000,
                maxHashSlotNum=1000,
                maxIndexNum=4000,
            )
            for name in BROKERS
        }
        self.sent: list[str] = []
        """Unique ids of the orders, in the order they were sent."""
        self.places: list[str] = []
        """Their offset ids."""
        self.client_id = ""
        """Of the consumer that bills."""
        self.billed = 0
        self._failed = 0
        self._stack = ExitStack()

    def order(self, number: int) -> Message:
        """One of them."""
        body = {"order": number, "customer": f"c{number % 7}", "total": 9.5 + number, "note": self._note}
        return Message(
            ORDERS,
            json.dumps(body).encode(),
            tags=f"region{number % 3}" if number else self._note,
            keys=[f"order-{number}", self._note],
            properties={"note": self._note},
        )

    def sell(self, orders: int) -> None:
        """Further orders."""
        for number in range(len(self.sent), len(self.sent) + orders):
            sent = self.producer.send(self.order(number))
            self.sent.append(sent.msg_id)
            self.places.append(sent.offset_msg_id)

    def __enter__(self) -> Self:
        self._stack.enter_context(self._names)
        for broker in self.brokers.values():
            write_acl(broker.home, _ACCOUNTS)
        with ThreadPoolExecutor() as beside:
            for broker in self.brokers.values():
                self._stack.push(broker)
            list(beside.map(lambda broker: broker.start(), self.brokers.values()))
        try:
            self._fill()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _fill(self) -> None:
        self.producer = self._stack.enter_context(Producer(CHECKOUT, self.name_server, enable_trace=True))
        for topic in (ORDERS, MAILS, PAYMENTS):
            self.producer.create_topic(topic, queues=QUEUES)
        for topic in (retry_topic(MAILER), dlq_topic(MAILER)):  # mails wait for no new topic, and are given up once
            self.producer.create_topic(topic, queues=1)
        self._consume()
        self.sell(BATCH)
        self._read_a_little()
        self.producer.send(Message(MAILS, b"to be sent tomorrow", keys=["later"], delay_level=18))
        for number in range(MAILED):
            body = json.dumps({"to": f"c{number}@shop.example", "note": self._note}).encode()
            self.producer.send(
                Message(MAILS, body, keys=[f"mail-{number}"], tags="mail", properties={"note": self._note})
            )
        self._pay()
        wait_until(
            lambda: self.billed >= BATCH and self._failed >= MAILED, _PATIENCE_S, "orders and mails are consumed"
        )

    def _consume(self) -> None:
        billing = PushConsumer(
            BILLING, self.name_server, consume_from_where=_FIRST, enable_trace=True, instance_name=self._note
        )
        billing.subscribe(ORDERS, "*")

        @billing.on_message
        def bill(messages: list[MessageExt], _context: object) -> ConsumeConcurrentlyStatus:
            self.billed += len(messages)
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

        mailer = PushConsumer(MAILER, self.name_server, consume_from_where=_FIRST, max_reconsume_times=0)
        mailer.subscribe(MAILS, "*")

        @mailer.on_message
        def mail(messages: list[MessageExt], _context: object) -> ConsumeConcurrentlyStatus:
            self._failed += len(messages)
            return ConsumeConcurrentlyStatus.RECONSUME_LATER

        self._stack.enter_context(billing)
        self.client_id = billing.client_id
        self._stack.enter_context(mailer)

    def _read_a_little(self) -> None:
        """The first of each queue, and leave with the rest unread: the group is behind on either broker."""
        with LitePullConsumer(ARCHIVE, self.name_server, consume_from_where=_FIRST, auto_commit=False) as reader:
            reader.subscribe(ORDERS)
            wait_until(lambda: reader.poll(timeout=5.0), _PATIENCE_S, "some orders")
            reader.commit(dict.fromkeys(reader.fetch_queues(ORDERS), 1), wait=True)

    def _pay(self) -> None:
        payer = TransactionProducer("payments", self.name_server, listener=_Undecided())
        self._stack.enter_context(payer)
        for number in range(4):
            payer.send_in_transaction(Message(PAYMENTS, b'{"paid": true}', keys=[f"payment-{number}"]), number)

    def __exit__(self, *error: object) -> None:
        self._stack.close()
