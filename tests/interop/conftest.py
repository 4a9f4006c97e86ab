"""The systems under test: RocketMQ 4.9.7, the oracle, and orbitmq from its command line. Each test holds for both, and
those of orbitmq's own client, marked `with_five`, for RocketMQ 5.3.3 as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeAlias, TypeVar

import pytest
from _pytest.runner import runtestprotocol

from tests.support.certificates import Authority, Pair
from tests.support.dashboards import OrbitDashboard
from tests.support.fronts import Front, JavaFront, OrbitFront
from tests.support.java_rocketmq import ROCKETMQ_4, ROCKETMQ_5, SMALL_JVM, JavaSystem
from tests.support.orbit_process import OrbitUp
from tests.support.process import ProcessFailed

System: TypeAlias = JavaSystem | OrbitUp
S = TypeVar("S", bound=JavaSystem | OrbitUp | JavaFront)

# Retries wait for delay level 3; every level is short here, so that a retried message comes back within a second, but
# for one that no retry reaches.
LONG_DELAY_LEVEL = 17
SHORT_DELAYS = " ".join("1h" if level == LONG_DELAY_LEVEL else "1s" for level in range(1, 19))
ASKED_FROM_MS = 500
# Producers are asked soon about transactions.
_ASKED_SOON = {"transactionCheckInterval": 1500, "transactionTimeOut": ASKED_FROM_MS}
_OPTIONS = {
    "messageDelayLevel": SHORT_DELAYS,
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    **_ASKED_SOON,
}
DECISIONS_AT_ONCE = {"transactionOpBatchInterval": 10}
"""5.3.3 writes down what was decided only after 3 s, and until then asks again about what it takes for undecided."""
# How long the queues of an orderly consumer that was killed stay locked; RocketMQ takes it as a system property.
_LOCK_LIFE = ("rocketmq.broker.rebalance.lockMaxLiveTime", 8000)
_JVM = (*SMALL_JVM, "-D{}={}".format(*_LOCK_LIFE))
SYSTEMS: dict[str, Callable[[], System]] = {
    "java": lambda: JavaSystem(ROCKETMQ_4, jvm=_JVM, **_OPTIONS),
    "orbitmq": lambda: OrbitUp(**dict([_LOCK_LIFE]), **_OPTIONS),
    "java-5": lambda: JavaSystem(ROCKETMQ_5, jvm=_JVM, **_OPTIONS, **DECISIONS_AT_ONCE),
}
TIMER_LIMIT_S, TIMER_SLOT_MAX = 1000, 20
_OF_FIVE = {
    "timerWheelEnable": "true", "recallMessageEnable": "true", "timerMaxDelaySec": TIMER_LIMIT_S,
    "timerCongestNumEachSlot": TIMER_SLOT_MAX,
}  # fmt: skip
FIVES: dict[str, Callable[[], System]] = {
    "java-5": lambda: JavaSystem(ROCKETMQ_5, **_OF_FIVE),
    "orbitmq": lambda: OrbitUp(**_OF_FIVE),
}
"""For what only RocketMQ 5 has."""
_USUAL = ["java", "orbitmq"]
FIVE_TOO = ["java", "java-5", "orbitmq"]
"""Parameters of a fixture that starts a system of its own, for tests of orbitmq's client."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "with_five: of those that take `system`, run this against RocketMQ 5.3.3, too")


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A parametrisation of the test goes before that of the fixture."""
    if metafunc.definition.get_closest_marker("with_five") and "system" in metafunc.fixturenames:
        metafunc.definition.add_marker(pytest.mark.parametrize("system", FIVE_TOO, indirect=True, scope="session"))


OPTIONS_OF_FRONTS = {
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "enableMixedMessageType": "true",
    "transactionCheckInterval": 1500,
    "transactionTimeOut": 3000,  # 5.3.3 goes on asking about a message that it has asked about before it was decided
}
FRONTS: dict[str, Callable[[Pair], JavaFront | OrbitFront]] = {
    "java-5-proxy": lambda certificate: JavaFront(certificate, **OPTIONS_OF_FRONTS, **DECISIONS_AT_ONCE),
    "orbitmq": lambda certificate: OrbitFront(certificate, **OPTIONS_OF_FRONTS),
}
"""For the clients of RocketMQ 5, which speak gRPC."""


_shared: list[System | JavaFront] = []
"""The ones that run now."""


@contextlib.contextmanager
def _sharing(system: S) -> Iterator[S]:
    with system as running:
        _shared.append(running)
        yield running
        _shared.remove(running)


@pytest.fixture(scope="session", params=_USUAL)
def system(request: pytest.FixtureRequest) -> Iterator[System]:
    """One running name server with one broker, shared by all tests: each uses topics and groups of its own."""
    with _sharing(SYSTEMS[request.param]()) as running:
        yield running


@pytest.fixture(scope="session", params=FIVES)
def five(request: pytest.FixtureRequest) -> Iterator[System]:
    """The same with what only RocketMQ 5 has: timer messages and POP consumption."""
    with _sharing(FIVES[request.param]()) as running:
        yield running


@pytest.fixture(scope="session")
def front_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Signs the certificates of systems that serve gRPC."""
    return Authority(tmp_path_factory.mktemp("front-authority"))


@pytest.fixture(scope="session", params=FRONTS)
def front(request: pytest.FixtureRequest, front_authority: Authority) -> Iterator[Front]:
    """One running system that serves gRPC."""
    with _sharing(FRONTS[request.param](front_authority.issue(request.param))) as running:
        yield running


@pytest.fixture(scope="session")
def dashboard(system: System) -> Iterator[OrbitDashboard]:
    """The web page over that system, shared as well; nobody has to log in."""
    with OrbitDashboard(system.namesrv_address, "--sample", 0) as running:
        yield running


@pytest.fixture(autouse=True)
def _what_is_shared_lives() -> Iterator[None]:
    """An orbitmq that ended by itself is told with its last words by the test in which it did, and by no other."""
    yield
    for system in _shared:
        if isinstance(system, OrbitUp):
            system.check_alive()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """A test in which the oracle's own process has ended has shown nothing about anybody: that is told in the summary
    with the last words of the process, which is started again, and the test is run once more.
    """
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    if last_words := _oracles_end():
        item.warn(pytest.PytestWarning(f"RocketMQ ended in {item.nodeid}, which is run again: {last_words}"))
        item._initrequest()  # type: ignore[attr-defined]  # as pytest does before a run
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if again := _oracles_end():
            reports[-1].outcome, reports[-1].longrepr = "failed", f"RocketMQ ended again: {again}"
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _oracles_end() -> str:
    for system in _shared:
        try:
            if not isinstance(system, OrbitUp):
                system.check_alive()
        except ProcessFailed as error:
            return str(error)
    return ""


# What is off by default and changes files on disk.
_MORE = {
    "enablePropertyFilter": "true", "enableConsumeQueueExt": "true", "enableCalcFilterBitMap": "true",
    "enableLmq": "true", "enableMultiDispatch": "true",
}  # fmt: skip
_EXTENDED: dict[str, Callable[[], System]] = {
    "java": lambda: JavaSystem(ROCKETMQ_4, **_MORE),
    "orbitmq": lambda: OrbitUp(**_MORE),
}


@pytest.fixture(scope="session", params=_EXTENDED)
def extended_system(request: pytest.FixtureRequest) -> Iterator[System]:
    """The same with light queues, extended queues and bitmaps."""
    with _sharing(_EXTENDED[request.param]()) as running:
        yield running


def is_five(system: System) -> bool:
    """Whether it is RocketMQ 5."""
    return isinstance(system, JavaSystem) and system.broker.version == ROCKETMQ_5


@pytest.fixture
def label(request: pytest.FixtureRequest) -> str:
    """A name for the topic, the group and the run of this test alone."""
    name = f"{request.node.path.stem.removeprefix('test_')}-{request.node.name}"  # two files may use one test name
    return "".join(c if c.isalnum() else "-" for c in name).strip("-")[:100]
