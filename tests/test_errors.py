"""Every error passes between processes and through copies with its text and its fields."""

from __future__ import annotations

import copy
import importlib
import inspect
import multiprocessing
import pickle
import pkgutil
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

import orbitmq
from orbitmq.client import Producer, sync
from orbitmq.client.settings import ProducerSettings, complete
from orbitmq.errors import BrokerError, ClientError, OrbitMQError, RemotingError
from orbitmq.message.model import Message
from orbitmq.net.remoting import split_address
from orbitmq.store.queue_room import RoomAwaited
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import fake_system, refuse
from tests.support.loops import run

SAMPLES = {
    "int": 208,
    "object": "the reason",
    "str": "broker-a said: a\x01b \N{SNOWMAN}",
    "str | None": None,
    "float": 2.5,
}
"""An argument of each type that constructors of errors take."""


def _below(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    for child in kind.__subclasses__():
        yield child
        yield from _below(child)


def _every_error() -> list[type[BaseException]]:
    """Those of every module, but the private ones and what has a message wait in the broker, which no caller sees.
    Airflow has an environment of its own, and the provider no errors.
    """
    for module in pkgutil.walk_packages(orbitmq.__path__, "orbitmq."):
        if not module.name.endswith("__main__") and not module.name.startswith("orbitmq.integrations.airflow."):
            importlib.import_module(module.name)
    found = {kind for kind in _below(BaseException) if kind.__module__.partition(".")[0] == "orbitmq"}
    seen = (kind for kind in found - {RoomAwaited} if not kind.__name__.startswith("_"))
    return sorted(seen, key=lambda kind: kind.__qualname__)


ERRORS = _every_error()


def _made(kind: type[BaseException]) -> BaseException:
    own = inspect.signature(kind).parameters.values() if "__init__" in vars(kind) else ()
    error = kind(*(SAMPLES[str(parameter.annotation)] for parameter in own)) if own else _inherited(kind)
    error.added_later = ["by whoever knows more"]  # type: ignore[attr-defined]
    error.add_note("what was tried")
    return error


def _inherited(kind: type[BaseException]) -> BaseException:
    maker = next(
        (base for base in kind.__mro__ if base.__module__.startswith("orbitmq") and "__init__" in vars(base)), None
    )
    if maker is None:
        return kind(SAMPLES["str"])
    parameters = list(inspect.signature(maker).parameters.values())
    return kind(*(SAMPLES[str(parameter.annotation)] for parameter in parameters))


def _told(error: BaseException) -> tuple[object, ...]:
    return type(error), str(error), error.args, vars(error)


def _without_ports(error: BaseException) -> str:
    """Text and fields of an error whose peer had another port each time."""
    return re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", repr(_told(error)))


COPIES: dict[str, Callable[[BaseException], BaseException]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle {protocol}": lambda error, protocol=protocol: pickle.loads(pickle.dumps(error, protocol))
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    },
}


def test_the_walk_finds_the_tree() -> None:
    assert {BrokerError, ClientError, RemotingError} < set(ERRORS)
    assert len(ERRORS) >= 35


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_survives_a_copy_with_text_and_fields(kind: type[BaseException], how: str) -> None:
    error = _made(kind)
    again = COPIES[how](error)
    assert again is not error
    assert _told(again) == _told(error)


def _refused_by_a_broker(_: int) -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(13)
            await producer.send(Message("T", b"x"))

    run(scenario())


def _setting_unknown(_: int) -> None:
    complete(ProducerSettings, {"retries": 3})  # type: ignore[typeddict-unknown-key]


def _no_client(_: int) -> None:
    sync.Producer("g", "127.0.0.1:9876").send(Message("T", b"x"))


def _no_address(_: int) -> None:
    split_address("broker-a")


REAL = [_refused_by_a_broker, _setting_unknown, _no_client, _no_address]


def _raised_here(work: Callable[[int], None]) -> OrbitMQError:
    with pytest.raises(OrbitMQError) as raised:
        work(0)
    return raised.value


def test_errors_of_a_pool_of_processes_arrive_whole() -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool, ProcessPoolExecutor(1, mp_context=context) as executor:
        for work in REAL:
            expected = _raised_here(work)
            with pytest.raises(type(expected)) as raised:
                pool.apply_async(work, (0,)).get(60)
            assert _without_ports(raised.value) == _without_ports(expected)
            with pytest.raises(type(expected)) as raised:
                executor.submit(work, 0).result(60)
            assert _without_ports(raised.value) == _without_ports(expected)
