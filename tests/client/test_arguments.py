"""A wrong argument is refused by an error of orbitmq that names it, what is wanted and what was given."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from unittest.mock import AsyncMock, MagicMock, Mock, create_autospec

import pytest

from orbitmq import client
from orbitmq.client import (
    ConfigurationError,
    HalfMessage,
    LocalTransactionState,
    Message,
    MessageError,
    MessageExt,
    MessageIllegal,
    MessageQueue,
    MessageSelector,
    OrbitMQError,
    SendResult,
    SendStatus,
    sync,
)
from orbitmq.client.core.arguments import KINDS
from orbitmq.client.outbox import Outbox
from orbitmq.client.outbox.sync import Outbox as SyncOutbox
from orbitmq.client.settings import PushSettings, TransactionSettings, options_of
from orbitmq.client.sync_wrapper import run as run_there
from orbitmq.message.timers import RecallHandle
from orbitmq.schemas.model import Schema, SchemaKind
from tests.client.test_sync import FOR_THE_INSTANCE
from tests.support.fake_system import BROKER, FakeSystem, fake_system
from tests.support.loops import run

HALF_A_PAIR = "a\ud800"
QUEUE = MessageQueue("T", BROKER, 0)


class Listener:
    """Of transactions."""

    def execute(self, _message: Message, _argument: object) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE

    def check(self, _message: Message) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE


def _nothing(_messages: object, _context: object) -> None:
    """A listener."""


WRONG: dict[str, Callable[[], object]] = {
    "None": lambda: None,
    "true": lambda: True,
    "int": lambda: 5,
    "float": lambda: 1.5,
    "nan": lambda: math.nan,
    "bytes": lambda: b"x",
    "half a surrogate pair": lambda: HALF_A_PAIR,
    "object": object,
    "list of objects": lambda: [object()],
    "generator": lambda: (Message("T", b"x") for _ in range(2)),
    "dict": lambda: {"a": "b"},
    "function without parameters": lambda: lambda: None,
    "queue of other types": lambda: MessageQueue(5, b"x", "0"),  # type: ignore[arg-type]
    "queue of half a pair": lambda: MessageQueue("T", HALF_A_PAIR, 0),
    "coroutine function": lambda: _never,
    "generator function": lambda: _yields,
}


async def _never() -> None: ...


def _yields(_a: object, _b: object = None, _c: object = None) -> Iterator[None]:
    yield


RIGHT = {
    "None": {"None"},
    "int": {"int"},
    "float": {"int", "float"},
    "bool": {"true"},
    "bytes": {"bytes"},
    "object": set(WRONG),
    "A": set(WRONG),
    "A_contra": set(WRONG),
    "Iterable[str]": {"dict"},
}
"""Which of these are not wrong for an annotation."""

GOOD: dict[str, Callable[[], object]] = {
    "self": lambda: None,
    "group": lambda: "g",
    "topic": lambda: "T",
    "message": lambda: Message("T", b"x"),
    "messages": lambda: [Message("T", b"x")],
    "queue": lambda: QUEUE,
    "queues": lambda: [QUEUE],
    "timestamp_ms": lambda: 0,
    "timeout": lambda: 0.1,
    "msg_id": lambda: "0" * 32,
    "recall_handle": lambda: RecallHandle("T", "b", 1, "u").encode(),
    "key": lambda: "k",
    "namesrv_addr": lambda: "127.0.0.1:1",
    "hook": lambda: None,
    "callback": lambda: _nothing,
    "around": lambda: None,
    "listener": lambda: _nothing,
    "half": lambda: HalfMessage(Message("T", b"x"), SendResult(SendStatus.SEND_OK, "", "", QUEUE, 0)),
    "path": lambda: "outbox",
    "state": lambda: LocalTransactionState.COMMIT_MESSAGE,
    "expression": lambda: "*",
    "offset": lambda: 0,
    "max_num": lambda: 1,
    "count": lambda: 1,
    "schema": lambda: Schema(SchemaKind.JSON, "{}"),
}
"""What the other parameters get, those without a default."""


def _good(parameter: inspect.Parameter) -> object:
    if parameter.annotation == "MessageExt":
        return MessageExt("T", b"x", broker_name=BROKER)
    return Listener() if "TransactionListener" in parameter.annotation else GOOD[parameter.name]()


NAMES = ("Producer", "TransactionProducer", "PushConsumer", "LitePullConsumer", "PullConsumer", "PullSchedule")
ASYNC: list[type[Any]] = [getattr(client, name) for name in NAMES]
SYNC: list[type[Any]] = [getattr(sync, name) for name in NAMES]


def _made(kind: type[Any], address: str) -> Any:
    if issubclass(kind, client.TransactionProducer | sync.TransactionProducer):
        return kind("g", address, listener=Listener())
    made = kind("g", address)
    if issubclass(kind, client.PushConsumer | sync.PushConsumer):
        made.set_listener(_nothing)
    return made


def _methods(kind: type[Any]) -> list[str]:
    """Those with parameters; what a client's instance calls is no application's."""
    public = [name for name in dir(kind) if not name.startswith("_") and name not in FOR_THE_INSTANCE]
    return [name for name in public if inspect.isroutine(getattr(kind, name)) and len(_parameters(kind, name)) > 0]


def _parameters(kind: type[Any], name: str) -> list[inspect.Parameter]:
    found = inspect.signature(getattr(kind, name)).parameters.values()
    return [one for one in found if one.name != "self" and one.kind is not inspect.Parameter.VAR_KEYWORD]


def _cases(kind: type[Any], name: str) -> Iterator[tuple[str, str, dict[str, object]]]:
    """(parameter, what is wrong with it, all arguments)."""
    for wrong in _parameters(kind, name):
        accepted = {right for part in str(wrong.annotation).split(" | ") for right in RIGHT.get(part, set())}
        for label in WRONG.keys() - accepted:
            others = [one for one in _parameters(kind, name) if one.default is inspect.Parameter.empty]
            arguments = {one.name: _good(one) for one in others if one.name != wrong.name}
            yield wrong.name, label, {**arguments, wrong.name: WRONG[label]()}


def _refused(name: str, parameter: str, label: str, error: BaseException | None) -> str | None:
    """What is wrong with how it was refused."""
    if not isinstance(error, ConfigurationError | MessageError):
        return f"{name}({parameter}={label}): {error!r}"
    if parameter.removesuffix("s") not in str(error):
        return f"{name}({parameter}={label}) does not name it: {error}"
    return None


@pytest.mark.parametrize("kind", ASYNC, ids=lambda kind: kind.__name__)
def test_every_method_refuses_wrong_arguments_and_names_them(kind: type[Any]) -> None:
    async def outcome(call: Callable[[], Any]) -> BaseException | None:
        try:
            found = call()
            if inspect.isawaitable(found):
                await found
        except BaseException as error:
            return error
        return None

    async def scenario() -> tuple[int, list[str]]:
        count, bad = 0, []
        async with fake_system() as system, _made(kind, system.address) as running:
            for name in _methods(kind):
                for parameter, label, arguments in _cases(kind, name):
                    count += 1
                    error = await outcome(lambda: getattr(running, name)(**arguments))  # noqa: B023 - awaited here
                    bad += filter(None, [_refused(name, parameter, label, error)])
            assert not any(connection._calls for connection in system.connections)
        return count, bad

    count, bad = run(scenario())
    assert not bad
    assert count > 300


@pytest.mark.parametrize("kind", SYNC, ids=lambda kind: kind.__name__)
def test_every_synchronous_method_refuses_wrong_arguments_and_names_them(kind: type[Any]) -> None:
    def outcome(call: Callable[[], Any]) -> BaseException | None:
        try:
            found = call()
            if isinstance(found, concurrent.futures.Future):
                found.result(10)
        except BaseException as error:
            return error
        return None

    context = fake_system()
    system: FakeSystem = run_there(context.__aenter__())
    count, bad = 0, []
    try:
        with _made(kind, system.address) as running:
            for name in _methods(kind):
                for parameter, label, arguments in _cases(kind, name):
                    count += 1
                    error = outcome(lambda: getattr(running, name)(**arguments))  # noqa: B023 - called here
                    bad += filter(None, [_refused(name, parameter, label, error)])
    finally:
        run_there(context.__aexit__(None, None, None))
    assert not bad
    assert count > 300


@pytest.mark.parametrize(
    "kind", [*ASYNC, *SYNC, Outbox, SyncOutbox], ids=lambda kind: f"{kind.__module__}.{kind.__name__}"
)
def test_every_constructor_refuses_wrong_arguments_and_names_them(kind: type[Any]) -> None:
    bad = []
    for parameter, label, arguments in _cases(kind, "__init__"):
        if parameter == "clock":
            continue  # for tests
        try:
            kind(**arguments)
        except BaseException as error:
            bad += filter(None, [_refused(kind.__name__, parameter, label, error)])
        else:
            bad.append(f"{kind.__name__}({parameter}={label}) is taken")
    assert not bad


def _stored(**wrong: Any) -> Message:
    """A message whose attributes were set to something else."""
    message = Message("T", b"x")
    for name, value in wrong.items():
        setattr(message, name, value)
    return message


MESSAGES: dict[str, tuple[Callable[[], object], str]] = {
    "no message": (lambda: b"x", "message must be a Message, not bytes"),
    "text": (lambda: "x", "message must be a Message, not str"),
    "tags": (lambda: Message("T", b"x", tags=5), "tags must be text, not int"),  # type: ignore[arg-type]
    "tags of bytes": (lambda: Message("T", b"x", tags=b""), "tags must be text, not bytes"),  # type: ignore[arg-type]
    "keys": (lambda: Message("T", b"x", keys=7), "keys must be text or several texts, not int"),  # type: ignore[arg-type]
    "keys of bytes": (lambda: Message("T", b"x", keys=b"k"), "keys must be .*, not bytes"),  # type: ignore[arg-type]
    "a key": (lambda: Message("T", b"x", keys=["k", 7]), "each of the keys must be text, not int"),  # type: ignore[list-item]
    "level": (lambda: Message("T", b"x", delay_level="3"), "delay_level must be a whole number, not str"),  # type: ignore[arg-type]
    "properties": (lambda: Message("T", b"x", properties=[1]), "properties must be a mapping.*, not list"),  # type: ignore[arg-type]
    "a value": (lambda: Message("T", b"x", properties={"a": 5}), "property 'a' must be text, not int"),  # type: ignore[dict-item]
    "a name": (lambda: Message("T", b"x", properties={5: "a"}), "name of a property must be text, not int"),  # type: ignore[dict-item]
    "topic": (lambda: Message(5, b"x"), "topic of the message must be text, not int"),  # type: ignore[arg-type]
    "topic without hash": (lambda: Message([], b"x"), "topic of the message must be text, not list"),  # type: ignore[arg-type]
    "body": (lambda: Message("T", "x"), "body of the message must be bytes, not str"),  # type: ignore[arg-type]
    "flag": (lambda: Message("T", b"x", flag="1"), "flag of the message must be a whole number, not str"),  # type: ignore[arg-type]
    "half a pair in a value": (lambda: Message("T", b"x", properties={"a": HALF_A_PAIR}), "property 'a' holds half"),
    "half a pair in a name": (lambda: Message("T", b"x", properties={HALF_A_PAIR: "a"}), "name 'a.ud800' of a .* half"),
    "half a pair in a tag": (lambda: Message("T", b"x", tags=HALF_A_PAIR), "property 'TAGS' holds half"),
    "half a pair in a key": (lambda: Message("T", b"x", keys=["k", HALF_A_PAIR]), "property 'KEYS' holds half"),
    "half a pair in the topic": (lambda: Message(HALF_A_PAIR, b"x"), "the topic .* other characters"),
    "a value set later": (lambda: _stored(properties={"a": 5}), "property 'a' must be text, not int"),
    "a flag of a transaction": (lambda: _stored(properties={"TRAN_MSG": True}), "'TRAN_MSG' must be text, not bool"),
    "properties set later": (
        lambda: _stored(properties=None),
        "properties of the message must be a dict, not NoneType",
    ),
    "times of a retry": (
        lambda: _stored(topic="%RETRY%g", properties={"RECONSUME_TIME": "often"}),
        "property RECONSUME_TIME .* must be a whole number, not 'often'",
    ),
}


OTHERWISE = ("no message", "text", "a flag of a transaction")
"""What `prepare` refuses in other words, or sets itself."""


@asynccontextmanager
async def _producing() -> AsyncIterator[tuple[client.TransactionProducer[None], FakeSystem]]:
    async with (
        fake_system() as system,
        client.TransactionProducer[None]("g", system.address, listener=Listener()) as producer,
    ):
        await producer.send(Message("T", b"warm"))
        yield producer, system


@pytest.mark.parametrize("case", MESSAGES)
def test_what_no_message_may_hold_is_named_by_every_way_to_send_it(case: str) -> None:
    make, text = MESSAGES[case]

    async def scenario() -> None:
        async with _producing() as (producer, system):
            before = len(system.asked)
            ways: list[Callable[[Any], Any]] = [
                producer.send,
                producer.send_async,
                producer.send_oneway,
                lambda message: producer.request(message, timeout=1.0),
            ]
            if case != "times of a retry":  # which no batch takes anyway
                ways.append(lambda message: producer.send_batch([message]))
                ways.append(lambda message: producer.send_batch_async([Message("T", b"x"), message]))
            if case not in OTHERWISE:
                ways.append(producer.prepare)
            for way in ways:
                with pytest.raises(MessageIllegal, match=text):
                    await way(make())
            assert len(system.asked) == before, "nothing went out"

    run(scenario())


def test_a_batch_that_is_none_is_refused() -> None:
    async def scenario() -> None:
        async with _producing() as (producer, _):
            one: Any = Message("T", b"x")
            for wrong, name in (
                (one, "Message"),
                ((m for m in [one]), "generator"),
                ({one.topic}, "set"),
                (b"x", "bytes"),
            ):
                for way in (producer.send_batch, producer.send_batch_async):
                    with pytest.raises(MessageIllegal, match=f"messages must be a sequence of Message, not {name}"):
                        await way(wrong)

    run(scenario())


class Writing:
    """A hook around requests that puts text into them."""

    text: str | None = None

    def before(self, _address: str, request: Any) -> None:
        if self.text is not None:
            request.ext = {**(request.ext or {}), "field": self.text}

    def after(self, _address: str, _request: object, _response: object) -> None: ...


def test_a_request_that_cannot_be_encoded_leaves_no_call_behind() -> None:
    """Whatever comes to the encoder: nobody waits for an answer afterwards."""

    async def scenario() -> None:
        async with fake_system() as system:
            producer, hook = client.Producer("g", system.address), Writing()
            producer.add_rpc_hook(hook)
            async with producer:
                await producer.send(Message("T", b"x"))
                connection = producer._instance.remoting.connection(system.address)
                assert connection is not None
                hook.text = HALF_A_PAIR
                for _ in range(3):
                    with pytest.raises(
                        MessageIllegal, match=r"text 'a.ud800' of a request holds half of a surrogate pair"
                    ):
                        await producer.send(Message("T", b"x"))
                with pytest.raises(MessageIllegal, match="half of a surrogate pair"):
                    await producer.send_oneway(Message("T", b"x"))
                hook.text = None
                assert len(connection._calls) < 3, "a heartbeat may be under way"
                await producer.send(Message("T", b"x"))

    run(scenario())


UNKNOWN = {
    "send_timeout": "did you mean send_timeout_ms?",
    "retries_times": "did you mean retry_times",
    "sendMsgTimeout": "did you mean send_timeout_ms?",
    "namesrv_address": "did you mean namesrv_addr",
    "instance": "did you mean instance_name?",
    "acess_key": "did you mean access_key",
}


@pytest.mark.parametrize("kind", [*ASYNC, *SYNC], ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_an_unknown_setting_is_refused_with_the_one_that_was_meant(kind: type[Any]) -> None:
    more = {"listener": Listener()} if "Transaction" in kind.__name__ else {}
    known = {
        one: text for one, text in UNKNOWN.items() if "Producer" in kind.__name__ or text[13:17] not in ("send", "retr")
    }
    for name, text in known.items():
        with pytest.raises(ConfigurationError, match=rf"has no setting '{name}'; {text[:-1]}"):
            kind("g", "127.0.0.1:9876", **more, **{name: 3})
    with pytest.raises(ConfigurationError, match="has no setting 'zzz'; it has access_channel"):
        kind("g", "127.0.0.1:9876", **more, zzz=3)


@pytest.mark.parametrize("kind", [TransactionSettings, PushSettings], ids=lambda kind: kind.__name__)
def test_every_setting_refuses_other_types_and_names_them(kind: type[Any]) -> None:
    maker = {TransactionSettings: client.TransactionProducer, PushSettings: client.PushConsumer}[kind]
    more = {"listener": Listener()} if kind is TransactionSettings else {}
    values = [None, b"x", 1.5, HALF_A_PAIR, object(), {"a"}, {1, "a"}, 10**5000, [1]]
    for name in options_of(kind):
        for value in values:
            with pytest.raises(ConfigurationError, match=f"setting {name}"):
                maker("g", "127.0.0.1:9876", **more, **{name: value})


SHAPES: dict[str, tuple[object, str]] = {
    "no function": (5, "must be a function or coroutine function of .messages, context., not int"),
    "too few parameters": (lambda _messages: None, r"cannot be called with \(messages, context\): too many positional"),
    "too many parameters": (
        lambda _a, _b, _c: None,
        r"cannot be called with \(messages, context\): missing a required",
    ),
    "a generator": (_yields, "is a generator function"),
}


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("kind", [client.PushConsumer, sync.PushConsumer], ids=lambda kind: kind.__module__)
def test_a_listener_of_the_wrong_shape_is_refused_when_it_is_set(kind: type[Any], case: str) -> None:
    listener, text = SHAPES[case]
    consumer = kind("g", "127.0.0.1:9876")
    for setting in (consumer.set_listener, consumer.on_message, consumer.on_message_orderly):
        with pytest.raises(ConfigurationError, match=f"listener {text}"):
            setting(listener)


def test_an_ordinary_callback_is_taken_without_a_look_at_its_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    """That costs more than the send with which it comes."""

    def tell(_name: str, _result: object, _error: object) -> None: ...

    class Teller:
        def tell(self, _result: object, _error: object) -> None: ...

    def look(_callback: object) -> inspect.Signature:
        raise AssertionError("the signature was asked for")

    monkeypatch.setattr(inspect, "signature", look)
    for callback in (lambda _result, _error: None, partial(tell, "name"), Teller().tell):
        assert KINDS["SendCallback"].accept(callback) is callback


def test_listeners_of_the_right_shape_are_taken() -> None:
    class Called:
        async def __call__(self, messages: object, context: object) -> None: ...

        def method(self, messages: object, context: object, more: int = 1) -> None: ...

    for listener in (_nothing, Called(), Called().method, lambda *_: None, print):
        client.PushConsumer("g", "127.0.0.1:9876").set_listener(listener)  # type: ignore[arg-type]


def test_where_nobody_waits_a_coroutine_function_is_refused() -> None:
    class Hook:
        async def before(self, _context: object) -> None: ...

        def after(self, _context: object) -> None: ...

    async def forbid(_context: object) -> None: ...

    producer: Any = client.Producer("g", "127.0.0.1:9876")
    text = "is a coroutine function, but its call is not awaited"
    for add in (producer.add_forbidden_hook, client.PushConsumer("g", "127.0.0.1:9876").add_filter_hook):
        with pytest.raises(ConfigurationError, match=text):
            add(forbid)
    with pytest.raises(ConfigurationError, match=f"hook has a method before that {text}"):
        producer.add_send_hook(Hook())
    schedule: Any = sync.PullSchedule("g", "127.0.0.1:9876")

    async def pull(_queue: object, _context: object) -> None: ...

    with pytest.raises(ConfigurationError, match=text):
        schedule.register("T", pull)


def test_every_annotation_of_a_public_method_is_known() -> None:
    """The decorator fails at import otherwise; those of methods without it are checked by hand with these."""
    assert {"Message", "MessageQueue", "SendCallback", "QueueSelector[A]"} <= KINDS.keys()


FUNCTIONS: dict[str, Callable[[Any], object]] = {
    "create_reply_message": lambda wrong: client.create_reply_message(wrong, b"x"),
    "create_reply_message, body": lambda wrong: client.create_reply_message(Message("T", b"x"), [wrong]),  # type: ignore[arg-type]
    "reply_to_client": client.reply_to_client,
    "sql": MessageSelector.sql,
    "reset_offset_by_timestamp": lambda wrong: asyncio.run(client.reset_offset_by_timestamp("g", wrong, 0)),
    "sync.reset_offset_by_timestamp": lambda wrong: sync.reset_offset_by_timestamp("g", "T", [wrong]),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("wrong", [5, None, b"x"], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_beside_the_clients_refuse_wrong_arguments(name: str, wrong: object) -> None:
    with pytest.raises(OrbitMQError, match=r"must be .*, not (int|NoneType|bytes|list)"):
        FUNCTIONS[name](wrong)


class Index:
    """A whole number of another library, such as numpy's."""

    def __index__(self) -> int:
        return 7


def test_whole_numbers_of_other_libraries_are_taken_for_what_they_are() -> None:
    assert KINDS["int"].accept(Index()) == 7
    assert KINDS["float"].accept(Index()) == 7
    assert KINDS["Mapping[MessageQueue, int]"].accept({QUEUE: Index()}) == {QUEUE: 7}


def test_a_number_too_large_for_a_float_is_a_number() -> None:
    assert KINDS["float"].accept(10**400) == 10**400


def test_stand_ins_of_tests_are_taken_as_listeners() -> None:
    for listener in (Mock(), Mock(spec=_nothing), create_autospec(_nothing), AsyncMock(), MagicMock()):
        client.PushConsumer("G", "127.0.0.1:1").set_listener(listener)
