"""Benchmarks on the command line: the throughput and latency of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from orbitmq.cli.verbs import loads, noun
from orbitmq.runtime.collector import settle

if TYPE_CHECKING:
    from orbitmq.admin.loads import LoadReport
    from orbitmq.admin.results import Result
    from orbitmq.admin.session import Session

app = noun("bench", "Benchmarks: sending, consuming and end-to-end latency.")

COLUMNS = (
    "WAY=way", "MESSAGES=messages", "SECONDS=seconds", "PER S=messagesPerS", "BYTES/S=bytesPerS", "FAILED=failed",
    "P50 MS=latency.p50Ms", "P90 MS=latency.p90Ms", "P99 MS=latency.p99Ms", "P99.9 MS=latency.p999Ms",
    "MAX MS=latency.maxMs", "+MISSING=missing", "+MEAN MS=latency.meanMs", "+P75 MS=latency.p75Ms",
    "+P95 MS=latency.p95Ms", "+SINCE=since", "+WANTED/S=wantedPerS", "+IN FLIGHT=inFlight", "+SIZE=sizeBytes",
    "+TOPIC=topic", "+PROBLEMS=problems",
)  # fmt: skip
Topic = Annotated[
    str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Use this topic (default: a temporary one).")
]
Seconds = Annotated[
    float, typer.Option("--seconds", "-s", min=0.1, max=86_400, metavar="N", help="Run for at most N seconds.")
]
WarmUp = Annotated[
    float, typer.Option("--warm-up", min=0, max=3600, metavar="SECONDS", help="Run this long before measuring.")
]
InFlight = Annotated[int, typer.Option("--in-flight", "-j", min=1, max=10_000, metavar="N", help="Messages in flight.")]
Size = Annotated[int, typer.Option("--size", min=1, max=4 << 20, metavar="BYTES", help="Size of a body.")]
Rate = Annotated[
    float | None,
    typer.Option("--rate", min=0.1, max=1e6, metavar="N", help="Messages per second (default: as many as possible)."),
]
Keys = Annotated[bool, typer.Option("--keys", help="Give each message a key.")]
Tags = Annotated[str | None, typer.Option("--tag", metavar="TAG", help="Give each message this tag.")]
Delay = Annotated[
    int, typer.Option("--delay-level", min=0, max=255, metavar="LEVEL", help="Send delayed messages of this level.")
]
Queues = Annotated[
    int, typer.Option("--queues", min=1, max=1024, metavar="N", help="Queues per broker of the temporary topic.")
]


@loads(app, "send", "LoadReport", COLUMNS)
async def send(
    session: Session,
    clients: dict[str, Any],
    way: Annotated[
        Literal["sync", "async", "oneway", "batch", "transaction"],
        typer.Option(help="How to send. A transaction is a half message and its commit."),
    ] = "sync",
    topic: Topic = None,
    seconds: Seconds = 10,
    warm_up: WarmUp = 2,
    rate: Rate = None,
    in_flight: InFlight = 16,
    size: Size = 128,
    messages: Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after N messages.")] = None,
    batch: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Messages per request with --way batch.")
    ] = 32,
    keys: Keys = False,
    tags: Tags = None,
    delay_level: Delay = 0,
    queues: Queues = 8,
) -> Result[LoadReport]:
    """Measure the throughput and the latency of sends.

    At a --rate, latency counts from when a message was due, so it includes the wait for earlier sends; without one it
    is that of the request alone. -o json has the histogram, in buckets 3 % wide. Ctrl-C prints the results so far.
    The client is orbitmq's Python client; other clients have other results.

    \b
    Examples:
      orbitmq bench send
      orbitmq bench send --rate 2000 --size 1024 --seconds 60 -o json
      orbitmq bench send --way batch --in-flight 4
    """
    from orbitmq.admin import loads as work
    from orbitmq.admin.temporary import with_own_topic

    settle()
    load = work.Load(
        work.Way(way), seconds, warm_up, rate, in_flight, size, batch, messages, keys, tags, delay_level
    )  # fmt: skip
    if topic is not None:
        return await work.sending(session, topic, load, clients)
    return await with_own_topic(session, queues, lambda made: work.sending(session, made, load, clients))


@loads(app, "consume", "LoadReport", COLUMNS)
async def consume(
    session: Session,
    clients: dict[str, Any],
    way: Annotated[Literal["pull", "push"], typer.Option(help="pull, or push with a listener.")] = "push",
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic", "-t", metavar="TOPIC", help="Consume this topic (default: a temporary one that is filled first)."
        ),
    ] = None,
    seconds: Seconds = 30,
    messages: Annotated[int, typer.Option(min=1, metavar="N", help="Stop after N messages.")] = 50_000,
    in_flight: InFlight = 16,
    size: Size = 128,
    queues: Queues = 8,
) -> Result[LoadReport]:
    """Measure the throughput of a consumer. It starts at a topic's first message; its group is removed afterwards.

    \b
    Examples:
      orbitmq bench consume
      orbitmq bench consume --way pull --messages 200000
      orbitmq bench consume --topic Orders
    """
    from orbitmq.admin import loads as work
    from orbitmq.admin.temporary import with_own_topic

    settle()
    load = work.Load(work.Way(way), seconds, 0, None, in_flight, size, messages=messages)
    if topic is not None:
        return await work.consuming(session, topic, load, clients)

    async def filled(made: str) -> Result[LoadReport]:
        await work.fill(session, made, load, clients)
        return await work.consuming(session, made, load, clients)

    return await with_own_topic(session, queues, filled)


@loads(app, "latency", "LoadReport", COLUMNS)
async def latency(
    session: Session,
    clients: dict[str, Any],
    rate: Annotated[float, typer.Option(min=0.1, max=1e6, metavar="N", help="Messages per second.")] = 500,
    topic: Topic = None,
    seconds: Seconds = 10,
    warm_up: WarmUp = 2,
    in_flight: InFlight = 64,
    size: Size = 128,
    tags: Tags = None,
    queues: Queues = 8,
) -> Result[LoadReport]:
    """Measure the end-to-end latency at a rate. It counts from when a message was due until a listener has it.

    \b
    Exit code: 8 if a message that was stored was not delivered.

    \b
    Examples:
      orbitmq bench latency
      orbitmq bench latency --rate 5000 --seconds 60 -o wide
    """
    from orbitmq.admin import loads as work
    from orbitmq.admin.temporary import with_own_topic

    settle()
    load = work.Load(work.Way.SYNC, seconds, warm_up, rate, in_flight, size, tags=tags)
    if topic is not None:
        return await work.end_to_end(session, topic, load, clients)
    return await with_own_topic(session, queues, lambda made: work.end_to_end(session, made, load, clients))
