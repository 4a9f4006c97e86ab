"""Executes a verb: chooses the context, opens a session, calls the verb, prints the result, finds the exit code.

Knows no noun.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from msgspec.structs import replace

from orbitmq.admin.envelope import plain
from orbitmq.admin.memory import StoredMemory
from orbitmq.admin.plans import Plan, Step, StepOutcome
from orbitmq.admin.results import Failure, Result, failure_of
from orbitmq.admin.session import Session, nearest
from orbitmq.cli import output, texts, undo_files
from orbitmq.cli.contexts import Context, choose
from orbitmq.cli.exit_codes import (
    EXIT_CANCELLED,
    EXIT_CHECK_FAILED,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_REFUSED,
    EXIT_TIMEOUT,
    EXIT_UNCHANGED,
    EXIT_UNREACHABLE,
    exit_code,
    fail,
    one_line_errors,
)
from orbitmq.cli.places import state_folder
from orbitmq.cli.safe_output import safe
from orbitmq.cli.tls import client_settings, tls_context
from orbitmq.cli.wrapping import with_remedy
from orbitmq.errors import BrokerError, NotFound, OrbitMQError
from orbitmq.net.remoting import Remoting
from orbitmq.runtime.error_texts import translated
from orbitmq.runtime.languages import gettext
from orbitmq.runtime.printable import printable
from orbitmq.wire.command import Command
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.signature import sign

Verb = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a verb: its function and arguments, its context, and its output format."""

    command: str
    kind: str
    columns: tuple[str, ...]
    verb: Verb
    arguments: Mapping[str, Any]
    context: Context
    form: str
    timeout_ms: float
    quiet: bool
    verbose: bool

    def remark(self, text: str, remedy: str | None = None) -> None:
        if not self.quiet:
            print(printable(with_remedy(translated(text), remedy, sys.stderr), lines=True), file=sys.stderr)

    def progress(self, text: str) -> None:
        """Replace the last line of the terminal."""
        if not self.quiet and sys.stderr.isatty():
            print(f"\r\x1b[K{printable(translated(text))}", end="", file=sys.stderr, flush=True)

    @property
    def in_json(self) -> bool:
        return self.form in ("json", "yaml")


@dataclass(slots=True)
class Aside:
    """Failures and warnings of a stream, printed on standard error. A failure also changes the exit code."""

    call: Call
    has_failed: bool = False

    def failure(self, failure: Failure) -> None:
        self.has_failed = True
        self.call.remark(*_parts_of(failure))

    def warning(self, text: str) -> None:
        self.call.remark(_warning(text))


def perform(
    way: str,
    command: str,
    kind: str,
    columns: tuple[str, ...],
    verb: Verb,
    own: Mapping[str, Any],
    shared: dict[str, Any],
) -> None:
    """Ends the process with the exit code of the result."""
    with one_line_errors(command):
        context = choose(
            shared["name_servers"] or (), shared["context_name"], shared["cluster"], shared["mapped"] or ()
        )
        form = output.check(shared["output"])
    call = Call(
        command, kind, columns, verb, own, context, form, shared["timeout"] * 1000, shared["quiet"], shared["verbose"]
    )
    try:
        with _reported_errors(call):
            if way == "read":
                code = _watch(call, shared["watch"]) if shared["watch"] else asyncio.run(_read(call))
            elif way == "change":
                code = asyncio.run(_change(call, shared))
            elif way == "load":
                _allow_feed(call)
                code = asyncio.run(_read(call, clients=client_settings(call.context)))
            else:
                if way == "feed":
                    _allow_feed(call)
                code = asyncio.run(_stream(call, way))
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader has closed the pipe, so it does not know what was changed
        sys.stderr.close()
        code = EXIT_FAILED if way == "change" else 0
    raise SystemExit(code)


@contextmanager
def _reported_errors(call: Call) -> Iterator[None]:
    """An error is one line with its remedy; with JSON or YAML it is also the result."""
    try:
        yield
    except OrbitMQError as error:
        if call.in_json:
            found = Result[Any](failures=[failure_of(", ".join(call.context.name_servers), error)])
            output.write(call.kind, found, call.columns, call.form, cluster=call.context.cluster, now_ms=_now_ms())
        code = exit_code(error) or EXIT_FAILED
        text, remedy = error_parts(error)
        fail(call.command, text, code, remedy)


def error_parts(error: OrbitMQError) -> tuple[str, str | None]:
    """The error and its remedy."""
    failure = failure_of("", error)
    text = f"{failure.message} ({failure.name})" if isinstance(error, BrokerError) else str(error)
    return text, failure.hint


def error_line(error: OrbitMQError) -> str:
    """The error with its remedy."""
    return "; ".join(part for part in error_parts(error) if part)


@asynccontextmanager
async def opened(context: Context, timeout_ms: float, *, verbose: bool = False) -> AsyncIterator[Session]:
    """A session with the context's cluster; `timeout_ms` is the timeout of each request."""
    credentials = context.credentials()
    remoting = Remoting(
        connect_timeout_ms=timeout_ms,
        hooks=(_Requests(),) if verbose else (),
        sign=None if credentials is None else partial(sign, credentials=credentials),
        direct=None if not context.addresses else lambda address, _: context.addresses.get(address, address),
        tls=tls_context(context),
    )
    try:
        yield Session(
            remoting, context.name_servers, cluster=context.cluster, timeout_ms=timeout_ms, memory=memory_of(context)
        )
    finally:
        await remoting.close()


def memory_of(context: Context) -> StoredMemory:
    """The brokers that earlier commands saw at these name servers. ConfigurationError for an invalid time span."""
    return StoredMemory(state_folder("brokers"), context.name_servers, keep_ms=context.remember_ms())


def forget_broker(broker: str, name_servers: Sequence[str], context_name: str | None) -> None:
    """Ends with exit code 3 if no broker of this name is remembered."""
    with one_line_errors("cluster forget"):
        memory = memory_of(choose(name_servers, context_name, None))
        forgotten = asyncio.run(memory.forget(broker))
        if not forgotten:
            known = {one.title for one in asyncio.run(memory.known())}
            hint = nearest(broker, known) or f"remembered brokers: {', '.join(sorted(known)) or 'none'}"
            raise NotFound(f"no broker {broker} is remembered", hint)
        for one in forgotten:
            print(printable(translated(f"forgotten: {one.title} ({one.address})")), file=sys.stderr)


def _opened(call: Call) -> AbstractAsyncContextManager[Session]:
    return opened(call.context, call.timeout_ms, verbose=call.verbose)


async def _read(call: Call, **more: Any) -> int:
    async with _opened(call) as session:
        found: Result[Any] = await call.verb(session, **more, **call.arguments)
    output.write(call.kind, found, call.columns, call.form, cluster=call.context.cluster, now_ms=_now_ms())
    _remarks(call, found)
    return _code_of(found)


def _watch(call: Call, seconds: float) -> NoReturn:
    while True:
        if sys.stdout.isatty():
            print("\x1b[H\x1b[2J", end="")
        try:
            asyncio.run(_read(call))
        except OrbitMQError as error:  # the user may be watching a broker that restarts
            call.remark(f"orbitmq {call.command}: {error_line(error)}")
        sys.stdout.flush()
        time.sleep(seconds)


async def _stream(call: Call, way: str) -> int:
    aside = Aside(call)
    extra = {"aside": aside} if way == "stream" else {}
    async with _opened(call) as session:
        items: AsyncIterator[Any] = call.verb(session, **extra, **call.arguments)
        for heading in output.headings(call.columns, call.form):
            print(heading, file=safe(sys.stdout), flush=True)
        async for item in items:
            print(output.line(plain(item), call.columns, call.form), file=safe(sys.stdout), flush=True)
    return EXIT_UNREACHABLE if aside.has_failed else 0


async def _change(call: Call, shared: Mapping[str, Any]) -> int:
    async with _opened(call) as session:
        plan: Plan = await call.verb(session, **call.arguments)
        if shared["dry_run"] or not plan.changing:
            _report(call, plan.preview())
            if not plan.changing and not plan.failures:
                call.remark("nothing to change")
            return _code_unchanged(plan, shared)
        _confirm(call, plan, yes=shared["yes"])
        if plan.undo is not None:
            _keep_undo(call, plan, undo_files.save(plan.undo))
        made = await _make(call, plan)
        if shared["verify"]:
            made = await plan.verify(made)
    _report(call, made)
    if any(step.outcome is StepOutcome.NOT_APPLIED for step in made.items):
        return EXIT_CHECK_FAILED
    done = any(step.outcome in (StepOutcome.DONE, StepOutcome.CONFIRMED) for step in made.items)
    return _code_of(made) if done else _code_of(Result[Any](failures=made.failures))


def _keep_undo(call: Call, plan: Plan, undo: str) -> None:
    """Show the command, on a line of its own on a terminal, so that it can be copied."""
    if call.in_json:
        plan.warnings.append(f"to undo it: orbitmq {undo}")
    elif sys.stderr.isatty():
        call.remark("to undo it:", f"orbitmq {undo}")
    else:
        call.remark(f"to undo it: orbitmq {undo}")


async def _make(call: Call, plan: Plan) -> Result[Step]:
    """If Ctrl-C or a bug interrupts it, the steps made so far are reported."""
    so_far: list[Step] = []

    def progress(step: Step) -> None:
        so_far.append(step)
        if not call.in_json and len(plan.steps) > 1:  # the report follows at once that of a single step
            _progress(call, step)

    plan.report = call.progress
    try:
        made = await plan.make(progress)
    except BaseException:
        left = plan.steps[len(so_far) :]
        words = [
            f"{one.target}: {one.action} {one.subject} was interrupted: it is unknown whether it was done"
            for one in left[:1]
        ]
        skipped = [replace(step, outcome=StepOutcome.SKIPPED) for step in left[1:]]
        _report(call, Result([*so_far, *skipped], [*plan.warnings, *words], list(plan.failures)))
        raise
    call.progress("")
    return made


def _code_unchanged(plan: Plan, shared: Mapping[str, Any]) -> int:
    if plan.changing or plan.failures or not shared["fail_if_unchanged"]:
        return _code_of(plan.preview())
    return EXIT_UNCHANGED


def _confirm(call: Call, plan: Plan, *, yes: bool) -> None:
    """Ends the process unless the plan is confirmed."""
    _refuse_readonly(call)
    if (yes or not plan.must_be_confirmed) and not call.context.protected:
        return
    preview = plan.preview()
    _require_terminal(call)
    output.write("Plan", preview, call.columns, "table", cluster=None, now_ms=_now_ms(), stream=sys.stderr)
    for warning in preview.warnings:
        call.remark(_warning(warning))
    _typed(call, plan.title, call.context.name if call.context.protected else plan.destroys or "yes")


def _allow_feed(call: Call) -> None:
    """Sending is a change: a protected context prompts, which is impossible if standard input has the messages."""
    _refuse_readonly(call)
    if call.context.protected:
        _require_terminal(call)
        _typed(call, "send these messages", call.context.name)


def _require_terminal(call: Call) -> None:
    if not sys.stdin.isatty():
        reason = (
            "the context is protected"
            if call.context.protected
            else "standard input is not a terminal; confirm with --yes"
        )
        fail(call.command, f"not done: {reason}", EXIT_CANCELLED)


def _typed(call: Call, title: str, wanted: str) -> None:
    prompt = translated(f"{printable(title)}. Type {wanted} to continue:")
    print(prompt, end=" ", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != wanted:
        fail(call.command, "cancelled; nothing was done", EXIT_CANCELLED)


def _refuse_readonly(call: Call) -> None:
    if call.context.readonly:
        fail(call.command, f"context {call.context.name} is readonly: changes are refused", EXIT_REFUSED)


def _progress(call: Call, step: Step) -> None:
    if sys.stderr.isatty():
        call.progress("")
        call.remark(f"{gettext(step.outcome)}: {texts.deed(step.target, step.action, step.subject)}")


def _report(call: Call, found: Result[Step]) -> None:
    output.write(call.kind, found, call.columns, call.form, cluster=call.context.cluster, now_ms=_now_ms())
    _remarks(call, found)


def _remarks(call: Call, found: Result[Any]) -> None:
    for warning in found.warnings:
        call.remark(_warning(warning))
    for failure in found.failures:
        call.remark(*_parts_of(failure))
    if found.partial:
        call.remark("this is partial: what these nodes have is missing")


def _warning(text: str) -> str:
    return gettext("warning: ") + translated(text)


def _parts_of(failure: Failure) -> tuple[str, str | None]:
    return f"{failure.target}: {failure.name}: {failure.message}", failure.hint


def _code_of(found: Result[Any]) -> int:
    if not found.failures:
        return EXIT_CHECK_FAILED if found.check_failed else 0
    if found.items:
        return EXIT_UNREACHABLE
    failure = found.failures[0]
    if failure.name == "TIMEOUT":
        return EXIT_TIMEOUT
    if failure.code is not None:
        return exit_code(BrokerError(failure.code, failure.message)) or EXIT_FAILED
    return EXIT_UNREACHABLE if failure.retryable else EXIT_FAILED


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class _Requests:
    """Prints each request on standard error: its code, the peer, the response code, the latency."""

    def __init__(self) -> None:
        self._began: dict[int | None, float] = {}

    def before(self, _address: str, request: Command, /) -> None:
        self._began[request.opaque] = time.perf_counter()

    def after(self, address: str, request: Command, response: Command, /) -> None:
        took_ms = (time.perf_counter() - self._began.pop(request.opaque)) * 1000
        name = RequestCode(request.code).name if request.code in set(RequestCode) else str(request.code)
        print(f"{name} {address} {response.code} {took_ms:.1f} ms", file=sys.stderr)
