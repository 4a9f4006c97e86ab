"""Traces on the command line: the records that clients write about a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.verbs import noun, reads

if TYPE_CHECKING:
    from orbitmq.admin.results import Result
    from orbitmq.admin.session import Session
    from orbitmq.admin.traces import Traced, TraceGraph

app = noun("trace", "Message traces that producers and consumers recorded.")

Name = Annotated[str, typer.Argument(metavar="ID|KEY", help="The unique id of a message, or one of its keys.")]
Topic = Annotated[
    str | None,
    typer.Option("--topic", "-t", metavar="TOPIC", help="The topic with the traces (default: RMQ_SYS_TRACE_TOPIC)."),
]


@reads(
    app, "show", "TraceRecordList",
    ("KIND=kind", "AT=atMs", "GROUP=group", "CLIENT=clientHost", "COST=costMs", "SUCCESS=success", "RETRIES=retries",
     "STATE=state", "+ID=msgId", "+TOPIC=topic", "+BROKER=storeHost", "+TAGS=tags", "+KEYS=keys", "+REQUEST=requestId",
     "+OUTCOME=outcome", "+OFFSET ID=offsetMsgId"),
)  # fmt: skip
async def show(session: Session, name: Name, topic: Topic = None) -> Result[Traced]:
    """The trace records of a message, by time. If there are none, a warning says why.

    \b
    Examples:
      orbitmq trace show 7F0000011A2B18B4AAC21D9C4F000000
      orbitmq trace show order-4711 -o wide
    """
    from orbitmq.admin import traces
    from orbitmq.message.topics import TRACE_TOPIC

    return await traces.traced(session, name, topic or TRACE_TOPIC)


@reads(app, "graph", "TraceGraph", ("PRODUCER=producerNode.groupName", "TOPIC=producerNode.topic"))
async def graph(session: Session, name: Name, topic: Topic = None) -> Result[TraceGraph]:
    """The sends and deliveries of a message as a graph. With transaction decisions and durations; the JSON has the form
    of RocketMQ's dashboard.

    \b
    Examples:
      orbitmq trace graph 7F0000011A2B18B4AAC21D9C4F000000
      orbitmq trace graph order-4711 -o json
    """
    from orbitmq.admin import traces
    from orbitmq.admin.results import Result
    from orbitmq.message.topics import TRACE_TOPIC

    found = await traces.traced(session, name, topic or TRACE_TOPIC)
    items = [traces.graph([one for one in found.items if one.msg_id == msg_id]) for msg_id in traces.ids(found.items)]
    return Result(items, found.warnings, found.failures)
