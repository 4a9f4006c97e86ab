"""The live view in a terminal. Knows how to show the state of a cluster, not how to query it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orbitmq.admin.cluster import Overview
from orbitmq.admin.cluster_view import ClusterView, moment, with_groups
from orbitmq.admin.envelope import plain
from orbitmq.admin.group_verdicts import GroupVerdicts, group_verdicts
from orbitmq.admin.pace import Paces
from orbitmq.admin.results import Result
from orbitmq.admin.session import Session
from orbitmq.admin.verdict import Severity
from orbitmq.cli import output
from orbitmq.cli.contexts import Context, choose
from orbitmq.cli.execution import error_line, opened
from orbitmq.cli.exit_codes import EXIT_INTERRUPTED, EXIT_UNREACHABLE, one_line_errors
from orbitmq.errors import OrbitMQError
from orbitmq.runtime.printable import printable

BROKERS = (
    "CLUSTER=cluster", "BROKER=broker", "ROLE=role", "ADDRESS=address", "VERSION=version",
    "PRODUCED/s=inPerS", "CONSUMED/s=outPerS", "TODAY IN=putMessages.today", "TODAY OUT=gotMessages.today",
    "SEND QUEUE=sendQueue.size", "DISK=diskRatio", "OLDEST=oldestMessageAtMs",
)  # fmt: skip
GROUPS = (
    "GROUP=name", "LAG=lagMessages", "RETRY=retryLagMessages", "DELIVERED/s=handedOutTps", "TOPICS=topics",
)  # fmt: skip
LEFT_OUT_FIRST = (
    "OLDEST=oldestMessageAtMs", "TODAY OUT=gotMessages.today", "TODAY IN=putMessages.today", "VERSION=version",
    "CLUSTER=cluster", "SEND QUEUE=sendQueue.size", "ADDRESS=address", "TOPICS=topics",
)  # fmt: skip
"""The columns that a narrow terminal does without."""

VERDICTS_SECONDS = 10.0
"""Between two checks of all groups, which need a request to each member."""
PIPE_WIDTH = 10_000
"""Wide enough that nothing is cut if a script reads the output."""
_STYLES = {Severity.WELL: "green", Severity.UNKNOWN: "cyan", Severity.WARNING: "yellow", Severity.CRITICAL: "bold red"}


def run(
    every: float,
    once: bool,
    name_servers: Sequence[str],
    context_name: str | None,
    cluster: str | None,
    mapped: Sequence[str],
    timeout: float,
) -> None:
    with one_line_errors("top"):
        context = choose(name_servers, context_name, cluster, mapped)
        console = Console(highlight=False)
        try:
            if once or not console.is_terminal:
                raise SystemExit(asyncio.run(_once(console, context, timeout * 1000)))
            asyncio.run(_live(console, context, timeout * 1000, every))
        except KeyboardInterrupt:
            raise SystemExit(EXIT_INTERRUPTED) from None


async def _once(console: Console, context: Context, timeout_ms: float) -> int:
    async with opened(context, timeout_ms) as session:
        found, verdicts = await asyncio.gather(moment(session, shown=None), group_verdicts(session))
        found.items = [with_groups(one, verdicts) for one in found.items]
    wide = console if console.is_terminal else Console(file=sys.stdout, width=PIPE_WIDTH, highlight=False)
    wide.print(screen(found, time.time(), lines=None, width=wide.width))
    return EXIT_UNREACHABLE if found.partial else 0


async def _live(console: Console, context: Context, timeout_ms: float, every: float) -> None:
    """Keeps its connections open; the name servers are queried at each refresh."""
    groups = _Groups()
    async with opened(context, timeout_ms) as session, groups.updated(session):
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                session.forget()
                try:
                    found = await moment(session)
                    found.items = [with_groups(one, groups.verdicts) for one in found.items]
                    shown = screen(found, time.time(), lines=console.height, width=console.width)
                except OrbitMQError as error:  # show the error and go on: the broker may come back
                    shown = Text(printable(f"{_clock(time.time())}  {error_line(error)}"), style="red")
                live.update(shown, refresh=True)
                await asyncio.sleep(every)


class _Groups:
    """The verdicts of all groups, which take longer than a refresh may: they are updated in the background."""

    def __init__(self) -> None:
        self.verdicts: GroupVerdicts | None = None

    @asynccontextmanager
    async def updated(self, session: Session) -> AsyncIterator[None]:
        task = asyncio.create_task(self._update(session))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _update(self, session: Session) -> None:
        paces = Paces()
        while True:
            try:
                self.verdicts = await group_verdicts(session, paces=paces, watch_seconds=0)
            except OrbitMQError:  # the screen shows which node does not respond
                self.verdicts = None
            await asyncio.sleep(VERDICTS_SECONDS)


def screen(found: Result[ClusterView], now_s: float, *, lines: int | None, width: int) -> RenderableType:
    """The state as it is shown; `lines` is the height of the terminal, None shows everything, `width` its columns."""
    one = found.items[0]
    parts: list[RenderableType] = [_verdict(overview, now_s) for overview in one.clusters] or [Text("no cluster")]
    parts += [Text(), _table([plain(broker) for broker in one.brokers], BROKERS, width)]
    room = None if lines is None else max(3, lines - len(one.brokers) - 2 * len(parts) - len(found.failures) - 4)
    groups = [plain(group) for group in one.groups[:room]]
    hidden = one.groups_in_all - len(groups)
    parts += [Text(), _table(groups, GROUPS, width)]
    if hidden > 0:
        parts.append(Text(f"and {hidden} groups with less lag: orbitmq group list", style="dim"))
    parts += [
        Text(printable(f"{failure.target}: {failure.name}: {failure.message}"), style="red")
        for failure in found.failures
    ]
    return Group(*parts)


def _verdict(overview: Overview, now_s: float) -> Text:
    style = _STYLES[overview.severity]
    produced, delivered = output.formatted("inPerS", overview.in_per_s), output.formatted("outPerS", overview.out_per_s)
    text = Text(f"{_clock(now_s)}  {printable(overview.cluster)}: ")
    return (
        text.append(printable(overview.verdict), style=style)
        .append(f"  ({produced} produced/s, ")
        .append(f"{delivered} delivered/s)")
    )


def _clock(now_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(now_s))


def _table(items: Sequence[dict[str, Any]], columns: Sequence[str], width: int) -> Table:
    """Columns that do not fit are left out, those of `LEFT_OUT_FIRST`."""
    texts = {column: [output.heading_of(column), *_cells(items, output.path_of(column))] for column in columns}
    for column in LEFT_OUT_FIRST:
        if sum(max(map(cell_len, cells)) + output.GAP for cells in texts.values()) - output.GAP > width:
            texts.pop(column, None)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, output.GAP, 0, 0))
    for column, (heading, *_) in texts.items():
        numbers = any(isinstance(output.value_of(item, output.path_of(column)), (int, float)) for item in items)
        right = numbers and not output.path_of(column).endswith("AtMs")
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    for row in zip(*(cells for _, *cells in texts.values()), strict=True):
        table.add_row(*map(Text, row))
    return table


def _cells(items: Sequence[dict[str, Any]], path: str) -> list[str]:
    return [output.cell(path, output.value_of(item, path)) for item in items]
