"""How a broker is known to others."""

from __future__ import annotations

from orbitmq.broker.options import BrokerOptions
from orbitmq.message.hosts import address_text
from orbitmq.replication.slave import REPLICATION_DISTANCE


class AdvertisedBroker:
    """`port` is 0 until one is bound."""

    def __init__(self, options: BrokerOptions) -> None:
        self._options = options
        self.name = options.broker_name
        self.cluster = options.broker_cluster_name
        self.port = 0

    def address(self) -> str:
        """The address for clients: brokerIP1 and the port."""
        return address_text(self._options.broker_ip1, self.port)

    def ha_address(self) -> str:
        """Where slaves copy the log from: brokerIP2 and the port for replication."""
        return address_text(self._options.broker_ip2 or self._options.broker_ip1, self.port + REPLICATION_DISTANCE)
