"""What the public names promise, for tests of that: their types as they resolve, their texts, the errors they raise."""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import griffe

from orbitmq import errors
from reference import api

MODULES = [module for modules in api.MODULES.values() for module in modules]

# What modules import for type checkers alone, because only those have it who want it.
_LATE = {
    "orbitmq.client.producer": {"Outbox": "orbitmq.client.outbox.Outbox"},
    "orbitmq.client.transactions": {"Outbox": "orbitmq.client.outbox.Outbox"},
    "orbitmq.client.sync": {"Outbox": "orbitmq.client.outbox.sync.Outbox"},
    "orbitmq.client.topic_read": {"Table": "pyarrow.Table"},
    "orbitmq.spark.lag_listener": {"Metric": "prometheus_client.metrics_core.Metric"},
    "orbitmq.client.metrics": {
        "Outbox": "orbitmq.client.outbox.Outbox",
        "SyncOutbox": "orbitmq.client.outbox.sync.Outbox",
    },
    "orbitmq.client.idempotent": {
        "CoroutineListener": "orbitmq.client.workers.CoroutineListener",
        "FunctionListener": "orbitmq.client.workers.FunctionListener",
    },
}


def objects() -> Iterator[tuple[str, str, object]]:
    """Module, name and object of every public name."""
    for path in MODULES:
        module = importlib.import_module(path)
        for name in module.__all__:
            yield path, name, getattr(module, name)


# ---------------------------------------------------------------------------------------------------------------- types


def holds_any(found: object, seen: frozenset[int] = frozenset()) -> bool:
    """Whether a type says nothing somewhere inside."""
    if found is Any:
        return True
    if id(found) in seen or isinstance(found, (str, int, bytes)):
        return False
    if isinstance(found, typing.TypeVar):
        parts: tuple[object, ...] = (*found.__constraints__, *filter(None, (found.__bound__,)))
    elif isinstance(found, list):
        parts = tuple(found)
    else:
        parts = typing.get_args(found)
    return any(holds_any(part, seen | {id(found)}) for part in parts)


def types_of(name: str, found: object) -> Iterator[tuple[str, object]]:
    """Where and what: every type in the signatures and attributes of a public object; of an alias the alias itself."""
    if inspect.isclass(found):
        yield from _class_types(name, found)
    elif inspect.isroutine(found):
        yield from ((f"{name}({part})", hint) for part, hint in hints(found).items())
    else:
        yield name, found


def _class_types(name: str, owner: type) -> Iterator[tuple[str, object]]:
    if owner.__module__.startswith("orbitmq"):
        yield from ((f"{name}.{field}", hint) for field, hint in hints(owner).items() if not field.startswith("_"))
    for key, member in vars(owner).items():
        if key.startswith("_") and key not in ("__init__", "__call__", "__len__", "__iter__", "__aiter__"):
            continue
        function = inspect.unwrap(member.fget if isinstance(member, property) else getattr(member, "__func__", member))
        if inspect.isfunction(function):
            for one in (function, *typing.get_overloads(function)):
                yield from ((f"{name}.{key}({part})", hint) for part, hint in hints(one).items())


def hints(found: Any) -> dict[str, object]:
    """Resolved annotations."""
    late = {name: path.rpartition(".") for name, path in _LATE.get(found.__module__, {}).items()}
    names = {name: getattr(importlib.import_module(module), last) for name, (module, _, last) in late.items()}
    return typing.get_type_hints(found, localns=names)


# --------------------------------------------------------------------------------------------------------------- errors


@dataclass(frozen=True)
class Call:
    """A public function or method, and the texts in which its errors may stand."""

    path: str
    function: griffe.Function
    own: str
    """Its own text, and those of the calls it refers to."""
    general: str = ""
    """The texts of its class."""

    @property
    def text(self) -> str:
        return f"{self.own}\n{self.general}"


def callables() -> Iterator[Call]:
    """Every public function and method."""
    for path in MODULES:
        for name, found in api.public_names(path).items():
            if isinstance(found, griffe.Function):
                yield Call(f"{path}.{name}", found, api.documentation(found))
            elif isinstance(found, griffe.Class) and found.path.startswith("orbitmq."):
                yield from _methods(f"{path}.{name}", found)


def _methods(path: str, owner: griffe.Class) -> Iterator[Call]:
    members = {**api.public_members(owner), "__init__": owner.members.get("__init__")}
    general = "\n".join(api.documentation(one) for one in (owner, *_bases(owner)))
    for name, member in members.items():
        if isinstance(member, griffe.Function):
            text = api.documentation(member)
            yield Call(f"{path}.{name}", member, f"{text}\n{_referred(owner, text)}", general)


def _bases(owner: griffe.Class) -> Iterator[griffe.Class]:
    yield from (base for base in owner.mro() if base.path.startswith("orbitmq."))


def _referred(owner: griffe.Class, text: str) -> str:
    """The texts of the methods that a text names: `fails as `send` does`."""
    named = [name for name in text.split("`")[1::2] if name.isidentifier()]
    found = [one.members[name] for name in named for one in (owner, *_bases(owner)) if name in one.members]
    return "\n".join(api.documentation(api.defined(one)) for one in found)


def raised(function: griffe.Function) -> set[str]:
    """The errors of orbitmq that a function raises itself, or a private function of its class or module for it."""
    return _raised(function.path)


@cache
def _raised(path: str, seen: frozenset[str] = frozenset()) -> set[str]:
    collection = api.sources().modules_collection
    function = collection[path]
    tree = ast.parse(textwrap.dedent(function.source))
    found = {
        node.exc.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name)
    }
    for helper in _helpers(function, tree):
        if helper.path not in seen:
            found |= _raised(helper.path, seen | {path})
    return {name for name in found if hasattr(errors, name)}


def _helpers(function: griffe.Function, tree: ast.AST) -> Iterator[griffe.Function]:
    owner, module = function.parent, function.module
    for node in ast.walk(tree):
        found: griffe.Object | griffe.Alias | None = None
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            if isinstance(owner, griffe.Class) and node.attr.startswith("_"):
                found = next(
                    (one.members[node.attr] for one in (owner, *_bases(owner)) if node.attr in one.members), None
                )
        elif isinstance(node, ast.Name) and node.id.startswith("_"):
            found = module.members.get(node.id)
        if isinstance(found, griffe.Function):
            yield found


def is_named(error: str, text: str) -> bool:
    """Whether a text names an error, or one of those it is a kind of."""
    kinds = [kind.__name__ for kind in getattr(errors, error).__mro__]
    return any(kind in text for kind in kinds if kind not in ("Exception", "BaseException", "object"))


def names_an_error(text: str) -> bool:
    """Whether a text says what is raised, or that nothing is."""
    named = any(
        inspect.isclass(one) and issubclass(one, Exception) and name in text for name, one in vars(errors).items()
    )
    return named or "raise" in text.lower() or "TimeoutError" in text or "ValueError" in text
