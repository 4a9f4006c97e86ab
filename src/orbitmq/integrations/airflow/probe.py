"""Whether a connection works: name servers, brokers, the account. Knows nothing of Airflow."""

from __future__ import annotations

from functools import partial

from orbitmq.client.core.addresses import name_servers
from orbitmq.client.instance import join, leave
from orbitmq.client.settings import ClientSettings, complete
from orbitmq.message.model import MASTER_ID
from orbitmq.operations import membership, routes
from orbitmq.wire.bodies import HeartbeatData


async def brokers_of(servers: str, settings: ClientSettings) -> list[str]:
    """The names of the brokers, each of whose masters has accepted a heartbeat, which takes an account but no
    permission. ConfigurationError, BrokerError, ClientError, RemotingError.
    """
    instance = join(name_servers(servers), complete(ClientSettings, settings), "", consumer=False)
    try:
        found = await instance.name_servers.ask(partial(routes.cluster_info, instance.remoting))
        for broker in found.brokers.values():
            if MASTER_ID in broker.addresses:
                nothing = HeartbeatData(instance.client_id)
                await membership.heartbeat(instance.remoting, broker.addresses[MASTER_ID], nothing)
        return sorted(found.brokers)
    finally:
        await leave(instance)
