"""The command `broker promote`: a slave becomes the master of its broker name. Asks the slave, which decides."""

from __future__ import annotations

import asyncio
from pathlib import Path

from orbitmq.broker.options import BrokerOptions
from orbitmq.cli import configuration
from orbitmq.cli.endings import EXIT_FAILED, fail, one_line_errors
from orbitmq.cli.health import place_of
from orbitmq.net.remoting import Remoting
from orbitmq.net.tls import client_context
from orbitmq.net.tls_options import ENFORCING, TlsOptions, with_tls_file
from orbitmq.operations.promotion import promote_slave
from orbitmq.store.options import StoreOptions
from orbitmq.wire.promotion import PromotionReport


def promote(config: Path | None, address: str | None, *, dry_run: bool, force: bool, sync: bool) -> None:
    """Ends the process with 1 when it is not done, or would not be."""
    with one_line_errors("broker promote"):
        pairs, _ = configuration.read(config, {}, BrokerOptions, StoreOptions, TlsOptions)
        options, tls = BrokerOptions.parse(pairs), TlsOptions.parse(with_tls_file(pairs))
        place = address or place_of(options.listen_address, options.listen_port)
        report = asyncio.run(_ask(tls, place, dry_run=dry_run, force=force, sync=sync))
    print("\n".join(_lines(report)))
    if report.alive is not None:
        fail(
            "broker promote",
            f"refused: {report.alive}; stop it first, two masters would destroy each other's log",
            EXIT_FAILED,
        )
    if report.doubts and not force:
        fail("broker promote", "refused: give --force to do it nevertheless", EXIT_FAILED)
    print("it would be done" if dry_run else _done(report))


async def _ask(tls: TlsOptions, address: str, *, dry_run: bool, force: bool, sync: bool) -> PromotionReport:
    remoting = Remoting(tls=client_context(tls) if tls.mode == ENFORCING else None)
    try:
        return await promote_slave(remoting, address, dry_run=dry_run, force=force, sync=sync)
    finally:
        await remoting.close()


def _lines(report: PromotionReport) -> list[str]:
    known = f"{report.master_end} ({report.master_end_age_s} s ago)" if report.master_end >= 0 else "never heard"
    missing = str(report.missing_bytes) if report.master_end >= 0 else "unknown"
    return [
        f"slave of {report.broker_name} at {report.address}",
        f"  its log ends at              {report.log_end}",
        f"  the master's ended at        {known}",
        f"  known to be missing, bytes   {missing}",
        *(f"  doubt: {doubt}" for doubt in report.doubts),
    ]


def _done(report: PromotionReport) -> str:
    kept = (
        ""
        if report.saved
        else "; its configuration cannot be written and still says SLAVE: set brokerRole and brokerId=0 there"
    )
    return f"it starts anew as the master of {report.broker_name}{kept}"
