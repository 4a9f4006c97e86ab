"""Words that people type and that are not the name of a command or flag, and where they lead. Plain tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

COMMANDS: Mapping[str, str] = {
    "account": "`orbitmq acl list`",
    "accounts": "`orbitmq acl list`",
    "bench": "`orbitmq bench send`",
    "brokers": "`orbitmq cluster list`",
    "cat": "`orbitmq msg tail TOPIC`",
    "consume": "`orbitmq msg tail TOPIC`",
    "consumer": "`orbitmq client consumers GROUP`",
    "consumers": "`orbitmq client consumers GROUP`",
    "console": "`orbitmq dashboard`",
    "create": "`orbitmq topic create TOPIC`",
    "dead-letters": "`orbitmq msg resend --from-dlq GROUP`",
    "delete": "`orbitmq topic delete TOPIC`",
    "describe": "`orbitmq topic status TOPIC`, `orbitmq group progress GROUP` or `orbitmq broker status BROKER`",
    "dlq": "`orbitmq msg query %DLQ%GROUP`, `orbitmq check dlq GROUP` or `orbitmq msg resend --from-dlq GROUP`",
    "find": "`orbitmq msg find ID`",
    "groups": "`orbitmq group list`",
    "info": "`orbitmq cluster overview`",
    "lag": "`orbitmq group lag GROUP`",
    "list": "`orbitmq topic list`, `orbitmq group list` or `orbitmq cluster list`",
    "ls": "`orbitmq topic list`, `orbitmq group list` or `orbitmq cluster list`",
    "message": "`orbitmq msg`",
    "messages": "`orbitmq msg`",
    "metrics": "`orbitmq exporter`",
    "produce": "`orbitmq msg send TOPIC BODY`",
    "producer": "`orbitmq client producers`",
    "producers": "`orbitmq client producers`",
    "publish": "`orbitmq msg send TOPIC BODY`",
    "query": "`orbitmq msg query TOPIC`",
    "resend": "`orbitmq msg resend ID`",
    "reset": "`orbitmq offset reset GROUP TOPIC`",
    "run": "`orbitmq up`",
    "send": "`orbitmq msg send TOPIC BODY`",
    "server": "`orbitmq up`",
    "start": "`orbitmq up`",
    "status": "`orbitmq cluster overview`",
    "subscribe": "`orbitmq msg tail TOPIC`",
    "tail": "`orbitmq msg tail TOPIC`",
    "topics": "`orbitmq topic list`",
    "ui": "`orbitmq dashboard`",
    "user": "`orbitmq acl list`",
    "users": "`orbitmq acl list`",
    "version": "`orbitmq --version`",
    "web": "`orbitmq dashboard`",
    "where": "`orbitmq msg find ID`",
    "why": "`orbitmq group why GROUP`",
}
"""A word in the place of a command -> what to type instead."""

RUN = ("run", "start", "up")
"""Words after a noun that runs something when it is called without a verb."""

VERBS: Mapping[str, tuple[str, ...]] = {
    "add": ("create", "set", "put"),
    "change": ("alter", "set"),
    "consume": ("tail",),
    "cp": ("clone",),
    "copy": ("clone",),
    "describe": ("show", "status", "progress", "overview", "config"),
    "edit": ("alter", "set", "apply"),
    "get": ("show", "status", "progress", "list"),
    "info": ("show", "status", "progress", "overview"),
    "inspect": ("show", "status", "progress"),
    "ls": ("list",),
    "members": ("connections", "consumers"),
    "new": ("create", "add"),
    "offsets": ("lag", "show", "status"),
    "produce": ("send",),
    "publish": ("send",),
    "read": ("tail",),
    "remove": ("delete",),
    "rm": ("delete", "remove"),
    "search": ("find", "query"),
    "set": ("alter", "permission", "config"),
    "show": ("status", "progress", "overview", "list"),
    "status": ("progress", "overview", "show", "list"),
    "update": ("alter", "set", "apply"),
    "where": ("find",),
}
"""A word in the place of a verb -> the verbs that may be meant; the first that the noun has is proposed."""

RENAMED: Mapping[str, Mapping[str, str]] = {
    "check": {"--format": "--output"},
    "cluster health": {"--exit-when-healthy": "--wait"},
    "exporter": {"--namesrv": "--name-server"},
    "msg count": {"--begin": "--from", "--end": "--to"},
    "msg query": {"--begin": "--from", "--end": "--to"},
    "msg send": {"--tags": "--tag"},
    "msg tail": {"--until": "--to", "--num": "--limit"},
    "store verify": {"--json": "--output=json"},
    "top": {"--every": "--watch"},
    "wait": {"--within": "--wait"},
}
"""Command, or noun -> former names of its flags, which are accepted and not shown."""

MOVED: Mapping[str, bool] = {
    "-n": True,
    "--name-server": True,
    "--context": True,
    "--cluster": True,
    "--map-addr": True,
    "--timeout": True,
    "-o": True,
    "--output": True,
    "-q": False,
    "--quiet": False,
    "-v": False,
    "--verbose": False,
}
"""Flags of connection and output, which may stand before the command -> whether they take a value."""


def leading(args: list[str]) -> tuple[list[str], list[str]]:
    """The flags of `MOVED` at the beginning, with their values, and the rest."""
    at = 0
    while at < len(args):
        name, equals, _ = args[at].partition("=")
        is_long = name.startswith("--")
        takes_value = MOVED.get(name if is_long else args[at][:2])
        if takes_value is None:
            break
        is_whole = not takes_value or bool(equals) or (not is_long and len(args[at]) > 2)
        at += 1 if is_whole else 2
    return args[:at], args[at:]


def renamed(command: str, args: list[str]) -> list[str]:
    """The arguments of a command with the current names of its flags; what follows `--` is left alone."""
    names = RENAMED.get(command) or RENAMED.get(command.partition(" ")[0])
    if names is None:
        return args
    end = args.index("--") if "--" in args else len(args)
    return [*(_renamed(names, arg) for arg in args[:end]), *args[end:]]


def _renamed(names: Mapping[str, str], arg: str) -> str:
    name, equals, value = arg.partition("=")
    return names[name] + equals + value if name in names else arg


def proposal(word: str, noun: str, known: Iterable[str], *, runs: bool = False) -> str | None:
    """What to type instead of `word`, which is no command of `noun` ("" for the program), None if there is no idea.
    `runs` says that the noun runs something without a verb.
    """
    known = list(known)
    if runs and word in RUN:
        return f"`orbitmq {noun}`"
    if noun:
        verb = next((one for one in VERBS.get(word, ()) if one in known), None)
        found = [verb] if verb else get_close_matches(word, known, n=3)
        return " or ".join(f"`orbitmq {noun} {one}`" for one in found) or None
    found = get_close_matches(word, known, n=3)
    return COMMANDS.get(word) or _of_mqadmin(word) or " or ".join(f"`orbitmq {one}`" for one in found) or None


def _of_mqadmin(word: str) -> str | None:
    from orbitmq.cli.mqadmin.table import ROWS

    return f"`orbitmq mqadmin {word}`" if word in ROWS else None
