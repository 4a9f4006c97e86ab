"""A change before it is made: its steps with what is there and what will be, so that it can be shown, confirmed, made,
read back and undone. Must not know what a step does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from msgspec import Struct

from orbitmq.admin.results import Failure, Result, failure_of
from orbitmq.errors import OrbitMQError

UNDO_ALL = "config undo"
"""The command that takes every undo file."""
Value = str | int | float | bool | dict[str, Any] | list[Any] | None


class StepOutcome(StrEnum):
    """What became of a step."""

    PLANNED = "planned"
    UNCHANGED = "unchanged"
    """It is already so: nothing was sent."""
    DONE = "done"
    CONFIRMED = "confirmed"
    """Done, and read back."""
    NOT_APPLIED = "notApplied"
    """The node accepted the change, but reading it back shows something else."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """An earlier step that this one stands on has failed."""


class Step(Struct, frozen=True, rename="camel"):
    """One change of one thing at one node."""

    target: str
    """Who makes it: `broker-a (127.0.0.1:10911)`."""
    action: str
    """What is done: `create topic`, `set offset`."""
    subject: str
    """To what: a topic, a group, `Orders/broker-a/3`, a key of the configuration."""
    before: Value = None
    """The current value; None without one, or if it is unknown."""
    after: Value = None
    outcome: StepOutcome = StepOutcome.PLANNED

    @property
    def changes(self) -> bool:
        return self.before != self.after


Make = Callable[[], Awaitable[None]]
ReadBack = Callable[[], Awaitable[Value]]


@dataclass(slots=True)
class Change:
    """A step and its execution; `read_back` returns the value afterwards, to compare with the step's `after`."""

    step: Step
    make: Make
    read_back: ReadBack | None = None
    chain: str | None = None
    """Steps of one chain stand on those before them: after a failure the rest of it is skipped."""


@dataclass(slots=True)
class Plan:
    """Changes in the order they are made."""

    title: str
    """The change, in a sentence without a full stop: `delete topic Orders from cluster DefaultCluster`."""
    changes: list[Change] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    """Nodes that did not respond while the plan was made: it lacks their part."""
    destroys: str | None = None
    """The name to be typed before it is made, for what cannot be undone by the opposite command."""
    undo: dict[str, object] | None = None
    """What an undo file keeps, for changes that lose what was there."""
    only_adds: bool = False
    """Whether a step without `before` makes something that was not there, and does nothing else."""
    report: Callable[[str], None] = lambda _text: None
    """What a step that takes long calls with its progress."""
    total: int = 0
    """Messages that a step that takes long sends; 0 for other plans."""
    done: int = 0
    """How many of them were sent."""

    @property
    def steps(self) -> list[Step]:
        return [change.step for change in self.changes]

    @property
    def changing(self) -> bool:
        return any(change.step.changes for change in self.changes)

    @property
    def must_be_confirmed(self) -> bool:
        """Whether something that is there is changed or removed, or may be, as far as is known."""
        is_new = all(step.before is None for step in self.steps if step.changes)
        return not (self.only_adds and is_new and not self.failures)

    def preview(self) -> Result[Step]:
        shown = [step if step.changes else _with(step, StepOutcome.UNCHANGED) for step in self.steps]
        return Result(shown, list(self.warnings), list(self.failures))

    async def make(self, progress: Callable[[Step], None] | None = None) -> Result[Step]:
        """Make each effective change in order, and report the results. A failed step ends its own chain only."""
        done = Result[Step](warnings=list(self.warnings), failures=list(self.failures))
        broken: set[str | None] = set()
        for change in self.changes:
            if not change.step.changes:
                outcome = StepOutcome.UNCHANGED
            elif change.chain is not None and change.chain in broken:
                outcome = StepOutcome.SKIPPED
            else:
                outcome = await _make(change, done.failures)
                if outcome is StepOutcome.FAILED:
                    broken.add(change.chain)
            done.items.append(_with(change.step, outcome))
            if progress is not None:
                progress(done.items[-1])
        return done

    async def verify(self, made: Result[Step]) -> Result[Step]:
        """The same steps, those that were done being read back."""
        checked = Result[Step](warnings=list(made.warnings), failures=list(made.failures))
        for change, step in zip(self.changes, made.items, strict=True):
            if step.outcome is StepOutcome.DONE and change.read_back is not None:
                checked.items.append(await _read_back(step, change.read_back, checked))
            else:
                checked.items.append(step)
        return checked


async def _make(change: Change, failures: list[Failure]) -> StepOutcome:
    try:
        await change.make()
    except OrbitMQError as error:
        failures.append(failure_of(f"{change.step.target}: {change.step.action} {change.step.subject}", error))
        return StepOutcome.FAILED
    return StepOutcome.DONE


async def _read_back(step: Step, read_back: ReadBack, checked: Result[Step]) -> Step:
    try:
        value = await read_back()
    except OrbitMQError as error:
        checked.warnings.append(f"{step.target}: done, but it could not be read back: {error}")
        return step
    if value == step.after:
        return _with(step, StepOutcome.CONFIRMED)
    checked.warnings.append(f"{step.target}: {step.subject} is {value!r} now, not {step.after!r}")
    return _with(step, StepOutcome.NOT_APPLIED)


def _with(step: Step, outcome: StepOutcome) -> Step:
    return Step(step.target, step.action, step.subject, step.before, step.after, outcome)


def joined(title: str, plans: Sequence[Plan]) -> Plan:
    """Merge several plans into one, in order, with one undo file. Repeated warnings and failures are listed once. An
    undo file belongs to one command, so the undo of several plans is kept by one of them.
    """
    whole = Plan(title)
    for plan in plans:
        whole.changes += plan.changes
    whole.warnings = list(dict.fromkeys(warning for plan in plans for warning in plan.warnings))
    whole.failures = list(dict.fromkeys(failure for plan in plans for failure in plan.failures))
    whole.only_adds = all(plan.only_adds for plan in plans)
    undos = [part for plan in plans if plan.undo and plan.changing for part in _parts(plan.undo)]
    commands = {str(part["command"]) for part in undos}
    command = next(iter(commands)) if len(commands) == 1 else UNDO_ALL
    whole.undo = {"command": command, "parts": undos} if len(undos) > 1 else next(iter(undos), None)
    return whole


def _parts(undo: dict[str, object]) -> list[dict[str, object]]:
    parts = undo.get("parts")
    return parts if isinstance(parts, list) else [undo]
