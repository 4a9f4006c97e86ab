"""Where in the sources errors, remedies and remarks are, as templates: `orbitmq.runtime.error_texts` recognises them.

Knows only the syntax of Python. In the rooms that speak to people every sentence counts, in the others those of errors
that are raised.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SPEAKING = (
    "admin", "cli", "client", "dashboard/app.py", "dashboard/changes.py", "dashboard/pages", "runtime/options.py",
    "net", "filter", "store/tools", "wire/frame.py",
)  # fmt: skip
"""Rooms of which every sentence is for people."""
RAISING = (
    "agreement", "broker", "dashboard", "errors.py", "lake", "message", "metrics", "namesrv",
    "operations", "pipeline", "proxy/proxy.py", "replication", "runtime", "schemas", "store",
)  # fmt: skip
"""Rooms whose errors reach people."""
ONLY_RAISING = ("cli/message_flags.py", "cli/mqadmin", "cli/nouns")
"""Of the former: RocketMQ's output, which scripts parse, and help, which has texts of its own."""
SILENT = (
    "cli/completion.py", "cli/flags.py", "cli/lazy_commands.py", "cli/main.py", "cli/verbs.py",
    "cli/words.py", "client/metrics.py", "net/connection_options.py", "net/tls_options.py",
)  # fmt: skip
"""Help, scripts of shells, names of commands, and what the reference says of options and metrics."""
SHORT = ("admin/doctor.py", "admin/message_history.py", "admin/search.py", "admin/traces.py", "admin/tracks.py")
"""Modules whose sentences may be of two words."""
OF_TYPER = (
    "Missing option {option}.", "Missing argument {argument}.", "No such option: {option}",
    "No such option: {option} (Possible options: {options})", "Invalid value for {name}: {reason}",
    "Invalid value: {reason}", "{value} is not a valid {kind}.", "{value} is not in the range {range}.",
    "{value} is not one of {choices}.", "{value} is not a valid boolean. Recognized values: {values}",
    "Option {option} requires an argument.", "Option {option} does not take a value.",
    "Got unexpected extra argument ({value})", "Got unexpected extra arguments ({values})",
    "Got unexpected extra argument(s) ({values})", "Missing command.",
    "No such command {name}.", "No such command {name}. Did you mean {names}?",
)  # fmt: skip
"""Typer does not translate its own errors."""
OF_COUNTS = (
    "{n} attempt", "{n} attempts", "{n} entries", "{n} entry", "{n} file", "{n} files", "{n} key", "{n} keys",
    "{n} message", "{n} messages", "{n} queue", "{n} queues", "{n} time", "{n} times",
)  # fmt: skip
"""Numbers with their nouns, within other texts: `runtime.error_texts` takes `n` for digits only."""
OF_SYSTEM = (
    "Address already in use", "Connection refused", "Is a directory", "Name or service not known",
    "Network is unreachable", "No route to host", "No space left on device", "No such file or directory",
    "Not a directory", "Permission denied", "Read-only file system",
)  # fmt: skip
"""Errors of the operating system that people meet."""
OF_SCHEMAS = (
    "version {version}", "field {field}", "the body", "is new", "was optional", "any value",
)  # fmt: skip
"""Where a schema is not compatible, and values of the rules that say why."""
OF_PEERS = ("CODE: {code} DESC: {reason} FROM: {address}", "CODE: {code} DESC: {reason}")
"""How RocketMQ's clients write errors, and ours."""

# Calls whose strings are no errors: logs stay English, and some are no sentences.
_QUIET = {
    "", "N", "Option", "Argument", "TypeVar", "command", "compile", "findall", "fullmatch", "getLogger", "gettext",
    "join", "partition", "rpartition", "split", "startswith", "import_module",
}  # fmt: skip
_LOGS = {"debug", "info", "warning", "error", "exception"}
"""Methods of a logger. A plain `warning(…)` makes a finding."""
_FORMAT = re.compile(r"\{\w+\}")
_WORD = re.compile(r"[(`']*[A-Za-z]?[a-z']+[,;:.)'`?]*")
_NO_SENTENCE = re.compile(
    r"event=|.* \| None$|(?:.*\n){4}|^# |\x1b|^https?:|^\+?[A-Z][A-Z /0-9%.]*=|\bimport \w"
    r"|^orbitmq [a-z-]+(?: [a-z-]+)?(?: |$)"
)


def templates(package: Path) -> Iterator[tuple[str, int, str]]:
    """File, line and template of each."""
    for room in (*SPEAKING, *RAISING):
        place = package / room
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            name = path.relative_to(package).as_posix()
            if name not in SILENT:
                is_speaking = room in SPEAKING and not name.startswith(ONLY_RAISING)
                tree = ast.parse(path.read_text(encoding="utf-8"))
                for line, text in _in_module(tree, is_speaking=is_speaking, is_short=name in SHORT):
                    yield name, line, text
    yield from (("errors.py", 0, text) for text in (*OF_TYPER, *OF_SCHEMAS, *OF_PEERS, *OF_COUNTS, *OF_SYSTEM))


def _in_module(tree: ast.Module, *, is_speaking: bool, is_short: bool) -> Iterator[tuple[int, str]]:
    yield from _actions(tree)
    roots: list[ast.AST] = [tree] if is_speaking else list(_raised(tree))
    for root in roots:
        yield from _sentences(root, is_short=is_short)


def _actions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The titles of plans, and what their steps do: two words are enough."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="Step"), args=[_, action, *_]):
                found = _alternatives(action, {})
            case ast.Call(func=ast.Name(id="Plan" | "OffsetPlan"), args=[title, *_]):
                found = _alternatives(title, {})
            case ast.Call(func=ast.Name(id="Difference"), args=[_, rule]):  # `Refusal` writes the field before it
                found = [one if one.startswith("{") else f"{{where}} {one}" for one in _alternatives(rule, {})]
            case ast.Assign(targets=[ast.Name(id="action" | "how")], value=action):
                found = _alternatives(action, {})
            case ast.Call(func=ast.Name(id="_put" | "_change"), args=arguments):
                found = [text for one in arguments for text in _alternatives(one, {})]
            case ast.FunctionDef(name="described"):
                returns = [one.value for one in ast.walk(node) if isinstance(one, ast.Return) and one.value]
                found = [text for one in returns for text in _alternatives(one, {})]
            case _:
                continue
        yield from ((node.lineno, text) for text in found if " " in text)


def _raised(tree: ast.Module) -> Iterator[ast.AST]:
    """What is raised, and what was assigned to a name that is raised."""
    raised = [one for one in ast.walk(tree) if isinstance(one, ast.Raise) or _fails(one)]
    names = {one.id for root in raised for one in ast.walk(root) if isinstance(one, ast.Name)}
    yield from raised
    for one in ast.walk(tree):
        match one:
            case ast.Assign(targets=[ast.Name(id=name)]) if name in names:
                yield one


def _fails(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _name(node.func) == "fail"


def _sentences(root: ast.AST, *, is_short: bool) -> Iterator[tuple[int, str]]:
    if isinstance(root, ast.Assert) or (isinstance(root, ast.Call) and _is_quiet(root.func)):
        return
    if isinstance(root, ast.expr) and (found := _alternatives(root, {})):
        for text in found:
            if _is_sentence(text, is_short=is_short):
                yield root.lineno, text.strip()
        for inner in _varying(root):
            yield from _sentences(inner, is_short=is_short)
        return
    for child in ast.iter_child_nodes(root):
        is_docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
        if not is_docstring:
            yield from _sentences(child, is_short=is_short)


def _is_quiet(function: ast.expr) -> bool:
    return _name(function) in (_QUIET | _LOGS if isinstance(function, ast.Attribute) else _QUIET)


def _is_sentence(text: str, *, is_short: bool) -> bool:
    """At least three words or values, of which two are words: actions and names of commands or columns are none. In
    stories of messages and verdicts, two are enough.
    """
    words = text.split()
    if is_short:
        return len(words) > 1 and any(map(_WORD.fullmatch, words)) and not _NO_SENTENCE.search(text)
    letters = len(re.sub(r"\{\w+\}|[^A-Za-z]", "", text))
    return (
        letters > 6
        and len(words) > 2
        and sum(map(bool, map(_WORD.fullmatch, words))) > 1
        and not _NO_SENTENCE.search(text)
    )


def _alternatives(node: ast.expr, names: dict[str, str]) -> list[str]:
    """What a text may be: one template, or more if conditions decide about parts of it. Empty if it is no text.
    `names` are those of its values so far.
    """
    match node:
        case ast.Constant(value=str(text)):
            return [text if _FORMAT.search(text) else text.replace("{", "{{").replace("}", "}}")]  # of str.format
        case ast.JoinedStr(values=parts):
            return ["".join(_part(one, names) for one in parts)]
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            first, second = _alternatives(left, names), _alternatives(right, names)
            if first and second:
                return [one + other for one in first for other in second]
            return _completed(first, right, second, left, names)
        case ast.IfExp(body=one, orelse=other) if _alternatives(one, {}) and _alternatives(other, {}):
            return _alternatives(one, names) + _alternatives(other, names)
    return []


def _completed(
    first: list[str], right: ast.expr, second: list[str], left: ast.expr, names: dict[str, str]
) -> list[str]:
    """A sum of which one side is text, and the other a value."""
    if first:
        return [one + _value(right, names) for one in first]
    return [_value(left, names) + one for one in second]


def _part(node: ast.expr, names: dict[str, str]) -> str:
    if isinstance(node, ast.FormattedValue):
        return _value(node.value, names)
    return "".join(_alternatives(node, names))


def _value(node: ast.expr, names: dict[str, str]) -> str:
    expression = ast.unparse(node)
    if expression not in names:
        name, taken = _name(node) or "value", set(names.values())
        names[expression] = next(
            one for one in (name, *(f"{name}{number}" for number in range(2, 99))) if one not in taken
        )
    return f"{{{names[expression]}}}"


def _varying(node: ast.expr) -> Iterator[ast.expr]:
    """The expressions within a text, which may have texts of their own."""
    match node:
        case ast.JoinedStr(values=parts):
            yield from (one.value for one in parts if isinstance(one, ast.FormattedValue))
        case ast.BinOp(left=left, right=right):
            for side in (left, right):
                yield from _varying(side) if _alternatives(side, {}) else [side]
        case ast.IfExp(body=one, orelse=other):
            for side in (one, other):
                yield from _varying(side)


def _name(node: ast.expr) -> str:
    """What an expression is about, in a word."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.strip("_")
        case ast.Call(args=[first, *_]) if _name(first):
            return _name(first)
        case ast.Call(func=called):
            return _name(called)
        case (
            ast.Subscript(value=value) | ast.BoolOp(values=[value, *_]) | ast.IfExp(body=value) | ast.BinOp(left=value)
        ):
            return _name(value)
        case ast.GeneratorExp(elt=value) | ast.ListComp(elt=value):
            return _name(value)
    return ""
