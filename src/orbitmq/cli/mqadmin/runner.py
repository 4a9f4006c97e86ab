"""Runs an mqadmin command: parses its words, prints its output. Knows no command.

Two deliberate differences: a failure is one line on standard error and an exit code, where RocketMQ's tool prints a
stack trace and exits with 0; and a node that does not respond is named, while the results of the others are printed.
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
"""Commands that only show a message, unless an option makes them deliver it to a member or send it again."""
TIMEOUT_MS = 20_000.0
"""The request timeout of RocketMQ's tool."""


class Work:
    """One call of a command: its options, its session, and the nodes that failed."""

    def __init__(self, session: Session, given: Given, context: Context) -> None:
        self.session = session
        self._context = context
        self.given = given
        self.failures: list[Failure] = []
        self.has_responses = False
        """Whether any node has responded to a request to several."""

    async def each(self, nodes: Sequence[Node], request: Callable[[Node], Awaitable[Any]]) -> dict[Node, Any]:
        """The responses; nodes that fail are reported at the end."""
        return self._collected(await self.session.each_node(nodes, request))

    async def each_server(self, request: Callable[[str], Awaitable[Any]]) -> dict[str, Any]:
        return self._collected(await self.session.every_name_server(request))

    def _collected(self, gathered: Gathered[Any, Any]) -> dict[Any, Any]:
        self.failures += gathered.failures
        self.has_responses = self.has_responses or bool(gathered.responses)
        return gathered.responses

    def producer(self, group: str, *, enable_trace: bool = False) -> Producer:
        """A producer for the same cluster with the same account."""
        return Producer(group, self.session.name_servers, enable_trace=enable_trace, **protection(self._context))

    async def targets(self, *, masters: bool = True) -> list[Node]:
        """The broker of `-b`, or those of the cluster of `-c`."""
        if "b" in self.given:
            return [await self.session.node(self.given.text("b"))]
        return await self.of_cluster(self.given.text("c"), masters=masters)

    async def of_cluster(self, cluster: str, *, masters: bool = True) -> list[Node]:
        known = await (self.session.masters() if masters else self.session.nodes())
        nodes = [node for node in known if node.cluster == cluster]
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
        fail(f"mqadmin {stock.name}", _error_text(error), exit_code(error) or EXIT_FAILED)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader has closed the pipe
        sys.stderr.close()
        return EXIT_FAILED if changes else 0


def _allow(stock: Stock, context: Context, *, changes: bool) -> None:
    """Ends the process if the context forbids changes, or is protected: mqadmin commands do not prompt."""
    if changes and (context.readonly or context.protected):
        kind = "readonly" if context.readonly else "protected, and this command does not prompt"
        fail(f"mqadmin {stock.name}", f"context {context.name} is {kind}: changes are refused", EXIT_REFUSED)


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
    """That of the first failure if no node responded; the one of partial results if some did."""
    if not work.failures:
        return 0
    first = work.failures[0]
    if work.has_responses or first.code is None:
        return EXIT_UNREACHABLE
    return exit_code(BrokerError(first.code, first.message)) or EXIT_FAILED


def _error_text(error: OrbitMQError) -> str:
    """With the response code, which scripts search for. An unknown topic is found here, before a broker responds."""
    if isinstance(error, BrokerError):
        return str(error)
    text = error_line(error)
    return f"CODE: 17 DESC: {text}" if isinstance(error, NotFound) and not text.startswith("CODE: ") else text


def overview() -> list[str]:
    aliases = {real: alias for alias, real in ALIASES.items()}
    return [
        "The commands of RocketMQ's mqadmin; `orbitmq mqadmin help NAME` lists the options of one.",
        "",
        *(f"  {name}{f' ({aliases[name]})' if name in aliases else ''}" for name in ROWS),
    ]


def usage(stock: Stock) -> list[str]:
    lines = [f"usage: orbitmq mqadmin {stock.name} [-n ADDRESSES] ...", ""]
    for one in stock.letters:
        value = " <value>" if one.takes_value else ""
        need = "  required" if one.required else "  one of these is required" if one.alternative else ""
        lines.append(f"  -{one.letter}, --{one.long}{value}{need}")
    lines += ["  -n, --namesrvAddr <value>", "  -h, --help"]
    return lines
