"""The command `broker promote`: makes a slave the master of its broker name. The slave decides whether to do it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from orbitmq.broker.options import BrokerOptions
from orbitmq.cli import configuration
from orbitmq.cli.exit_codes import EXIT_FAILED, fail, one_line_errors
from orbitmq.cli.health import place_of
from orbitmq.errors import OrbitMQError
from orbitmq.message.model import MASTER_ID
from orbitmq.net.remoting import Remoting
from orbitmq.net.tls import client_context
from orbitmq.net.tls_options import ENFORCING, TlsOptions, with_tls_file
from orbitmq.operations.mastership import promote_slave
from orbitmq.operations.routes import cluster_info
from orbitmq.operations.settings import broker_settings
from orbitmq.runtime.error_texts import translated
from orbitmq.runtime.printable import printable
from orbitmq.store.options import ASYNC_MASTER, SYNC_MASTER, StoreOptions
from orbitmq.wire.mastership import PromotionReport

SERVES_SECONDS = 30
"""A broker takes about one second to open a log that was closed cleanly."""
POLL_SECONDS, REQUEST_MS = 0.2, 3000.0
MEANINGS = {
    ASYNC_MASTER: ("    a send returns SEND_OK when this broker has the message, whether or not a slave does",),
    SYNC_MASTER: (
        "    a send returns SEND_OK when a slave has the message, too. Until a slave replicates, each send is stored",
        "    here and returns SLAVE_NOT_AVAILABLE: start the former master as a slave, or promote with --async",
    ),
}
"""What the response to a send guarantees."""


def promote(config: Path | None, address: str | None, *, dry_run: bool, force: bool, sync: bool | None) -> None:
    """Ends the process with 1 if the slave is not promoted, or would not be."""
    with one_line_errors("broker promote"):
        pairs, _ = configuration.read(config, {}, BrokerOptions, StoreOptions, TlsOptions)
        options, tls = BrokerOptions.parse(pairs), TlsOptions.parse(with_tls_file(pairs))
        place = address or place_of(options.listen_address, options.listen_port)
        servers = options.name_servers
        role = "" if sync is None else SYNC_MASTER if sync else ASYNC_MASTER
        report, serves = asyncio.run(_promote(tls, place, servers, dry_run=dry_run, force=force, role=role))
    print(printable("\n".join(map(translated, _lines(report))), lines=True))
    if report.alive is not None:
        fail(
            "broker promote",
            f"refused: {report.alive}; stop it first, two masters would destroy each other's log",
            EXIT_FAILED,
        )
    if report.doubts and not force:
        fail("broker promote", "refused: use --force to do it anyway", EXIT_FAILED)
    print(translated("it would be done" if dry_run else _done(report, serves=serves)))


async def _promote(
    tls: TlsOptions, address: str, servers: Sequence[str], *, dry_run: bool, force: bool, role: str
) -> tuple[PromotionReport, bool]:
    """The slave's report, and whether it has become the master since."""
    remoting = Remoting(tls=client_context(tls) if tls.mode == ENFORCING else None)
    try:
        report = await promote_slave(remoting, address, dry_run=dry_run, force=force, role=role)
        refused = report.alive is not None or (report.doubts and not force)
        return report, not dry_run and not refused and await _serves(remoting, address, servers, report)
    finally:
        await remoting.close()


async def _serves(remoting: Remoting, address: str, servers: Sequence[str], report: PromotionReport) -> bool:
    """Wait until the name servers have it as the master; without any, until it responds as a master."""
    ends = time.monotonic() + SERVES_SECONDS
    while time.monotonic() < ends:
        with contextlib.suppress(OrbitMQError):  # it restarts, so retry
            if await _is_master(remoting, address, servers, report):
                return True
        await asyncio.sleep(POLL_SECONDS)
    return False


async def _is_master(remoting: Remoting, address: str, servers: Sequence[str], report: PromotionReport) -> bool:
    if not servers:
        settings = (await broker_settings(remoting, address, timeout_ms=REQUEST_MS)).values
        return settings.get("brokerRole") != "SLAVE"
    for server in servers:
        known = (await cluster_info(remoting, server, timeout_ms=REQUEST_MS)).brokers.get(report.broker_name)
        if known is None or known.addresses.get(MASTER_ID) != report.address:
            return False
    return True


def _lines(report: PromotionReport) -> list[str]:
    known = f"{report.master_end} ({report.master_end_age_s} s ago)" if report.master_end >= 0 else "unknown"
    missing = str(report.missing_bytes) if report.master_end >= 0 else "unknown"
    return [
        f"slave of {report.broker_name} at {report.address}",
        f"  its log ends at              {report.log_end}",
        f"  the master's ended at        {known}",
        f"  known to be missing, bytes   {missing}",
        *_role_lines(report),
        *(f"  doubt: {doubt}" for doubt in report.doubts),
    ]


def _role_lines(report: PromotionReport) -> list[str]:
    """Its role as master, why that one, and what the response to a send guarantees with it."""
    if report.role == report.master_role:
        why = "as the master's"
    elif report.master_role:
        why = f"the master's was {report.master_role}"
    else:
        why = "the master's is unknown; --sync or --async sets another one"
    return [f"  its role as the master       {report.role} ({why})", *MEANINGS.get(report.role, ())]


def _done(report: PromotionReport, *, serves: bool) -> str:
    if serves and report.saved:
        return f"it is the master of {report.broker_name} now, and clients find it"
    suffix = (
        ""
        if report.saved
        else "; its configuration cannot be written and still says SLAVE: set brokerRole and brokerId=0 there"
    )
    begun = "it is" if serves else f"after {SERVES_SECONDS} s no client finds it yet; see its log: it restarts as"
    return f"{begun} the master of {report.broker_name}{suffix}"
