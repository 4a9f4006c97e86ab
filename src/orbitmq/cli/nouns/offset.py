"""Offsets of consumer groups on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.verbs import changes, noun, reads

if TYPE_CHECKING:
    from orbitmq.admin.offsets import StoredOffset
    from orbitmq.admin.plans import Plan
    from orbitmq.admin.results import Result
    from orbitmq.admin.session import Session

app = noun("offset", "Offsets of consumer groups: show and move them, with a preview and undo.")

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
TopicOption = Annotated[str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Only this topic.")]
Queues = Annotated[
    list[str] | None,
    typer.Option(
        "--queue", metavar="BROKER/ID", help="Only this queue; repeatable (default: all queues of the topic)."
    ),
]


@reads(
    app,
    "show",
    "StoredOffsetList",
    (
        "TOPIC=topic", "BROKER=brokerName", "QUEUE=queueId", "OFFSET=consumerOffset", "MIN=minOffset",
        "END=maxOffset", "LAG=lagMessages",
    ),
)  # fmt: skip
async def show(session: Session, group: GroupArgument, topic: TopicOption = None) -> Result[StoredOffset]:
    """Every offset that brokers store for a group. Includes topics that it no longer subscribes to.

    \b
    Examples:
      orbitmq offset show payments
      orbitmq offset show payments --topic Orders -o csv
    """
    from orbitmq.admin import offsets

    return await offsets.show(session, group, topic)


@changes(app, "reset")
async def reset(
    session: Session,
    group: GroupArgument,
    topic: TopicArgument,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="WHERE", help="begin (earliest), end (now), @2h, or a time."),
    ] = None,
    offset: Annotated[int | None, typer.Option("--offset", min=0, metavar="N", help="Move to this offset.")] = None,
    shift: Annotated[
        int | None,
        typer.Option("--shift", metavar="N", help="Move forward by this many messages; backward if negative."),
    ] = None,
    queues: Queues = None,
    force: Annotated[
        bool, typer.Option("--force/--no-force", help="Also move offsets forward; otherwise only backward.")
    ] = True,
) -> Plan:
    """Move the offsets of a group in a topic. Members that are online are notified; the result is read back.

    Before the change you see how many messages will be consumed again or skipped, and an undo file is written. To move
    single queues, to an offset, or by a shift while the group is online you need brokers of orbitmq or RocketMQ 5.

    \b
    Examples:
      orbitmq offset reset payments Orders --to 2024-05-01T08:00:00Z
      orbitmq offset reset payments Orders --shift -100 --queue broker-a/0
    """
    from orbitmq.admin import offsets, targets
    from orbitmq.runtime.clock import SystemClock

    target = targets.target_of(to, offset, shift, SystemClock().now_ms())
    return await offsets.plan_reset(session, group, topic, target, queues=queues or (), force=force)


@changes(app, "skip")
async def skip(session: Session, group: GroupArgument, topic: TopicArgument, queues: Queues = None) -> Plan:
    """Skip the backlog: move a group to the end of a topic.

    \b
    Examples:
      orbitmq offset skip payments Orders --dry-run
      orbitmq offset skip payments Orders --queue broker-a/3
    """
    from orbitmq.admin import offsets

    return await offsets.plan_skip(session, group, topic, queues=queues or ())


@changes(app, "clone")
async def clone(
    session: Session,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The group to copy offsets from.")],
    destination: Annotated[str, typer.Argument(metavar="DESTINATION", help="The group to copy offsets to.")],
    topic: TopicOption = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite them even while members are online.")] = False,
) -> Plan:
    """Copy the offsets of a group to another, for one topic or all. Refused while the destination is online.

    \b
    Examples:
      orbitmq offset clone payments payments-new
      orbitmq offset clone payments audit --topic Orders
    """
    from orbitmq.admin import offsets

    return await offsets.plan_clone(session, source, destination, topic, force=force)


@changes(app, "undo")
async def undo(
    session: Session, file: Annotated[Path, typer.Argument(metavar="FILE", help="The undo file that the change wrote.")]
) -> Plan:
    """Restore the offsets and the settings of groups from an undo file.

    \b
    Examples:
      orbitmq offset undo ~/.local/state/orbitmq/undo/20240501-080000-4711.json
      orbitmq offset undo before.json --dry-run
    """
    from orbitmq.admin import groups, offsets
    from orbitmq.cli import undo_files

    return await offsets.plan_undo(session, undo_files.load(file, groups.UNDO))
