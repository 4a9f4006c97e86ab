"""Clients for a connection of Airflow."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final, Unpack

from airflow.sdk import BaseHook

from orbitmq.client import simple
from orbitmq.client.settings import ClientSettings, ProducerSettings, PullSettings, SimpleSettings
from orbitmq.client.sync import Producer, PullConsumer, SimpleConsumer
from orbitmq.client.sync_wrapper import wait
from orbitmq.errors import OrbitMQError
from orbitmq.integrations.airflow.connection import client_arguments
from orbitmq.integrations.airflow.probe import brokers_of

GROUP: Final = "airflow"  # of producers: brokers show it, and it means nothing else


class RocketMQHook(BaseHook):  # type: ignore[misc]
    """Clients for a connection of the type `rocketmq`, which are not started: use `with`.

        with RocketMQHook("rocketmq_default").producer() as producer:
            producer.send(Message("orders", b"body"))

    The host of the connection has the addresses of the name servers, separated by `;`; one without a port has the port
    of the connection, by default 9876. Login and password are the account: access key and secret. In extra are
    `use_tls` and other settings of every client, such as `namespace` and `tls_ca_file`.

    Methods raise ConfigurationError for a connection or setting that is not valid.
    """

    conn_name_attr = "rocketmq_conn_id"
    default_conn_name = "rocketmq_default"
    conn_type = "rocketmq"
    hook_name = "Apache RocketMQ"

    def __init__(self, rocketmq_conn_id: str = default_conn_name, **more: Any) -> None:
        super().__init__(**more)
        self.rocketmq_conn_id = rocketmq_conn_id

    def get_conn(self) -> Producer:
        """`producer()`."""
        return self.producer()

    def producer(self, group: str = GROUP, **settings: Unpack[ProducerSettings]) -> Producer:
        """A producer for threads."""
        servers, common = self._arguments()
        both: ProducerSettings = {**common, **settings}
        return Producer(group, servers, **both)

    def pull_consumer(self, group: str, **settings: Unpack[PullSettings]) -> PullConsumer:
        """A consumer that pulls queues, at brokers of RocketMQ 4 and later."""
        servers, common = self._arguments()
        both: PullSettings = {**common, **settings}
        return PullConsumer(group, servers, **both)

    def simple_consumer(self, group: str, **settings: Unpack[SimpleSettings]) -> SimpleConsumer:
        """A consumer that acknowledges messages one by one, at brokers of orbitmq and RocketMQ 5."""
        servers, common = self._arguments()
        both: SimpleSettings = {**common, **settings}
        return SimpleConsumer(group, servers, **both)

    async def async_simple_consumer(self, group: str, **settings: Unpack[SimpleSettings]) -> simple.SimpleConsumer:
        """The same for asyncio. The connection is looked up without blocking the event loop."""
        servers, common = await asyncio.to_thread(self._arguments)
        both: SimpleSettings = {**common, **settings}
        return simple.SimpleConsumer(group, servers, **both)

    def test_connection(self) -> tuple[bool, str]:
        """Whether a name server and every broker respond, and accept the account, and a text about that."""
        try:
            brokers = wait(partial(brokers_of, *self._arguments()))
        except OrbitMQError as error:
            return False, str(error)
        return True, f"brokers: {', '.join(brokers)}"

    def _arguments(self) -> tuple[str, ClientSettings]:
        return client_arguments(self.get_connection(self.rocketmq_conn_id))
