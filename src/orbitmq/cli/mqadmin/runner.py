"""A stock command at work: words in, its printed form out. Knows no command.

What differs on purpose: a failure is one line on standard error and an exit code, where the stock tool prints a stack
and ends with 0; a node that does not answer is named, and what the others say is printed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from typing import Any

from orbitmq.admin.results import Failure, Gathered
from orbitmq.admin.session import Node, Session
from orbitmq.cli.contexts import Context, choose
from orbitmq.cli.execution import error_line, opened
from orbitmq.cli.exit_codes import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_REFUSED,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    exit_code,
    fail,
)
from orbitmq.cli.mqadmin.table import ALIASES, ROWS, Stock, command
from orbitmq.cli.mqadmin.words import Given, read
from orbitmq.cli.safe_output import shown
from orbitmq.cli.tls import protection
from orbitmq.client.producer import Producer
from orbitmq.errors import BrokerError, ConfigurationError, NotFound, OrbitMQError
from orbitmq.runtime.printable import printable

SHOWN_TOO = {"queryMsgById", "queryMsgByUniqueKey"}
"""Commands that only show a message, unless they are told to hand it to a member or to send it again."""
TIMEOUT_MS = 20_000.0
"""What the stock tool gives a request."""


class Work:
    """One command at work: what it was given, whom it asks, and who has failed."""

    def __init__(self, session: Session, given: Given, context: Context) -> None:
        self.session = session
        self._context = context
        self.given = given
        self.failures: list[Failure] = []
        self.answered = False
        """Whether anybody has answered anything that was asked of several."""

    async def each(self, nodes: Sequence[Node], question: Callable[[Node], Awaitable[Any]]) -> dict[Node, Any]:
        """The answers; who gives none is told at the end."""
        return self._kept(await self.session.each_node(nodes, question))

    async def each_server(self, question: Callable[[str], Awaitable[Any]]) -> dict[str, Any]:
        return self._kept(await self.session.every_name_server(question))

    def _kept(self, gathered: Gathered[Any, Any]) -> dict[Any, Any]:
        self.failures += gathered.failures
        self.answered = self.answered or bool(gathered.answers)
        return gathered.answers

    def producer(self, group: str, *, enable_trace: bool = False) -> Producer:
        """One that reaches the same cluster with the same account."""
        return Producer(group, self.session.name_servers, enable_trace=enable_trace, **protection(self._context))

    async def targets(self, *, masters: bool = True) -> list[Node]:
        """The broker of `-b`, or those of the cluster of `-c`."""
        if "b" in self.given:
            return [await self.session.node(self.given.text("b"))]
        return await self.of_cluster(self.given.text("c"), masters=masters)

    async def of_cluster(self, cluster: str, *, masters: bool = True) -> list[Node]:
        everybody = await (self.session.masters() if masters else self.session.nodes())
        nodes = [node for node in everybody if node.cluster == cluster]
        if not nodes:
            raise NotFound(f"there is no cluster {cluster}")
        return nodes


def run(words: Sequence[str]) -> None:
    """Ends the process with the exit code."""
    if not words or words[0] in ("-h", "--help"):
        print("\n".join(overview()))
        return
    name, *rest = words
    if name == "help":
        name, rest = (rest[0] if rest else ""), ["-h"]
    stock = command(name)
    if stock is None:
        fail("mqadmin", f"there is no command {name}; orbitmq mqadmin lists them", EXIT_USAGE)
    try:
        given = read(stock, rest)
    except ConfigurationError as error:
        fail(f"mqadmin {stock.name}", str(error), EXIT_USAGE)
    if "h" in given:
        print("\n".join(usage(stock)))
        return
    raise SystemExit(_perform(stock, given))


def _perform(stock: Stock, given: Given) -> int:
    changes = stock.changes and not (stock.name in SHOWN_TOO and "d" not in given and "s" not in given)
    try:
        context = choose([given.text("n")] if "n" in given else (), None, None)
        _allow(stock, context, changes=changes)
        with redirect_stdout(shown(sys.stdout)):
            return asyncio.run(_work(stock, given, context))
    except OrbitMQError as error:
        fail(f"mqadmin {stock.name}", _told(error), exit_code(error) or EXIT_FAILED)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # whoever reads has had enough
        sys.stderr.close()
        return EXIT_FAILED if changes else 0


def _allow(stock: Stock, context: Context, *, changes: bool) -> None:
    """Ends the process when the context takes no change; stock commands ask nobody, so a protected one takes none."""
    if changes and (context.readonly or context.protected):
        kind = "readonly" if context.readonly else "protected, and this command asks nobody"
        fail(f"mqadmin {stock.name}", f"context {context.name} is {kind}: nothing is changed through it", EXIT_REFUSED)


async def _work(stock: Stock, given: Given, context: Context) -> int:
    module = import_module(f"orbitmq.cli.mqadmin.{stock.module}")
    commands: Mapping[str, Callable[[Work], Awaitable[None]]] = module.COMMANDS
    async with opened(context, TIMEOUT_MS) as session:
        work = Work(session, given, context)
        await commands[stock.name](work)
    for failure in work.failures:
        what = failure.name if failure.code is None else f"CODE: {failure.code} DESC"
        print(printable(f"{failure.target}: {what}: {failure.message}"), file=sys.stderr)
    return _code_of(work)


def _code_of(work: Work) -> int:
    """What the first failure means when there is nothing else; a part is a part."""
    if not work.failures:
        return 0
    first = work.failures[0]
    if work.answered or first.code is None:
        return EXIT_UNREACHABLE
    return exit_code(BrokerError(first.code, first.message)) or EXIT_FAILED


def _told(error: OrbitMQError) -> str:
    """With the response code, which scripts look for; an unknown topic is found out here, before a broker says so."""
    if isinstance(error, BrokerError):
        return str(error)
    text = error_line(error)
    return f"CODE: 17 DESC: {text}" if isinstance(error, NotFound) and not text.startswith("CODE: ") else text


def overview() -> list[str]:
    aliases = {real: alias for alias, real in ALIASES.items()}
    return [
        "The commands of RocketMQ's mqadmin by their names and letters; `orbitmq mqadmin help NAME` tells them.",
        "",
        *(f"  {name}{f' ({aliases[name]})' if name in aliases else ''}" for name in ROWS),
    ]


def usage(stock: Stock) -> list[str]:
    lines = [f"usage: orbitmq mqadmin {stock.name} [-n ADDRESSES] ...", ""]
    for one in stock.letters:
        value = " <value>" if one.takes_value else ""
        need = "  must be given" if one.required else "  one of these must be given" if one.alternative else ""
        lines.append(f"  -{one.letter}, --{one.long}{value}{need}")
    lines += ["  -n, --namesrvAddr <value>", "  -h, --help"]
    return lines
