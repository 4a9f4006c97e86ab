"""A program that relays, for tests that kill it. Arguments: URL of the database, kind of engine, name server, port."""

from __future__ import annotations

import logging
import sys

from orbitmq.integrations.outbox import run_relay
from tests.integrations.outbox_support import made_async_engine, made_engine

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    url, kind, namesrv_address, port = sys.argv[1:]
    engine = made_async_engine(url) if kind == "asyncio" else made_engine(url)
    run_relay(engine, "relay", namesrv_address, batch=50, poll=0.05, health_port=int(port))
