"""Checks the arguments of public methods by their annotations, so that a wrong one is named where it is passed.

    @checks_arguments
    def subscribe(self, topic: str, expression: Selector = "*") -> None: ...

An annotation is looked up here as written in the source, part by part; an unknown one fails the import. Methods on the
path of a message do without the decorator and check with `Argument`. Pure.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import PurePath
from types import FunctionType, MethodType
from typing import Any, TypeVar, cast

from orbitmq.client.core.model import LocalTransactionState
from orbitmq.client.core.selectors import MessageSelector
from orbitmq.errors import ConfigurationError, MessageIllegal
from orbitmq.message.model import Message, MessageExt, MessageQueue
from orbitmq.message.properties import UNPAIRED, can_travel
from orbitmq.schemas.model import Compatibility, Schema
from orbitmq.wire.bodies import ConsumeFromWhere, MessageModel

F = TypeVar("F", bound=Callable[..., Any])


class _Wrong(Exception):
    """The problem with a value, to follow its name; empty if it has another type."""


class ArgumentKind:
    """What an annotation promises."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted
        """In words."""

    def accept(self, value: Any) -> Any:
        """The value, converted if needed. _Wrong if it is invalid."""
        raise NotImplementedError


class Is(ArgumentKind):
    """An instance of a type."""

    def __init__(self, kind: type[Any] | tuple[type[Any], ...], wanted: str) -> None:
        super().__init__(wanted)
        self._kind = kind

    def accept(self, value: Any) -> Any:
        if not isinstance(value, self._kind):
            raise _Wrong
        return value


class IsText(ArgumentKind):
    """Text that can travel."""

    def accept(self, value: Any) -> Any:
        if not isinstance(value, str):
            raise _Wrong
        if not can_travel(value):
            raise _Wrong(UNPAIRED)
        return value


class IsSelector(IsText):
    """What chooses messages of a topic."""

    def accept(self, value: Any) -> Any:
        super().accept(value.expression if isinstance(value, MessageSelector) else value)
        return value


class IsNumber(ArgumentKind):
    """A number; true and false are none."""

    def __init__(self, wanted: str, *kinds: type[Any]) -> None:
        super().__init__(wanted)
        self._kinds = kinds

    def accept(self, value: Any) -> Any:
        if isinstance(value, bool):
            raise _Wrong
        if not isinstance(value, self._kinds):
            try:
                return operator.index(value)  # of numpy and its like
            except TypeError:
                raise _Wrong from None
        if value != value:
            raise _Wrong("is not a number")
        return value


class IsQueue(ArgumentKind):
    """A queue whose fields have valid types; it is a dataclass, which does not check them."""

    def accept(self, value: Any) -> Any:
        if not isinstance(value, MessageQueue):
            raise _Wrong
        for name, kind in (("topic", TEXT), ("broker_name", TEXT), ("queue_id", WHOLE)):
            try:
                kind.accept(getattr(value, name))
            except _Wrong as wrong:
                reason = str(wrong) or f"must be {kind.wanted}, not {type(getattr(value, name)).__name__}"
                raise _Wrong(f"has a {name} that {reason}") from None
        return value


class IsError(ArgumentKind):
    """A class of exceptions."""

    def accept(self, value: Any) -> Any:
        if not (isinstance(value, type) and issubclass(value, Exception)):
            raise _Wrong
        return value


class Each(ArgumentKind):
    """Any number of one kind; an iterator is read once, here."""

    def __init__(self, item: ArgumentKind, wanted: str) -> None:
        super().__init__(wanted)
        self._item = item

    def accept(self, value: Any) -> Any:
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise _Wrong
        return [self._one(item) for item in value]

    def _one(self, item: Any) -> Any:
        try:
            return self._item.accept(item)
        except _Wrong as wrong:
            reason = str(wrong) or f"must be {self._item.wanted}, not {type(item).__name__}"
            raise _Wrong(f"has an element that {reason}") from None


class Pairs(Each):
    """A mapping from one kind to whole numbers."""

    def accept(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise _Wrong
        return {self._one(key): self._whole(number) for key, number in value.items()}

    def _whole(self, number: Any) -> Any:
        try:
            return WHOLE.accept(number)
        except _Wrong as wrong:
            reason = str(wrong) or f"must be {WHOLE.wanted}, not {type(number).__name__}"
            raise _Wrong(f"has a value that {reason}") from None


class IsPlace(Pairs):
    """A place in the queues of a topic."""

    def accept(self, value: Any) -> Any:
        return value if isinstance(value, datetime) else super().accept(value)


def _is(asks: Callable[[Any], bool], body: Any) -> bool:
    try:
        return asks(body)
    except TypeError:  # a test double may have a function's attributes with other values
        return False


_RUNS_LATER = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


def _surely_takes(value: Any, count: int) -> bool:
    """Whether it is a plain function of so many arguments, also bound. To ask for a signature costs more than a send
    with a callback.
    """
    if type(value) is functools.partial:
        return not value.keywords and _surely_takes(value.func, count + len(value.args))
    if type(value) is MethodType:
        return _surely_takes(value.__func__, count + 1)
    if type(value) is not FunctionType or value.__dict__:  # which may hold another signature
        return False
    code = value.__code__
    return code.co_argcount == count and not code.co_kwonlyargcount and not code.co_flags & _RUNS_LATER


class IsFunction(ArgumentKind):
    """Something that can be called with these arguments; `may_wait` lets it be a coroutine function."""

    def __init__(self, *arguments: str, may_wait: bool) -> None:
        self.call = f"({', '.join(arguments)})"
        super().__init__(f"a function{' or coroutine function' if may_wait else ''} of {self.call}")
        self._count = len(arguments)
        self._may_wait = may_wait

    def accept(self, value: Any) -> Any:
        if _surely_takes(value, self._count):
            return value
        if not callable(value):
            raise _Wrong
        bodies = (value, getattr(value, "__call__", value))  # noqa: B004 - an object may have a coroutine as its call
        if any(_is(inspect.isgeneratorfunction, body) or _is(inspect.isasyncgenfunction, body) for body in bodies):
            raise _Wrong("is a generator function: calling it runs nothing; return instead of yield")
        if not self._may_wait and any(_is(inspect.iscoroutinefunction, body) for body in bodies):
            raise _Wrong("is a coroutine function, but its call is not awaited; use a plain function")
        try:
            signature = inspect.signature(value)
        except (TypeError, ValueError):  # a builtin or a test double without a signature
            return value
        try:
            signature.bind(*[None] * self._count)
        except TypeError as error:
            raise _Wrong(f"cannot be called with {self.call}: {error}") from None
        return value


class HasMethods(ArgumentKind):
    """An object with these methods; `attributes` must be there as well."""

    def __init__(self, wanted: str, methods: Mapping[str, IsFunction], attributes: Collection[str] = ()) -> None:
        super().__init__(wanted)
        self._methods = methods
        self._attributes = attributes

    def accept(self, value: Any) -> Any:
        if value is None or isinstance(value, type):
            raise _Wrong
        for name, kind in self._methods.items():
            method = getattr(value, name, None)
            if method is None:
                raise _Wrong
            try:
                kind.accept(method)
            except _Wrong as wrong:
                raise _Wrong(f"has a method {name} that {str(wrong) or 'is none'}") from None
        if not all(hasattr(value, name) for name in self._attributes):
            raise _Wrong
        return value


class Anything(ArgumentKind):
    """Types of the application."""

    def accept(self, value: Any) -> Any:
        return value


class Named(ArgumentKind):
    """An instance of a class that is not imported here, by its module and name."""

    def __init__(self, name: str, wanted: str) -> None:
        super().__init__(wanted)
        self._name = name

    def accept(self, value: Any) -> Any:
        if not any(f"{kind.__module__}.{kind.__qualname__}" == self._name for kind in type(value).__mro__):
            raise _Wrong
        return value


def _around_calls(arguments: Sequence[str], answered: Sequence[str]) -> dict[str, IsFunction]:
    before, after = IsFunction(*arguments, may_wait=False), IsFunction(*answered, may_wait=False)
    return {"before": before, "after": after}


TEXT = IsText("text")
WHOLE = IsNumber("a whole number", int)
NUMBER = IsNumber("a number", int, float)
QUEUE = IsQueue("a MessageQueue")
CALLBACK = IsFunction("result", "error", may_wait=False)
SELECTOR = IsFunction("queues", "message", "arg", may_wait=False)
LISTENER = IsFunction("messages", "context", may_wait=True)
NOTHING = Is(type(None), "None")

KINDS: Mapping[str, ArgumentKind] = {
    "None": NOTHING,
    "str": TEXT,
    "bytes": Is(bytes, "bytes"),
    "int": WHOLE,
    "float": NUMBER,
    "bool": Is(bool, "true or false"),
    "datetime": Is(datetime, "a datetime"),
    "timedelta": Is(timedelta, "a timedelta"),
    "object": Anything("anything"),
    "A": Anything("anything"),
    "A_contra": Anything("anything"),
    "C": Anything("anything"),
    "Iterable[str]": Each(TEXT, "several texts"),
    "Message": Is(Message, "a Message"),
    "MessageExt": Is(MessageExt, "a MessageExt"),
    "MessageFactory": IsFunction("time", may_wait=False),
    "MessageQueue": QUEUE,
    "Iterable[MessageQueue]": Each(QUEUE, "several MessageQueues"),
    "Mapping[MessageQueue, int]": Pairs(QUEUE, "a mapping from MessageQueue to whole numbers"),
    "Selector": IsSelector("text or a MessageSelector"),
    "MessageModel": Is(MessageModel, "a MessageModel"),
    "ConsumeFromWhere": Is(ConsumeFromWhere, "a ConsumeFromWhere"),
    "LocalTransactionState": Is(LocalTransactionState, "a LocalTransactionState"),
    "Schema": Is(Schema, "a Schema, as a codec has it"),
    "Compatibility": Is(Compatibility, "a Compatibility"),
    "HalfMessage": Named("orbitmq.client.transactions.HalfMessage", "a HalfMessage, as `prepare` returns it"),
    "Producer": Named("orbitmq.client.producer.Producer", "an orbitmq.client.Producer"),
    "sync.Producer": Named("orbitmq.client.sync.Producer", "an orbitmq.client.sync.Producer"),
    "Outbox": Named("orbitmq.client.outbox.outbox.Outbox", "an orbitmq.client.outbox.Outbox"),
    "sync.Outbox": Named("orbitmq.client.outbox.sync.Outbox", "an orbitmq.client.outbox.sync.Outbox"),
    "Path": Is(PurePath, "a path"),
    "OutboxLimits": Named("orbitmq.client.outbox.outbox.OutboxLimits", "OutboxLimits"),
    "Clock": Anything("a clock"),
    "StoreRule": IsFunction("message", "error", may_wait=False),
    "RedeliveryRule": IsFunction("entry", may_wait=False),
    "OnLoss": IsFunction("loss", may_wait=True),
    "SendCallback": CALLBACK,
    "QueueSelector[A]": SELECTOR,
    "Place": IsPlace(QUEUE, "a datetime or a mapping from MessageQueue to whole numbers"),
    "Handler": IsFunction("message", may_wait=True),
    "Sequence[float]": Each(NUMBER, "several numbers"),
    "Sequence[type[Exception]]": Each(IsError("a class of exceptions"), "several classes of exceptions"),
    "Listener": LISTENER,
    "OrderlyListener": LISTENER,
    "L": LISTENER,
    "IN_ORDER": LISTENER,
    "QueueListener": IsFunction("topic", "queues", "own", may_wait=True),
    "OnTopicQueues": IsFunction("topic", "queues", may_wait=True),
    "ON_QUEUES": IsFunction("queues", may_wait=True),
    "PullTask": IsFunction("queue", "context", may_wait=True),
    "sync.PullTask": IsFunction("queue", "context", may_wait=False),
    "Around": IsFunction("messages", may_wait=False),
    "ForbiddenHook": IsFunction("context", may_wait=False),
    "FilterHook": IsFunction("context", may_wait=False),
    "ReceiveHook": IsFunction("context", may_wait=False),
    "EndTransactionHook": IsFunction("context", may_wait=False),
    "SendHook": HasMethods(
        "an object with before(context) and after(context)", _around_calls(["context"], ["context"])
    ),
    "ConsumeHook": HasMethods(
        "an object with before(context) and after(context)", _around_calls(["context"], ["context"])
    ),
    "RpcHook": HasMethods(
        "an object with before(address, request) and after(address, request, response)",
        _around_calls(["address", "request"], ["address", "request", "response"]),
    ),
    "TransactionListener[A_contra]": HasMethods(
        "an object with execute(message, argument) and check(message)",
        {
            "execute": IsFunction("message", "argument", may_wait=True),
            "check": IsFunction("message", may_wait=True),
        },
    ),
    "AllocateStrategy": HasMethods(
        "an object with a name and allocate(group, client_id, queues, client_ids)",
        {"allocate": IsFunction("group", "client_id", "queues", "client_ids", may_wait=False)},
        ["name"],
    ),
    "OffsetStore": HasMethods(
        "an OffsetStore: table, open(), stored(queue), persist(queues), commit(queues), release(queue), close()",
        {
            "open": IsFunction(may_wait=True),
            "stored": IsFunction("queue", may_wait=True),
            "persist": IsFunction("queues", may_wait=True),
            "commit": IsFunction("queues", may_wait=True),
            "release": IsFunction("queue", may_wait=True),
            "close": IsFunction(may_wait=False),
        },
        ["table"],
    ),
}
"""Annotations in the methods of clients, split at `|`; `sync.` precedes names with another type there."""


class Argument:
    """A parameter of a public method, whose name is usually `name`."""

    def __init__(self, name: str, *kinds: ArgumentKind) -> None:
        self._name = name
        self._kinds = kinds

    def accept(self, value: Any) -> Any:
        """The value, converted if needed. ConfigurationError or MessageIllegal names argument, type and value."""
        reason = ""
        for kind in self._kinds:
            try:
                return kind.accept(value)
            except _Wrong as wrong:
                reason = reason or str(wrong)
        error = MessageIllegal if any(kind is KINDS["Message"] for kind in self._kinds) else ConfigurationError
        wanted = " or ".join(dict.fromkeys(kind.wanted for kind in self._kinds if kind is not NOTHING))
        raise error(f"{self._name} {reason or f'must be {wanted}, not {type(value).__name__}'}")


def _parts(annotation: str) -> list[str]:
    """`a | b[c | d]` -> `a`, `b[c | d]`."""
    parts, depth = [""], 0
    for character in annotation:
        depth += (character == "[") - (character == "]")
        if character == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip().strip('"') for part in parts]


def _kinds(annotation: str, module: str) -> list[ArgumentKind]:
    is_sync = module == "orbitmq.client.sync"
    names = _parts(annotation)
    return [KINDS.get(f"sync.{name}", KINDS[name]) if is_sync else KINDS[name] for name in names]


def checks_arguments(method: F) -> F:
    """Refuse arguments that do not match the annotations of `method`."""
    parameters = inspect.signature(method).parameters.values()
    where = method.__qualname__.rpartition(".")[2] if method.__name__ != "__init__" else method.__qualname__[:-9]
    held = {
        one.name: Argument(f"{where}: {one.name}", *_kinds(one.annotation, method.__module__))
        for one in parameters
        if one.annotation is not inspect.Parameter.empty and one.kind is not inspect.Parameter.VAR_KEYWORD
        if one.name != "self"
    }
    order = [one.name for one in parameters if one.kind is not inspect.Parameter.KEYWORD_ONLY]

    def accept(arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        given = [
            held[name].accept(value) if name in held else value for name, value in zip(order, arguments, strict=False)
        ]
        rest = arguments[len(given) :]  # too many: Python reports it
        return [*given, *rest], {k: held[k].accept(v) if k in held else v for k, v in named.items()}

    @functools.wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        taken, also = accept(arguments, named)
        return method(*taken, **also)

    @functools.wraps(method)
    async def call_and_wait(*arguments: Any, **named: Any) -> Any:
        taken, also = accept(arguments, named)
        return await method(*taken, **also)

    return cast("F", call_and_wait if inspect.iscoroutinefunction(method) else call)
