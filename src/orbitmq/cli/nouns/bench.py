"""Loads on the command line: how fast a cluster takes messages and gives them, and how long that takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from orbitmq.cli.verbs import loads, noun

if TYPE_CHECKING:
    from orbitmq.admin.loads import LoadReport
    from orbitmq.admin.results import Found
    from orbitmq.admin.session import Session

app = noun("bench", "A load that is measured: sending, consuming, and how long a message takes.")

COLUMNS = (
    "WAY=way", "MESSAGES=messages", "SECONDS=seconds", "PER S=messagesPerS", "BYTES/S=bytesPerS", "FAILED=failed",
    "P50 MS=latency.p50Ms", "P90 MS=latency.p90Ms", "P99 MS=latency.p99Ms", "P99.9 MS=latency.p999Ms",
    "MAX MS=latency.maxMs", "+MISSING=missing", "+MEAN MS=latency.meanMs", "+P75 MS=latency.p75Ms",
    "+P95 MS=latency.p95Ms", "+SINCE=since", "+WANTED/S=wantedPerS", "+IN FLIGHT=inFlight", "+SIZE=sizeBytes",
    "+TOPIC=topic", "+PROBLEMS=problems",
)  # fmt: skip
Topic = Annotated[
    str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Else one of its own, removed afterwards.")
]
Seconds = Annotated[float, typer.Option("--seconds", "-s", min=0.1, max=86_400, metavar="N", help="At most so long.")]
WarmUp = Annotated[float, typer.Option("--warm-up", min=0, max=3600, metavar="SECONDS", help="Before; not counted.")]
InFlight = Annotated[
    int, typer.Option("--in-flight", "-j", min=1, max=10_000, metavar="N", help="So many at the same time.")
]
Size = Annotated[int, typer.Option("--size", min=1, max=4 << 20, metavar="BYTES", help="Of a body.")]
Rate = Annotated[
    float | None, typer.Option("--rate", min=0.1, max=1e6, metavar="N", help="Messages a second; else all it takes.")
]
Keys = Annotated[bool, typer.Option("--keys", help="Each message has a key.")]
Tags = Annotated[str | None, typer.Option("--tag", metavar="TAG", help="Each message has this tag.")]
Delay = Annotated[int, typer.Option("--delay-level", min=0, max=255, metavar="LEVEL", help="Delayed messages.")]
Queues = Annotated[int, typer.Option("--queues", min=1, max=1024, metavar="N", help="Of its own topic, a broker.")]


@loads(app, "send", "LoadReport", COLUMNS)
async def send(
    session: Session,
    clients: dict[str, Any],
    way: Annotated[
        Literal["sync", "async", "oneway", "batch", "transaction"],
        typer.Option(help="How: one by one, as tasks, without an answer, several in a request, or half and commit."),
    ] = "sync",
    topic: Topic = None,
    seconds: Seconds = 10,
    warm_up: WarmUp = 2,
    rate: Rate = None,
    in_flight: InFlight = 16,
    size: Size = 128,
    messages: Annotated[int | None, typer.Option(min=1, metavar="N", help="At most so many.")] = None,
    batch: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Messages of a request of --way batch.")
    ] = 32,
    keys: Keys = False,
    tags: Tags = None,
    delay_level: Delay = 0,
    queues: Queues = 8,
) -> Found[LoadReport]:
    """How many messages a second brokers take, and how long each send takes.

    \b
    At a --rate a message that cannot be sent in time, because those before it are not answered, counts from when it was
    due; without one each time is that of the request alone. -o json has the histogram, in buckets 3 % wide. Ctrl-C
    gives the figures so far. The client is this one: what another language's takes is another figure.

    \b
    Examples:
      orbitmq bench send
      orbitmq bench send --rate 2000 --size 1024 --seconds 60 -o json
      orbitmq bench send --way batch --in-flight 4
    """
    from orbitmq.admin import loads as work
    from orbitmq.admin.temporary import with_own_topic

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
    way: Annotated[Literal["pull", "push"], typer.Option(help="Asked for, or with a listener.")] = "push",
    topic: Annotated[
        str | None,
        typer.Option("--topic", "-t", metavar="TOPIC", help="What it holds; else one of its own that is filled first."),
    ] = None,
    seconds: Seconds = 30,
    messages: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many.")] = 50_000,
    in_flight: InFlight = 16,
    size: Size = 128,
    queues: Queues = 8,
) -> Found[LoadReport]:
    """How many messages a second a consumer gets, from the first that a topic holds. Its group is removed afterwards.

    \b
    Examples:
      orbitmq bench consume
      orbitmq bench consume --way pull --messages 200000
      orbitmq bench consume --topic Orders
    """
    from orbitmq.admin import loads as work
    from orbitmq.admin.temporary import with_own_topic

    load = work.Load(work.Way(way), seconds, 0, None, in_flight, size, messages=messages)
    if topic is not None:
        return await work.consuming(session, topic, load, clients)

    async def filled(made: str) -> Found[LoadReport]:
        await work.fill(session, made, load, clients)
        return await work.consuming(session, made, load, clients)

    return await with_own_topic(session, queues, filled)


@loads(app, "latency", "LoadReport", COLUMNS)
async def latency(
    session: Session,
    clients: dict[str, Any],
    rate: Annotated[float, typer.Option(min=0.1, max=1e6, metavar="N", help="Messages a second.")] = 500,
    topic: Topic = None,
    seconds: Seconds = 10,
    warm_up: WarmUp = 2,
    in_flight: InFlight = 64,
    size: Size = 128,
    tags: Tags = None,
    queues: Queues = 8,
) -> Found[LoadReport]:
    """How long a message takes from when it was due until a listener has it, at a rate.

    \b
    The check fails (exit code 8) when a message that was stored has not come.

    \b
    Examples:
      orbitmq bench latency
      orbitmq bench latency --rate 5000 --seconds 60 -o wide
    """
    from orbitmq.admin import loads as work
    from orbitmq.admin.temporary import with_own_topic

    load = work.Load(work.Way.SYNC, seconds, warm_up, rate, in_flight, size, tags=tags)
    if topic is not None:
        return await work.end_to_end(session, topic, load, clients)
    return await with_own_topic(session, queues, lambda made: work.end_to_end(session, made, load, clients))
