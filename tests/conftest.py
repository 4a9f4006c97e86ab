"""Tests written as coroutines run on an event loop of their own, that of the fixture `turned_clock` or `both_loops`.

Tests that share something costly stay together when several processes run them.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import tempfile
from collections.abc import Generator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.scheduler import LoadGroupScheduling

from tests.support.compiled import IS_COMPILED, refuse_stand_ins, stand_in_refused
from tests.support.loops import LOOPS, LoopFactory, TurnedLoop, run
from tests.support.progress import Progress

SYSTEMS = (
    "system",
    "extended_system",
    "five",
    "front",
)  # fixtures that start name server and broker once for all who want them
REASON_CHARS = 400  # of a failure told at once; the rest comes at the end
SPARK = "spark"  # the fixture that is Spark's session, slow to start and large
SPARK_ROOMS = ("spark", "pipeline")  # their running systems are those that the session reads from
# Of these rooms `make test` runs everything at orbitmq's brokers, and only these files at RocketMQ's; jobs, with Delta.
AT_ROCKETMQ = ("test_volume.py",)
WITH_ICEBERG = ("test_lake_readers.py",)
# Of what clients of 4.x do, at RocketMQ 4.9.7: these files run at 5.3.3 with `make test-long`.
AT_FOUR = (
    "test_admin_finding.py",
    "test_broadcast_offsets.py",
    "test_client_config.py",
    "test_orderly_client.py",
    "test_protected_client.py",
    "test_pulling_clients.py",
    "test_python_client.py",
    "test_request_reply.py",
    "test_retry.py",
    "test_search_by_time.py",
    "test_transactions.py",
)
# The long ones first, so that at the end no process waits for another: after them what is left is small.
FIRST = (
    "spark",
    "pipeline",
    "scenarios",
    "interop",
    "dashboard",
    "golden",
    "simulation",
    "test_demo.py",
    "test_site.py",
)
TESTS = Path(__file__).parent
Reports = Generator[None, pytest.TestReport, pytest.TestReport]
CollectReports = Generator[None, pytest.CollectReport, pytest.CollectReport]

# What commands remember, cache and are configured with is of one test, not of others nor of whoever runs it.
_HOMES = tempfile.TemporaryDirectory(prefix="orbitmq-homes-")
_NUMBERS = count()
_KEPT = ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
os.environ |= {name: f"{_HOMES.name}/{name}" for name in _KEPT}
# Commands speak the language of the environment; tests compare English, or set another.
os.environ["LC_ALL"] = "C.UTF-8"


def pytest_runtest_setup() -> None:
    number = next(_NUMBERS)
    for name in _KEPT:
        if os.environ.get(name, "").startswith(_HOMES.name):  # a fixture of several tests may have said another
            os.environ[name] = f"{_HOMES.name}/{name}-{number}"


# Machines that run tests are busy: how long one example takes proves nothing.
settings.register_profile("orbitmq", deadline=None)
settings.load_profile("orbitmq")


class AtOnce:
    """Says which test has failed, and of what, when it has, not minutes later at the end of the run."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            why = crash.message if crash else str(report.longrepr)
            self._terminal.write_line(
                f"\n{report.when} of {report.nodeid} has failed after {report.duration:.1f} s: {why[:REASON_CHARS]}"
            )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    # What a shell runs in the background ignores Ctrl-C, and so would each process that is started here.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if IS_COMPILED:
        refuse_stand_ins()
    if not hasattr(config, "workerinput"):  # those find it done
        from supply.texts import compile_stale

        compile_stale()
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):  # those have none to write to
        config.pluginmanager.register(AtOnce(terminal))
        config.pluginmanager.register(Progress(terminal))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Reports:
    report = yield
    # pytest adds its handlers to loggers that do not propagate; these two make every handler that they get write JSON.
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):  # of Spark, of queries that fail
        if isinstance(logger := logging.root.manager.loggerDict.get(name), logging.Logger):
            logger.propagate = True
    reason = stand_in_refused(call.excinfo.value) if call.excinfo is not None else None
    if reason is not None:
        report.outcome, report.longrepr = "skipped", (str(item.path), 0, f"Skipped: {reason}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> CollectReports:
    report = yield
    excinfo = report.call.excinfo if report.call is not None else None
    reason = stand_in_refused(excinfo.value) if excinfo is not None else None
    if reason is not None:
        report.outcome, report.longrepr = "skipped", (str(collector.path), 0, f"Skipped: {reason}")
    return report


@pytest.fixture(params=LOOPS)
def both_loops(request: pytest.FixtureRequest) -> LoopFactory:
    """For tests of the sockets themselves: each runs on plain asyncio and on uvloop."""
    return LOOPS[request.param]


@pytest.fixture
def turned_clock() -> LoopFactory:
    """For tests of timers: the loop's clock is turned instead of waited for."""
    return TurnedLoop


@pytest.hookimpl(tryfirst=True)  # xdist looks at the marks in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_shared(item)))
        if _is_long(item):
            item.add_marker(pytest.mark.long)


def _turn(item: pytest.Item) -> tuple[bool, int]:
    """What many files share is longer than any of them."""
    room = _room(item)
    return _shared(item) == str(item.path), FIRST.index(room) if room in FIRST else len(FIRST)


def _room(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).parts[0]


def _is_long(item: pytest.Item) -> bool:
    """Besides those that say it themselves."""
    found = getattr(item, "callspec", None)
    if found is None:
        return False
    values, name = found.params.values(), item.path.name
    if _room(item) not in SPARK_ROOMS:
        return _room(item) == "interop" and name in AT_FOUR and "java-5" in values
    with_iceberg = _room(item) == "pipeline" and "iceberg" in values
    return ("java" in values and name not in AT_ROCKETMQ) or (with_iceberg and name not in WITH_ICEBERG)


def _shared(item: pytest.Item) -> str:
    """What a test shares with others: Spark's session, a running system, or the fixtures of its file."""
    if SPARK in getattr(item, "fixturenames", ()):
        return _spark(item)
    found = getattr(item, "callspec", None)
    for name in SYSTEMS:
        if found is not None and name in found.params:
            return _spark(item) if _room(item) in SPARK_ROOMS else f"{name}-{found.params[name]}"
    return str(item.path)


def _spark(item: pytest.Item) -> str:
    """Two sessions, for two processes: one after another their tests take longer than all others together."""
    return SPARK if _room(item) == SPARK else f"{SPARK}-jobs"


@pytest.hookimpl(trylast=True)  # what stands on it has ended
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """One of several processes ends a running system when it is done with those who share it: each Java broker that
    idles on to the end of the run takes a twentieth of a core.
    """
    if hasattr(item.config, "workerinput") and (nextitem is None or _shared(nextitem) != _shared(item)):
        known = item.session._fixturemanager._arg2fixturedefs
        for fixture in [one for name in (SPARK, *SYSTEMS) for one in known.get(name, ()) if one.scope == "session"]:
            fixture.finish(item._request)  # type: ignore[attr-defined]  # as pytest does when a parameter changes


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    found = pyfuncitem.funcargs
    arguments = {name: found[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    factory = found.get("turned_clock") or found.get("both_loops") or asyncio.new_event_loop
    run(pyfuncitem.obj(**arguments), factory)
    return True


class CrashedOnce(LoadGroupScheduling):  # type: ignore[misc]  # xdist has no types
    """A test whose process has ended with it is not tried again: the tests after it have their turn. As xdist has it, a
    test that hangs is tried anew by one process after the other, for ever.
    """

    def remove_node(self, node: object) -> str | None:
        left = self.assigned_work.pop(node)
        crashed = next((test for unit in left.values() for test, is_done in unit.items() if not is_done), None)
        if crashed is not None:
            for unit in left.values():
                unit |= {test: True for test in unit if test == crashed}
            self.workqueue.update(left)
            for other in self.assigned_work:
                self._reschedule(other)
        return crashed


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadGroupScheduling:
    return CrashedOnce(config, log)
