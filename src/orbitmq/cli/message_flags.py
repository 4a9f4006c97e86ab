"""Flags of commands that show messages: which ones, and how. Light, as the modules of nouns are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from orbitmq.admin.bodies import StoredMessage
    from orbitmq.admin.scan import MessageFilter
    from orbitmq.message.model import MessageExt

Form = Annotated[
    str, typer.Option("--body", metavar="FORM", help="How to show the body: auto, text, json, hex, base64 or none.")
]
Charset = Annotated[
    str, typer.Option("--charset", metavar="NAME", help="Character set of text bodies: utf-8, gbk, latin-1.")
]
Full = Annotated[bool, typer.Option("--full", help="Show whole bodies (default: their first 64 KiB).")]
Tag = Annotated[
    str | None, typer.Option("--tag", metavar="TAG", help="Only messages with this tag; filtered by the broker.")
]
Key = Annotated[str | None, typer.Option("--key", "-k", metavar="KEY", help="Only messages with exactly this key.")]
Property = Annotated[
    str | None, typer.Option("--property", metavar="NAME=VALUE", help="Only messages with this property.")
]
Grep = Annotated[str | None, typer.Option("--grep", metavar="TEXT", help="Only messages with this text in the body.")]
Begin = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="Only messages stored since then: @2h, 2024-05-01T08:00:00Z."),
]
End = Annotated[str | None, typer.Option("--to", metavar="TIME", help="Only messages stored until then.")]
Broker = Annotated[str | None, typer.Option("--broker", "-b", metavar="BROKER", help="Only this broker.")]
Queue = Annotated[int | None, typer.Option("--queue", min=0, metavar="ID", help="Only this queue.")]
Limit = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Show at most N.")]
Budget = Annotated[int, typer.Option("--budget", min=1, metavar="N", help="Read at most N messages.")]


def view_of(form: str, charset: str, *, full: bool) -> Callable[[MessageExt], StoredMessage]:
    """How messages are shown. ConfigurationError for an unknown form or charset."""
    from orbitmq.admin.bodies import SHOWN_BYTES, BodyForm, check_charset, shown
    from orbitmq.errors import ConfigurationError

    forms = {one.value: one for one in BodyForm}
    if form != "none" and form not in forms:
        raise ConfigurationError(f"--body {form}: use none or one of {', '.join(forms)}")
    check_charset(charset)
    limit = None if full else SHOWN_BYTES
    return lambda message: shown(message, forms.get(form), charset, limit)


def filter_of(
    begin: str | None,
    end: str | None,
    tag: str | None = None,
    key: str | None = None,
    property_: str | None = None,
    grep: str | None = None,
) -> MessageFilter:
    """The conditions of the flags. BadArgument for what is no time, ConfigurationError for what is no property."""
    from orbitmq.admin.scan import MessageFilter
    from orbitmq.admin.time_texts import moment_ms
    from orbitmq.runtime.clock import SystemClock

    now_ms = SystemClock().now_ms()
    pairs = pairs_of([property_] if property_ else [])
    return MessageFilter(
        None if begin is None else moment_ms(begin, now_ms),
        None if end is None else moment_ms(end, now_ms),
        tag,
        key,
        next(iter(pairs.items()), None),
        grep,
    )


def pairs_of(given: list[str] | tuple[str, ...]) -> dict[str, str]:
    """`NAME=VALUE` each. ConfigurationError for anything else."""
    from orbitmq.errors import ConfigurationError

    pairs = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise ConfigurationError(f"--property {text}: use NAME=VALUE")
        pairs[name] = value
    return pairs
