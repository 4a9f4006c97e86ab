"""Messages on the command line: found, shown, read like a file, sent, sent again."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.message_flags import (
    Begin,
    Broker,
    Budget,
    Charset,
    End,
    Form,
    Full,
    Grep,
    Key,
    Limit,
    Property,
    Queue,
    Tag,
    filter_of,
    pairs_of,
    view_of,
)
from orbitmq.cli.safe_output import safe
from orbitmq.cli.verbs import changes, feeds, noun, reads, streams

if TYPE_CHECKING:
    from orbitmq.admin.bodies import StoredMessage
    from orbitmq.admin.delays import DelayQueue, Timer
    from orbitmq.admin.half_messages import PendingHalf
    from orbitmq.admin.ids import Identity
    from orbitmq.admin.message_history import MessageHistory
    from orbitmq.admin.message_send import Sent
    from orbitmq.admin.plans import Plan
    from orbitmq.admin.results import Result
    from orbitmq.admin.scan import TagCount
    from orbitmq.admin.session import Session
    from orbitmq.cli.execution import Aside

app = noun("msg", "Messages: find, show, read and send them.")

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
TopicOption = Annotated[str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="The message's topic.")]
TraceTopic = Annotated[
    str | None,
    typer.Option("--trace-topic", metavar="TOPIC", help="The topic with the traces (default: RMQ_SYS_TRACE_TOPIC)."),
]

_ROW = (
    "ID=msgId", "QUEUE=queueId", "OFFSET=queueOffset", "STORED=storedAtMs", "TAGS=tags", "KEYS=keys",
    "+SIZE=sizeBytes", "+BROKER=brokerName", "+OFFSET ID=offsetMsgId", "+BORN=bornAtMs", "+BORN AT=bornHost",
    "+FAILED=reconsumeTimes", "+BODY=body.content",
)  # fmt: skip


@reads(app, "find", "MessageStory", ("ID=msgId", "TOPIC=topic", "STATE=state", "STORY=sentence"))
async def find(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="ID|KEY", help="An id of any kind, or a key.")],
    topic: TopicOption = None,
    trace_topic: TraceTopic = None,
    limit: Limit = 5,
    topics: Annotated[int, typer.Option("--topics", min=1, metavar="N", help="Search at most N topics.")] = 500,
) -> Result[MessageHistory]:
    """Where a message is, its history, and its state in each group.

    Takes the id that the producer got, an offset id, a transaction id or a key. Without --topic it searches delayed and
    half messages, traces, and the topics of the cluster.
    Exit code: 3 if there is no such message.

    \b
    Examples:
      orbitmq msg find 7F0000011A2B18B4AAC21D9C4F000000
      orbitmq msg find order-4711 -t Orders -o json
    """
    from orbitmq.admin import search
    from orbitmq.admin.message_history import MessageState
    from orbitmq.errors import NotFound
    from orbitmq.message.topics import TRACE_TOPIC
    from orbitmq.runtime.clock import SystemClock

    found = await search.find(
        session, name, SystemClock().now_ms(), topic=topic, trace_topic=trace_topic or TRACE_TOPIC, limit=limit,
        topics_max=topics,
    )  # fmt: skip
    if not found.partial and all(one.state is MessageState.NOT_FOUND for one in found.items):
        raise NotFound(found.items[0].sentence.rstrip("."), None if topic else "give its topic with -t, if you know it")
    return found


@reads(app, "show", "Message", ("ID=msgId", *_ROW[1:]))
async def show(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="ID|KEY", help="An id of any kind, or a key: the newest that has it.")],
    topic: TopicOption = None,
    form: Form = "auto",
    charset: Charset = "utf-8",
    full: Full = False,
) -> Result[StoredMessage]:
    """A message with all its fields and its body.

    \b
    Examples:
      orbitmq msg show 0A00000100002A9F00000000001E8480
      orbitmq msg show order-4711 -t Orders --body json --full
    """
    from orbitmq.admin.results import Result
    from orbitmq.admin.search import record
    from orbitmq.runtime.clock import SystemClock

    view = view_of(form, charset, full=full)
    return Result([view(await record(session, name, SystemClock().now_ms(), topic=topic))])


@reads(
    app, "decode", "MessageIdentity",
    ("KIND=kind", "HOST=place.host", "PORT=place.port", "LOG OFFSET=place.commitLogOffset", "MADE AT=made.ip",
     "PROCESS=made.pid", "MADE=made.createdAtMs", "+COUNTER=made.counter"),
)  # fmt: skip
async def decode(
    session: Session,  # noqa: ARG001 - nobody is asked
    names: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of any kind.")],
) -> Result[Identity]:
    """Decode message ids, without a request. Shows the broker and physical offset of an offset id, and the origin and
    time of a unique id.

    \b
    Examples:
      orbitmq msg decode 0A00000100002A9F00000000001E8480
      orbitmq msg decode 7F0000011A2B18B4AAC21D9C4F000000 -o json
    """
    from orbitmq.admin.ids import identify
    from orbitmq.admin.results import Result
    from orbitmq.runtime.clock import SystemClock

    now_ms = SystemClock().now_ms()
    return Result([identify(name, now_ms) for name in names])


@reads(app, "query", "MessageList", _ROW)
async def query(
    session: Session,
    topic: TopicArgument,
    key: Key = None,
    begin: Begin = None,
    end: End = None,
    tag: Tag = None,
    property_: Property = None,
    grep: Grep = None,
    broker: Broker = None,
    queue: Queue = None,
    offset: Annotated[
        int | None,
        typer.Option("--offset", min=0, metavar="N", help="The message at this queue offset of --broker and --queue."),
    ] = None,
    limit: Limit = 64,
    oldest_first: Annotated[
        bool, typer.Option("--oldest-first", help="Show the oldest first (default: the newest).")
    ] = False,
    budget: Budget = 10_000,
    form: Form = "auto",
    charset: Charset = "utf-8",
    full: Full = False,
) -> Result[StoredMessage]:
    """Messages of a topic by key, time, offset or content.

    A key is looked up in the brokers' index; other conditions are checked against messages as they are read.

    \b
    Examples:
      orbitmq msg query Orders --key order-4711
      orbitmq msg query Orders --from @2h --grep error --oldest-first
    """
    from orbitmq.admin import messages, scan
    from orbitmq.admin.results import Result
    from orbitmq.errors import ConfigurationError
    from orbitmq.message.model import MessageQueue

    view = view_of(form, charset, full=full)
    wanted = filter_of(begin, end, tag, key, property_, grep)
    if offset is not None:
        if broker is None or queue is None:
            raise ConfigurationError("--offset needs --broker and --queue")
        place = MessageQueue(topic, broker, queue)
        return Result([view(await scan.at_queue_offset(session, place, offset))])
    if key is not None and (tag, property_, grep, broker, queue) == (None,) * 5:
        begin_ms, end_ms = wanted.begin_ms or 0, messages.EVER_MS if wanted.end_ms is None else wanted.end_ms
        found = await messages.by_key(session, topic, key, begin_ms=begin_ms, end_ms=end_ms, limit=limit)
        if not oldest_first:
            found.items.reverse()
    else:
        found = await scan.browse(
            session, topic, wanted, limit=limit, newest_first=not oldest_first, budget=budget, broker=broker,
            queue_id=queue,
        )  # fmt: skip
    return Result([view(one) for one in found.items], found.warnings, found.failures)


@reads(app, "count", "TagCountList", ("TAG=tag", "MESSAGES=messages", "BODIES=bodyBytes"))
async def count(
    session: Session,
    topic: TopicArgument,
    begin: Begin = None,
    end: End = None,
    broker: Broker = None,
    queue: Queue = None,
    budget: Budget = 10_000,
) -> Result[TagCount]:
    """Count messages by tag. All are read; --budget limits how many.

    \b
    Examples:
      orbitmq msg count Orders
      orbitmq msg count Orders --from @1h --budget 1000000
    """
    from orbitmq.admin import scan

    wanted = filter_of(begin, end)
    return await scan.count_by_tag(session, topic, wanted, budget=budget, broker=broker, queue_id=queue)


@streams(
    app,
    "tail",
    "Message",
    ("STORED=storedAtMs", "QUEUE=queueId", "OFFSET=queueOffset", "KEYS=keys", "BODY=body.content"),
)
async def tail(
    session: Session,
    aside: Aside,
    topic: TopicArgument,
    begin: Annotated[
        str,
        typer.Option(
            "--from", metavar="PLACE", help="Where to start: -10 (the last ten), begin, end, offset:N, @2h or a time."
        ),
    ] = "-10",
    until: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Where to stop: end, or a time.")] = None,
    exit_at_end: Annotated[bool, typer.Option("--exit-at-end", "-e", help="The same as --to end.")] = False,
    number: Annotated[
        int | None, typer.Option("--limit", "-c", min=1, metavar="N", help="Stop after N messages.")
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help="%T topic, %k keys, %t tags, %v body, %i id, %b broker, %p queue, %o offset, %s stored (ms), %S size.",
        ),
    ] = None,
    tag: Tag = None,
    key: Key = None,
    property_: Property = None,
    grep: Grep = None,
    broker: Broker = None,
    queue: Queue = None,
    form: Form = "auto",
    charset: Charset = "utf-8",
) -> AsyncIterator[StoredMessage]:
    """Show messages as they arrive, like tail -f; commits nothing. -o jsonl writes what `msg send --jsonl` reads.
    -o json also writes an object per line: an item of the schema, without an envelope.
    Exit code: 5 if a broker did not respond.

    \b
    Examples:
      orbitmq msg tail Orders --from @2h --grep error -f '%k %v\\n'
      orbitmq msg tail Orders -e -o jsonl | orbitmq msg send Copy --jsonl
    """
    from orbitmq.admin import topic_tail
    from orbitmq.runtime.clock import SystemClock

    view = view_of(form, charset, full=True)
    write = None if pattern is None else topic_tail.writer(pattern)
    end = "end" if exit_at_end else until
    wanted = filter_of(None, None, tag, key, property_, grep)
    place = topic_tail.place_of(begin, SystemClock().now_ms())
    stop = topic_tail.stop_of(end, SystemClock().now_ms())
    async for message in topic_tail.tail(
        session, topic, place, stop, wanted, number=number, broker=broker, queue_id=queue, on_failure=aside.failure,
        on_warning=aside.warning,
    ):  # fmt: skip
        shown = view(message)
        if write is None:
            yield shown
        else:
            print(write(shown), end="", file=safe(sys.stdout), flush=True)


@feeds(
    app,
    "send",
    "SentMessage",
    ("ID=msgId", "RESULT=result", "BROKER=brokerName", "QUEUE=queueId", "OFFSET=queueOffset"),
)
async def send(
    session: Session,
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="The topic's name; with --jsonl lines may name it.")
    ] = None,
    bodies: Annotated[
        list[str] | None,
        typer.Argument(metavar="BODY...", help="A message each; without any, each line of standard input is one."),
    ] = None,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Read JSON lines, as `msg tail -o jsonl` writes them.")
    ] = False,
    tags: Annotated[str | None, typer.Option("--tag", metavar="TAG", help="Tag of every message.")] = None,
    keys: Annotated[
        list[str] | None, typer.Option("--key", "-k", metavar="KEY", help="Key of every message; repeatable.")
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=VALUE", help="Property of every message; repeatable."),
    ] = None,
    delay_level: Annotated[
        int, typer.Option("--delay-level", min=0, metavar="N", help="Delay level; 0 delivers at once.")
    ] = 0,
    deliver_after: Annotated[
        float | None,
        typer.Option("--deliver-after", min=0, metavar="SECONDS", help="Deliver then, at brokers of orbitmq and 5.x."),
    ] = None,
    expires_after: Annotated[
        float | None,
        typer.Option("--expires-after", min=0, metavar="SECONDS", help="Consumers of orbitmq skip it then."),
    ] = None,
    ordering_key: Annotated[
        str | None, typer.Option("--ordering-key", metavar="KEY", help="Messages with the same key keep their order.")
    ] = None,
    broker: Broker = None,
    queue: Queue = None,
) -> AsyncIterator[Sent]:
    """Send messages: from arguments, or line by line from standard input.

    A JSON line is an object with body (a text, or form and content), and optionally tags, keys, properties,
    delayLevel, deliverAfterSeconds, expiresAfterSeconds, orderingKey, topic. The topic must exist.

    \b
    Examples:
      orbitmq msg send Orders 'hello' --tag red --key order-4711
      orbitmq msg tail Orders -e -o jsonl | orbitmq msg send Copy --jsonl
    """
    import io
    import sys

    from orbitmq.admin import message_input
    from orbitmq.runtime.clock import SystemClock

    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors=message_input.NO_TEXT)  # bodies are bytes: whatever is piped in arrives as it is
    common = message_input.MessageDefaults(
        topic,
        tags,
        keys or (),
        pairs_of(properties or ()),
        delay_level,
        deliver_after,
        expires_after,
        ordering_key,
        message_input.queue_of(broker, queue),
    )
    async for sent in message_input.feed(session, common, bodies or (), sys.stdin, SystemClock(), jsonl=jsonl):
        yield sent


@changes(app, "resend")
async def resend(
    session: Session,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="ID...", help="Ids of any kind, or keys: the newest of each.")
    ] = None,
    topic: TopicOption = None,
    to: Annotated[str | None, typer.Option("--to", metavar="TOPIC", help="Send a copy to this topic.")] = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", metavar="GROUP", help="Deliver it only to this group, as a retry.")
    ] = None,
    client: Annotated[
        str | None, typer.Option("--client", metavar="ID", help="Deliver it directly to the listener of this member.")
    ] = None,
    dead_of: Annotated[
        str | None, typer.Option("--from-dlq", metavar="GROUP", help="All dead letters of this group, instead of IDs.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only dead letters since then: @2h, 2024-05-01T08:00.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only dead letters until then.")] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", help="At most N a second (default: as fast as possible).")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="N", help="The oldest N of each queue of dead letters.")
    ] = None,
    queues: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="BROKER/ID", help="Only this queue of dead letters; repeatable."),
    ] = None,
) -> Plan:
    """Send stored messages again. A dead letter goes to its group, any other to its topic, unless you say where.

    --group delivers it as a retry of that group; --client too delivers it at once to that member, without a queue.
    --from-dlq takes any number of dead letters. They stay where they are. `orbitmq msg undo` takes back what the group
    has not consumed yet.

    \b
    Examples:
      orbitmq msg resend 0A00000100002A9F00000000001E8480 --dry-run
      orbitmq msg resend --from-dlq billing --since @2h --rate 200
      orbitmq msg resend --from-dlq billing --to Audit --limit 10
    """
    from orbitmq.admin import message_send, resends
    from orbitmq.admin.time_texts import moment_ms
    from orbitmq.errors import BadArgument
    from orbitmq.runtime.clock import SystemClock

    clock = SystemClock()
    if dead_of is None:
        if not names or (since, until, rate, limit, queues) != (None,) * 5:
            raise BadArgument("give ids, or all dead letters of a group", "orbitmq msg resend --from-dlq GROUP")
        return await message_send.plan_resend(session, names, clock, topic=topic, to=to, group=group, client=client)
    if names or (topic, group, client) != (None,) * 3:
        raise BadArgument("--from-dlq takes no ids, --topic, --group or --client", "choose with --since and --until")
    since_ms, until_ms = (None if text is None else moment_ms(text, clock.now_ms()) for text in (since, until))
    return await resends.plan_resend_all(
        session, resends.ResendWish(dead_of, since_ms, until_ms, to, rate, limit, queues or ()), clock
    )


@changes(app, "undo")
async def undo(
    session: Session, file: Annotated[Path, typer.Argument(metavar="FILE", help="The undo file that the change wrote.")]
) -> Plan:
    """Take back dead letters that were sent again and not consumed yet. They are skipped; those behind other messages
    are delivered.

    \b
    Examples:
      orbitmq msg undo ~/.local/state/orbitmq/undo/20240501-080000-4711.json
      orbitmq msg undo before.json --dry-run
    """
    from orbitmq.admin import resends
    from orbitmq.cli import undo_files

    return await resends.plan_undo(session, undo_files.load(file, resends.UNDO))


@reads(
    app, "pending", "PendingHalfList",
    ("ID=msgId", "TOPIC=topic", "GROUP=producerGroup", "AGE=ageMs", "ASKED=checks", "NEXT=nextCheckAtMs",
     "BROKER=brokerName", "+OFFSET ID=offsetMsgId", "+KEYS=keys", "+BORN=bornAtMs", "+HALF OFFSET=halfOffset"),
)  # fmt: skip
async def pending(
    session: Session,
    topic: TopicOption = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", metavar="GROUP", help="Only messages of this producer group.")
    ] = None,
) -> Result[PendingHalf]:
    """Pending transactions, the oldest first. Brokers of RocketMQ do not report them.

    \b
    Examples:
      orbitmq msg pending
      orbitmq msg pending -t Payments --watch 5
    """
    from orbitmq.admin import half_messages

    return await half_messages.pending(session, topic, group)


@reads(
    app, "delayed", "DelayQueueList",
    ("BROKER=brokerName", "LEVEL=level", "WAITING=waitingMessages", "NEXT DUE=nextDueAtMs", "LATE=lateMs",
     "TOPIC=nextTopic", "ID=nextMsgId", "+DELIVERED=deliveredOffset", "+END=endOffset"),
)  # fmt: skip
async def delayed(session: Session) -> Result[DelayQueue]:
    """Delayed messages and retries: how many wait, and which is next. By delay level; those with a time of their own
    have none.

    \b
    Examples:
      orbitmq msg delayed
      orbitmq msg delayed --watch 2
    """
    from orbitmq.admin import delays
    from orbitmq.runtime.clock import SystemClock

    return await delays.delayed(session, SystemClock().now_ms())


@reads(
    app, "timers", "TimerList",
    ("DUE=dueAtMs", "TOPIC=topic", "ID=msgId", "KEYS=keys", "SENT=sentAtMs", "+BROKER=brokerName",
     "+RECALL HANDLE=recallHandle"),
)  # fmt: skip
async def timers(
    session: Session,
    topic: TopicOption = None,
    limit: Limit = 50,
) -> Result[Timer]:
    """Messages with a time of their own, the next ones first. Brokers of RocketMQ do not list them.

    \b
    Examples:
      orbitmq msg timers
      orbitmq msg timers -t Orders -o wide
    """
    from orbitmq.admin import delays

    return await delays.timers(session, limit, topic)


@changes(app, "recall")
async def recall(
    session: Session,
    handle: Annotated[str, typer.Argument(metavar="HANDLE", help="As `msg timers -o wide` or the sender has it.")],
) -> Plan:
    """Stop a message that waits for its time. The broker needs `recallMessageEnable`.

    \b
    Examples:
      orbitmq msg recall djEgT3JkZXJzIGJyb2tlci1hIDE3MDAwMDAwMDAwMDAgN0YwMDAwMDE=
      orbitmq msg timers -o template='$recallHandle' |
        xargs -n1 orbitmq msg recall --yes
    """
    from orbitmq.admin import delays
    from orbitmq.runtime.clock import SystemClock

    return await delays.plan_recall(session, handle, SystemClock().now_ms())


@changes(app, "resume")
async def resume(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="OFFSET-ID", help="As `msg find` or `msg pending -o wide` shows it.")],
) -> Plan:
    """Check a pending transaction again that was given up. Its checks are counted from the start.

    \b
    Examples:
      orbitmq msg resume 0A00000100002A9F00000000001E8480
      orbitmq msg resume 0A00000100002A9F00000000001E8480 --dry-run
    """
    from orbitmq.admin import half_messages

    return await half_messages.plan_resume(session, name)
