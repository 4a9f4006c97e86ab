"""The reference pages of the public API: names, signatures and docstrings, read from the sources.

`MODULES` lists the public modules; their `__all__` lists the public names. Nothing is imported: griffe reads the
sources. It must not state facts of its own about any name.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import cast

import griffe

import orbitmq

MODULES: dict[str, tuple[str, ...]] = {
    "client-api.md": (
        "orbitmq.client",
        "orbitmq.client.sync",
        "orbitmq.client.outbox",
        "orbitmq.client.outbox.sync",
        "orbitmq.client.idempotent",
        "orbitmq.client.typed",
        "orbitmq.client.typed.sync",
        "orbitmq.client.telemetry",
        "orbitmq.client.metrics",
    ),
    "testing-api.md": ("orbitmq.testing",),
    "spark-api.md": ("orbitmq.spark",),
}
"""Page -> the public modules on it. Any other module may change without notice."""

SECTIONS = (
    ("Clients", ("orbitmq.client.base", "orbitmq.client.consumer", "orbitmq.client.producer", "orbitmq.client.push",
                 "orbitmq.client.reading_consumer", "orbitmq.client.lite_pull", "orbitmq.client.pull",
                 "orbitmq.client.schedule", "orbitmq.client.schedules", "orbitmq.client.transactions",
                 "orbitmq.client.sync")),
    ("Settings", ("orbitmq.client.settings",)),
    ("Errors", ("orbitmq.errors",)),
    ("Messages, results, statuses", ("orbitmq.message", "orbitmq.client.core.model", "orbitmq.wire",
                                      "orbitmq.schemas")),
    ("Who consumes which queue", ("orbitmq.client.core.allocation",)),
    ("Hooks and callbacks", ("orbitmq.client.core.hooks", "orbitmq.client.core.transaction_end",
                             "orbitmq.client.queue_listeners", "orbitmq.client.core.outgoing")),
    ("Traces", ("orbitmq.client.core.trace",)),
)  # fmt: skip
"""Sections of a long list of names, by the module that defines them. The rest comes last."""
REST = "Further names"
ONLY = "Names"

WRAPPERS = {"blocking": "waits for", "direct": "calls", "as_future": "starts"}
"""How synchronous classes declare their methods, and what such a method does with the asynchronous one."""

_TITLES = {"client-api.md": "Names of the client library", "testing-api.md": "Names of orbitmq.testing",
           "spark-api.md": "Names of orbitmq.spark"}  # fmt: skip
_HEAD = """\
# {title}

Written by `make reference` from the sources. Names that are not here may change without notice.
"""
_SIGNATURE_WIDTH = 100


@cache
def sources() -> griffe.GriffeLoader:
    """The sources of orbitmq as griffe read them."""
    loader = griffe.GriffeLoader(search_paths=[Path(orbitmq.__file__).parents[1]], allow_inspection=False)
    loader.load("orbitmq")
    loader.resolve_aliases(implicit=True, external=False)
    return loader


def module_of(path: str) -> griffe.Module:
    """A module by its full name."""
    found = sources().modules_collection[path]
    assert isinstance(found, griffe.Module), f"{path} is a module"
    return found


def public_names(path: str) -> dict[str, griffe.Object]:
    """Name -> its definition, wherever it is, in the order of `__all__`."""
    module = module_of(path)
    return {name: defined(module[name]) for name in map(str, module.exports or ())}


def defined(found: griffe.Object | griffe.Alias) -> griffe.Object:
    """The definition of a name, behind all imports."""
    target = found.final_target if isinstance(found, griffe.Alias) else found
    assert isinstance(target, griffe.Object), "resolved"
    return target


def public_members(owner: griffe.Class) -> dict[str, griffe.Object]:
    """The public members of a class: those without underscore, and special methods with a docstring; without those for
    the package itself (`GroupMember`) and for servers.
    """
    inner = {*module_of("orbitmq.client.broker_requests").members["GroupMember"].members, "response_code"}
    return {
        name: defined(member)
        for name, member in owner.members.items()
        if name not in inner
        and (not name.startswith("_") or (_is_special(name) and member.docstring is not None))
        and not _is_of_the_class(member)
    }


def _is_of_the_class(member: griffe.Object | griffe.Alias) -> bool:
    """ClassVars of tables and the like."""
    if not isinstance(member, griffe.Attribute) or member.annotation is None:
        return False
    return "class-attribute" in member.labels and "instance-attribute" not in member.labels


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name != "__init__"


def documentation(found: griffe.Object) -> str:
    """The docstring, empty without one."""
    return inspect.cleandoc(found.docstring.value) if found.docstring else ""


def wrapped_method(member: griffe.Object) -> tuple[str, griffe.Function] | None:
    """For a synchronous method declared by an asynchronous one: the verb, and the asynchronous one."""
    if not isinstance(member, griffe.Attribute) or not isinstance(member.value, griffe.ExprCall):
        return None
    call = member.value
    kind = str(call.function)
    if kind not in WRAPPERS:
        return None
    module, _, path = str(call.arguments[0]).partition(".")
    method = defined(defined(member.module.members[module])[path])
    assert isinstance(method, griffe.Function), f"{path} is a method"
    return kind, method


# ---------------------------------------------------------------------------------------------------------------- page


def api_page(page: str) -> str:
    """One page of the reference."""
    return "".join((_HEAD.format(title=_TITLES[page]), *map(_module_text, MODULES[page])))


def _module_text(path: str) -> str:
    names = public_names(path)
    parts = [f"\n## {path}\n\n{documentation(module_of(path))}\n"]
    sections = list(_in_sections(names))
    parts += [_contents(path, title, members) for title, members in sections if len(names) > 1]
    for title, members in sections:
        parts.append(f"\n### {title if len(sections) > 1 else ONLY}\n")
        parts += [_name_text(path, name, found) for name, found in members]
    return "".join(parts)


def _contents(path: str, title: str, members: list[tuple[str, griffe.Object]]) -> str:
    links = ", ".join(f"[{name}](#{_heading(path, name).replace('.', '').lower()})" for name, _ in members)
    return f"\n{'Names' if title == REST else title}: {links}\n"


def _heading(module: str, name: str) -> str:
    """A name that occurs twice on a page needs its module; names of `orbitmq.client` need none."""
    return name if module.count(".") == 1 else f"{module.rpartition('.')[2]}.{name}"


def _in_sections(names: dict[str, griffe.Object]) -> Iterator[tuple[str, list[tuple[str, griffe.Object]]]]:
    left = dict(names)
    for title, rooms in SECTIONS:
        members = [(name, found) for name, found in left.items() if _stands_in(found, rooms)]
        if members:
            yield title, _classes_first(members)
        for name, _ in members:
            del left[name]
    if left:
        yield REST, _classes_first(list(left.items()))


def _classes_first(members: list[tuple[str, griffe.Object]]) -> list[tuple[str, griffe.Object]]:
    return sorted(members, key=lambda member: isinstance(member[1], griffe.Attribute))


def _stands_in(found: griffe.Object, rooms: Sequence[str]) -> bool:
    return any(found.path.startswith(f"{room}.") for room in rooms)


def _name_text(module: str, name: str, found: griffe.Object) -> str:
    title = f"\n#### {_heading(module, name)}\n"
    if isinstance(found, griffe.Class):
        return f"{title}{_class_text(module, name, found)}"
    if isinstance(found, griffe.Function):
        return f"{title}{_function_text(module, name, found)}"
    assert isinstance(found, griffe.Attribute), f"{name} is a class, a function or a value"
    value = str(found.value).replace("'", '"')
    return f"{title}\n{_code(f'{name} = {value}')}{_paragraph(documentation(found))}"


def _class_text(module: str, name: str, found: griffe.Class) -> str:
    text = f"{_constructor(name, found)}{_bases(module, found)}{_paragraph(documentation(found))}"
    if (made := found.members.get("__init__")) is not None and made.docstring is not None:
        text += _paragraph(documentation(defined(made)))
    members = public_members(found)
    fields = {key: member for key, member in members.items() if _is_field(member)}
    if any(str(base).startswith("TypedDict") or str(base).endswith("Settings") for base in found.bases):
        return f"{text}\nThe keywords are in [settings](client.md).\n"
    if fields:
        text += _fields_table(found, fields)
    wrapped = {key: method for key, member in members.items() if (method := wrapped_method(member)) is not None}
    if wrapped:
        text += _wrapped_table(wrapped)
    return text + "".join(
        _function_text(module, f"{name}.{key}", member)
        for key, member in members.items()
        if isinstance(member, griffe.Function)
    )


def _is_field(member: griffe.Object) -> bool:
    return isinstance(member, griffe.Attribute) and wrapped_method(member) is None


def _constructor(name: str, found: griffe.Class) -> str:
    made = found.members.get("__init__")
    if made is None or _is_enumeration(found) or _is_protocol(found) or _is_base(found):
        return ""
    function = defined(made)
    assert isinstance(function, griffe.Function), "__init__ is a function"
    for call in (one.value for one in function.decorators):
        if isinstance(call, griffe.ExprCall) and str(call.function) == "arguments_of":
            module, _, kind = str(call.arguments[0]).partition(".")
            return _constructor(name, cast("griffe.Class", defined(defined(found.module.members[module])[kind])))
    return f"\n{_code(_signature(name, function, returns=False))}"


def _is_base(found: griffe.Class) -> bool:
    return any("abstractmethod" in _labels(member) for member in found.all_members.values())


def _labels(member: griffe.Object | griffe.Alias) -> set[str]:
    return {str(label) for label in member.labels} | {
        str(decorator.value) for decorator in getattr(member, "decorators", ())
    }


def _is_enumeration(found: griffe.Class) -> bool:
    return any(str(base) in ("Enum", "IntEnum") for base in found.bases)


def _is_protocol(found: griffe.Class) -> bool:
    return any(str(base).startswith("Protocol") for base in found.bases)


def _bases(module: str, found: griffe.Class) -> str:
    """The public base classes, whose members are not repeated."""
    public = {target.path: name for name, target in public_names(module).items()}
    bases = [public[base.canonical_path] for base in map(_base_name, found.bases) if base.canonical_path in public]
    if not bases:
        return ""
    links = " and ".join(f"[`{base}`](#{_heading(module, base).replace('.', '').lower()})" for base in bases)
    return f"\nHas the members of {links}, too.\n"


def _base_name(base: griffe.Expr | str) -> griffe.Expr:
    assert isinstance(base, griffe.Expr), "a base class is an expression"
    return base.left if isinstance(base, griffe.ExprSubscript) and isinstance(base.left, griffe.Expr) else base


def _fields_table(owner: griffe.Class, fields: dict[str, griffe.Object]) -> str:
    if _is_enumeration(owner):
        members = [(f"`{name}`", _member_meaning(field)) for name, field in fields.items()]
        return _table(("member", "meaning"), members)
    rows = [(f"`{name}`", _type(field), _line(documentation(field))) for name, field in fields.items()]
    return _table(("member", "type", "meaning"), rows)


def _member_meaning(field: griffe.Object) -> str:
    assert isinstance(field, griffe.Attribute), "an attribute"
    value = ast.literal_eval(str(field.value)) if field.value is not None else ""
    shown = value if isinstance(value, str) else f"`{value}`"
    return _line(" ".join(filter(None, (shown, documentation(field)))))


def _type(field: griffe.Object) -> str:
    assert isinstance(field, griffe.Attribute), "an attribute"
    shown = field.annotation if field.annotation is not None else _assigned(field)
    return f"`{shown}`" if shown else ""


def _assigned(field: griffe.Attribute) -> object:
    """The type of an attribute without annotation that the constructor sets: of a parameter, of a literal, of a
    call."""
    value = str(field.value).rpartition(" or ")[2]
    made = field.parent.members.get("__init__") if field.parent is not None else None
    if made is not None and isinstance(function := defined(made), griffe.Function) and value in function.parameters:
        return function.parameters[value].annotation
    try:
        return type(ast.literal_eval(value)).__name__
    except ValueError:
        return value.partition("(")[0]


def _wrapped_table(wrapped: dict[str, tuple[str, griffe.Function]]) -> str:
    rows = [(f"`{name}`", f"{WRAPPERS[kind]} `{_short(method)}`") for name, (kind, method) in wrapped.items()]
    return _table(("method", "description"), rows)


def _short(method: griffe.Function) -> str:
    return ".".join(method.path.split(".")[-2:])


def _function_text(module: str, name: str, found: griffe.Function) -> str:
    shown = found.overloads or [found]
    code = "\n".join(_signature(name.rpartition(".")[2], one) for one in shown)
    title = f"\n##### {_heading(module, name)}\n" if "." in name else ""
    return f"{title}\n{_code(code)}{_paragraph(documentation(found))}"


def _signature(name: str, found: griffe.Function, *, returns: bool = True) -> str:
    parameters = _parameters(found)
    prefix = "async " if "async" in found.labels else ""
    result = f" -> {found.returns}" if returns and found.returns is not None else ""
    line = f"{prefix}{name}({', '.join(parameters)}){result}"
    if len(line) <= _SIGNATURE_WIDTH:
        return line
    return f"{prefix}{name}(\n" + "".join(f"    {parameter},\n" for parameter in parameters) + f"){result}"


def _parameters(found: griffe.Function) -> list[str]:
    """As written, without self and without unused stars."""
    parts: list[str] = []
    given = [one for one in found.parameters if one.name not in ("self", "cls")]
    only = [one for one in given if one.kind is griffe.ParameterKind.positional_only]
    starred = any(one.kind is griffe.ParameterKind.var_positional for one in given)
    for one in given:
        if one.kind is griffe.ParameterKind.keyword_only and not starred:
            parts.append("*")
            starred = True
        parts.append(_parameter(one))
        if only and one is only[-1]:
            parts.append("/")
    return parts


def _parameter(one: griffe.Parameter) -> str:
    stars = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}
    text = f"{stars.get(one.kind, '') if one.kind else ''}{one.name}"
    if one.annotation is not None:
        text += f": {one.annotation}"
    is_given = one.default is not None and one.kind not in stars
    return f"{text} = {_default(one)}".replace("'", '"') if is_given else text


def _default(one: griffe.Parameter) -> str:
    """As written, but a module constant as its value, because readers cannot look up its name."""
    if isinstance(one.default, griffe.Expr):
        with contextlib.suppress(KeyError):
            found = defined(sources().modules_collection[one.default.canonical_path])
            if isinstance(found, griffe.Attribute) and isinstance(found.parent, griffe.Module):
                return str(found.value)
    return str(one.default)


# ----------------------------------------------------------------------------------------------------------- markdown


def _code(text: str) -> str:
    return f"```python\n{text}\n```\n"


def _paragraph(text: str) -> str:
    return f"\n{text}\n" if text else ""


def _line(text: str) -> str:
    return " ".join(text.split())


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n" + "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)
