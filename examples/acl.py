"""Access control: an account signs each request, and may what the broker's `plain_acl.yml` says."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from pathlib import Path

from orbitmq.client import BrokerError, ClientError, Message, Producer
from orbitmq.testing import Cluster

ACCOUNTS = """
accounts:
- accessKey: shop-account
  secretKey: a-secret-of-the-shop
  defaultTopicPerm: DENY
  topicPerms:
  - ExampleOrders=PUB
"""


async def attempt(address: str, topic: str, access_key: str, secret_key: str) -> str:
    account = Producer("shop", address, access_key=access_key, secret_key=secret_key, retry_times=0)
    async with account as producer:
        try:
            return (await producer.send(Message(topic, b"..."))).status.name
        except (BrokerError, ClientError) as error:
            return f"refused with code {error.code}"


async def main(cluster: Cluster) -> None:
    for topic in ("ExampleOrders", "ExampleSalaries"):
        await asyncio.to_thread(cluster.create_topic, topic)
    address = cluster.namesrv_address
    print(f"the shop, to its topic: {await attempt(address, 'ExampleOrders', 'shop-account', 'a-secret-of-the-shop')}")
    print(f"the shop, elsewhere: {await attempt(address, 'ExampleSalaries', 'shop-account', 'a-secret-of-the-shop')}")
    print(f"somebody else: {await attempt(address, 'ExampleOrders', 'shop-account', 'a-guess-of-a-secret')}")


logging.getLogger("orbitmq").setLevel(logging.CRITICAL)  # the refusals are wanted here
with tempfile.TemporaryDirectory() as directory:
    accounts = Path(directory) / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    accounts.chmod(0o600)
    with Cluster(aclEnable=True, aclFile=accounts) as started:
        asyncio.run(main(started))
