"""Checks for monitoring systems on the command line, with the output of Nagios plugins.

A check is a function of its own flags that returns its query; `_run` has the flags that all checks share.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, get_type_hints

import typer
from typer.exceptions import TyperException

from orbitmq.cli.command_group import CommandGroup
from orbitmq.cli.completion import completed
from orbitmq.cli.verbs import ClusterName, ContextName, Mapped, NameServers, Timeout, noun

UNKNOWN = 3


class Checks(CommandGroup):
    """A wrong flag is unknown (3) for a monitoring system; the usual exit code 2 would mean critical."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        with _unknown():
            return super().make_context(info_name, args, parent=parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _unknown():
            return super().invoke(ctx)


@contextmanager
def _unknown() -> Iterator[None]:
    try:
        yield
    except TyperException as error:
        context = getattr(error, "ctx", None)
        name, text = getattr(context, "info_name", None), " ".join(error.format_message().split())
        message = "name a check: orbitmq check -h" if text.startswith("Usage:") else text
        typer.echo(f"ORBITMQ {(name or 'check').upper()} UNKNOWN - {message}")
        raise typer.Exit(UNKNOWN) from error


app = noun("check", "Checks for a monitoring system: exit code 0 ok, 1 warning, 2 critical, 3 unknown.", Checks)

Query = Callable[..., Any]
"""A query of `admin.checks`, which is imported only when a check runs, because help must print without delay."""

Warning_ = Annotated[
    float | None,
    typer.Option("-w", "--warning", metavar="N", help="Warning from this value on; default: the first above."),
]
Critical = Annotated[
    float | None,
    typer.Option("-c", "--critical", metavar="N", help="Critical from this value on; default: the second above."),
]
Form = Annotated[str, typer.Option("-o", "--output", metavar="FORMAT", help="nagios, json or prometheus.")]
Broker = Annotated[
    str | None,
    typer.Option(
        "--broker", "-b", metavar="BROKER", help="The broker's name, name:id or host:port (default: all brokers)."
    ),
]
Group = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.")]
AnyGroup = Annotated[str | None, typer.Argument(metavar="GROUP", help="The consumer group (default: all groups).")]


def _run(
    check: str,
    query: Query,
    *,
    warning: Warning_ = None,
    critical: Critical = None,
    form: Form = "nagios",
    name_servers: NameServers = None,
    context_name: ContextName = None,
    cluster: ClusterName = None,
    mapped: Mapped = None,
    timeout: Timeout = 5.0,
) -> None:
    """Run the check and end the process; the keyword parameters are flags of every check."""
    from orbitmq.cli.check_runner import CheckTarget, run

    target = CheckTarget(name_servers or (), context_name, cluster, mapped or (), timeout * 1000)
    run(check, query, (warning, critical), form, target)


def _keywords(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The keyword parameters of a function, as typer reads them."""
    hints = get_type_hints(function, include_extras=True)
    return [
        parameter.replace(annotation=completed(hints[parameter.name]))
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]


def _check(function: Callable[..., Query]) -> Callable[..., Query]:
    """A command of the function's name, with its flags and those of every check."""
    own, check = _keywords(function), function.__name__

    def call(**given: Any) -> None:
        mine = {parameter.name: given.pop(parameter.name) for parameter in own}
        _run(check, function(**mine), **given)

    call.__doc__ = function.__doc__
    call.__signature__ = inspect.Signature([*own, *_keywords(_run)])  # type: ignore[attr-defined]
    call.__annotations__ = {}
    app.command(check)(call)
    return function


@_check
def connection() -> Query:
    """How fast each name server responds. Limits in ms: 500, 2000.

    One that does not respond is critical.

    \b
    Examples:
      orbitmq check connection
      orbitmq check connection -w 50 -c 200 -n '10.0.0.1:9876;10.0.0.2:9876'
    """
    from orbitmq.admin import checks

    return checks.connection


@_check
def broker(*, name: Broker = None) -> Query:
    """Whether brokers respond and take messages. Limits of the time that sends wait there, in ms: 200, 1000.

    A broker that does not respond is critical, also if it is a slave.

    \b
    Examples:
      orbitmq check broker
      orbitmq check broker --broker broker-a -o json
    """
    from orbitmq.admin import checks

    return partial(checks.broker, name=name)


@_check
def disk(*, name: Broker = None) -> Query:
    """How full the disks of brokers are. Limits in percent: 75, where old messages are deleted early, and 85.

    \b
    Examples:
      orbitmq check disk
      orbitmq check disk -w 60 -c 70
    """
    from orbitmq.admin import checks

    return partial(checks.disk, name=name)


@_check
def lag(*, group: Group) -> Query:
    """How many messages a group has not consumed. Limits in messages: 10000, 100000.

    A broker that does not respond makes it unknown, unless the lag on the others is critical already. A group that
    does not process a short lag is within the limits: `orbitmq check group` finds that.

    \b
    Examples:
      orbitmq check lag billing
      orbitmq check lag billing -w 100 -c 5000
    """
    from orbitmq.admin import checks

    return partial(checks.lag, group=group)


@_check
def group(*, group: AnyGroup = None) -> Query:
    """Whether groups are well, as `orbitmq group why` judges. Without a name, all. Limits in critical groups: 1, 1.

    A group with only a warning makes it a warning; if it is too early to tell, it is unknown. It may take some
    seconds more to look twice.

    \b
    Examples:
      orbitmq check group billing
      orbitmq check group -c 5
    """
    from orbitmq.admin import checks

    return partial(checks.group, group=group)


@_check
def dlq(*, group: Group) -> Query:
    """How many dead letters of a group are kept. Limits in messages: 1, 100.

    \b
    Examples:
      orbitmq check dlq billing
      orbitmq check dlq billing -w 10 -c 1000 -o prometheus
    """
    from orbitmq.admin import checks

    return partial(checks.dlq, group=group)


@_check
def replica() -> Query:
    """How far slaves are behind their masters. Limits in bytes: 16 and 256 MiB; no master at all is critical.

    \b
    Examples:
      orbitmq check replica
      orbitmq check replica -w 1048576 -c 67108864
    """
    from orbitmq.admin import checks

    return checks.replica
