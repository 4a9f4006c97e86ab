"""How a noun gets its verbs, with the flags that all of them share.

A module of `cli/nouns/` writes a verb as a coroutine with a session and its own flags, and declares it:

    app = noun("topic", "Topics: list, create, change and delete them.")

    @reads(app, "list", "TopicList", ("TOPIC=name", "TYPE=type", "+PERM=perm"))
    async def list_(session: Session, everything: Annotated[bool, typer.Option("--all")] = False) -> Result[Topic]:
        '''Topics of the cluster, system topics with --all. ... Examples: ...'''
        from orbitmq.admin import topics
        return await topics.listed(session, everything=everything)

`reads` verbs return a `Result`, `changes` verbs a `Plan`; `streams` and `feeds` verbs yield items one by one. Help must
print without delay, so this module imports little more than typer; `Session` and items are used in annotations only
(TYPE_CHECKING).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

import typer

from orbitmq.cli.command_group import CommandGroup
from orbitmq.cli.completion import completed, contexts

F = TypeVar("F", bound=Callable[..., Any])

NameServers = Annotated[
    list[str] | None,
    typer.Option(
        "-n",
        "--name-server",
        metavar="HOST:PORT",
        help="Name servers, repeated or joined by ; or , (else NAMESRV_ADDR, else the context, else 127.0.0.1:9876).",
    ),
]
ContextName = Annotated[
    str | None,
    typer.Option("--context", metavar="NAME", help="A cluster of `orbitmq context list`.", autocompletion=contexts),
]
ClusterName = Annotated[
    str | None,
    typer.Option("--cluster", metavar="NAME", help="Only this one of the name servers' clusters."),
]
Mapped = Annotated[
    list[str] | None,
    typer.Option("--map-addr", metavar="FROM=TO", help="Connect to TO for the broker registered at FROM; repeatable."),
]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="Timeout of each request.")]
Output = Annotated[
    str,
    typer.Option(
        "-o", "--output", metavar="FORMAT", help="table, wide, json, jsonl, yaml, csv, name, template='$name'."
    ),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print nothing on standard error.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Print each request on standard error: code, peer, ms.")]
Watch = Annotated[
    float | None, typer.Option("--watch", min=0.2, metavar="SECONDS", help="Repeat every SECONDS, until Ctrl-C.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Do not prompt for confirmation.")]
Verify = Annotated[bool, typer.Option("--verify/--no-verify", help="Read back what was changed.")]
FailIfUnchanged = Annotated[
    bool, typer.Option("--fail-if-unchanged", help="Exit with 10 if there is nothing to change.")
]


def shared(**flags: tuple[Any, Any]) -> list[inspect.Parameter]:
    """Parameters of a command from their annotations and defaults."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(name, kind, default=default, annotation=annotation)
        for name, (annotation, default) in flags.items()
    ]


_REACHING = shared(
    name_servers=(NameServers, None),
    context_name=(ContextName, None),
    cluster=(ClusterName, None),
    mapped=(Mapped, None),
    timeout=(Timeout, 5.0),
)
_PRINTING = shared(output=(Output, "table"), quiet=(Quiet, False), verbose=(Verbose, False))
_WATCHING = shared(watch=(Watch, None))
_CHANGING = shared(
    dry_run=(DryRun, False), yes=(Yes, False), verify=(Verify, True), fail_if_unchanged=(FailIfUnchanged, False)
)

RESULT_COLUMNS: dict[str, tuple[str, ...]] = {}
"""Kind of a result -> its columns, filled as the nouns are imported."""


def noun(name: str, text: str, cls: type[CommandGroup] = CommandGroup) -> typer.Typer:
    """A group of verbs."""
    return typer.Typer(name=name, help=text, cls=cls, no_args_is_help=True, rich_markup_mode=None, add_completion=False)


def reads(app: typer.Typer, verb: str, kind: str, columns: Sequence[str]) -> Callable[[F], F]:
    """A verb that changes nothing: `async (session, ...) -> Result[Item]`. `kind` names its JSON."""
    return _verb(app, verb, kind, columns, "read", _WATCHING)


def changes(app: typer.Typer, verb: str) -> Callable[[F], F]:
    """A verb that changes something: `async (session, ...) -> Plan`. The plan is shown, confirmed and executed."""
    return _verb(app, verb, "Plan", STEPS, "change", _CHANGING)


def streams(app: typer.Typer, verb: str, kind: str, columns: Sequence[str]) -> Callable[[F], F]:
    """A verb that goes on: an asynchronous generator `(session, aside, ...)` of items, each printed as it arrives. It
    reports nodes that do not respond through `aside`, an `execution.Aside`."""
    return _verb(app, verb, kind, columns, "stream", [])


def feeds(app: typer.Typer, verb: str, kind: str, columns: Sequence[str]) -> Callable[[F], F]:
    """A generator `(session, ...)` that sends something at each step; refused in a readonly context."""
    return _verb(app, verb, kind, columns, "feed", [])


def loads(app: typer.Typer, verb: str, kind: str, columns: Sequence[str]) -> Callable[[F], F]:
    """A verb that sends or consumes many messages and reports on it: `async (session, clients, ...) -> Result[Item]`.
    `clients` are the settings of clients that reach the same cluster. Refused in a readonly context."""
    return _verb(app, verb, kind, columns, "load", [])


STEPS = ("TARGET=target", "ACTION=action", "SUBJECT=subject", "BEFORE=before", "AFTER=after", "OUTCOME=outcome")


def _verb(
    app: typer.Typer, verb: str, kind: str, columns: Sequence[str], way: str, more: list[inspect.Parameter]
) -> Callable[[F], F]:
    RESULT_COLUMNS[kind] = tuple(columns)

    def register(function: F) -> F:
        own = list(inspect.signature(function, eval_str=False).parameters.values())[
            2 if way in ("stream", "load") else 1 :
        ]
        names = [parameter.name for parameter in own]
        hints = function.__annotations__
        evaluated = [
            parameter.replace(
                kind=inspect.Parameter.KEYWORD_ONLY,
                annotation=completed(_evaluated(hints[parameter.name], function)),
            )
            for parameter in own
        ]

        def call(**given: Any) -> None:
            from orbitmq.cli import execution

            mine = {name: given.pop(name) for name in names}
            execution.perform(
                way,
                verb if verb == app.info.name else f"{app.info.name} {verb}",
                kind,
                tuple(columns),
                function,
                mine,
                given,
            )

        call.__doc__ = function.__doc__
        call.__signature__ = inspect.Signature([*evaluated, *more, *_PRINTING, *_REACHING])  # type: ignore[attr-defined]
        call.__annotations__ = {}
        app.command(verb)(call)
        return function

    return register


def _evaluated(annotation: Any, function: Callable[..., Any]) -> Any:
    """The annotation's value; annotations of flags use no name that is imported for type checking only."""
    if not isinstance(annotation, str):
        return annotation
    return eval(annotation, function.__globals__)  # noqa: S307 -- our own source, as typing.get_type_hints does
