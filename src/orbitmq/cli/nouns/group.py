"""Consumer groups on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.verbs import changes, noun, reads

if TYPE_CHECKING:
    from orbitmq.admin.clients import ConsumerMember, Subscription
    from orbitmq.admin.groups import GroupRules, GroupSummary
    from orbitmq.admin.in_flight_messages import InFlightMessage
    from orbitmq.admin.plans import Plan
    from orbitmq.admin.progress import GroupProgress, GroupQueue
    from orbitmq.admin.results import Result
    from orbitmq.admin.session import Session
    from orbitmq.admin.verdict import Finding

app = noun("group", "Consumer groups: list and change them, their lag, and why one does not consume.")

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")]
TopicOption = Annotated[str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Only this topic.")]
Brokers = Annotated[
    list[str] | None,
    typer.Option("--broker", "-b", metavar="BROKER", help="Only at this broker; repeatable (default: every master)."),
]
Consume = Annotated[
    bool | None, typer.Option("--consume-enable/--no-consume-enable", help="Deliver messages to members.")
]
FromMin = Annotated[
    bool | None,
    typer.Option(
        "--consume-from-min-enable/--no-consume-from-min-enable", help="Allow it to begin with the first message."
    ),
]
Broadcast = Annotated[
    bool | None, typer.Option("--consume-broadcast-enable/--no-consume-broadcast-enable", help="Allow broadcasting.")
]
RetryQueues = Annotated[
    int | None, typer.Option("--retry-queue-nums", metavar="N", help="Number of queues of its retry topic.")
]
RetryMax = Annotated[
    int | None,
    typer.Option("--retry-max-times", metavar="N", help="Number of retries before a message becomes a dead letter."),
]
BrokerId = Annotated[
    int | None, typer.Option("--broker-id", metavar="ID", help="Id of the broker to read from; 0 is the master.")
]
SlowId = Annotated[
    int | None,
    typer.Option(
        "--which-broker-when-consume-slowly", metavar="ID", help="Id of the slave to read from when far behind."
    ),
]
Orderly = Annotated[
    bool | None,
    typer.Option("--orderly/--no-orderly", help="Clients of RocketMQ 5 consume in order, or at the same time."),
]
Notify = Annotated[
    bool | None,
    typer.Option(
        "--notify-consumer-ids-changed-enable/--no-notify-consumer-ids-changed-enable",
        help="Notify members at once when one joins or leaves.",
    ),
]


def _given(**rules: bool | int | None) -> dict[str, object]:
    return {name: value for name, value in rules.items() if value is not None}


@reads(
    app,
    "list",
    "GroupList",
    (
        "GROUP=name", "MEMBERS=members", "LAG=lagMessages", "RETRY=retryLagMessages", "DELIVERED/S=handedOutTps",
        "TOPICS=topics", "+VERSION=version", "+MODEL=model", "+KIND=kind", "+BROKERS=brokers",
        "+LEAST LAG=knownLagMessages",
    ),
)  # fmt: skip
async def list_(
    session: Session,
    pattern: Annotated[
        str, typer.Option("--match", metavar="PATTERN", help="Only names that match; * and ? are wildcards.")
    ] = "*",
    system: Annotated[bool, typer.Option("--all", help="Include system groups.")] = False,
    lag: Annotated[bool, typer.Option("--lag/--no-lag", help="Query brokers for the lag of each group.")] = True,
    members: Annotated[
        bool, typer.Option("--members/--no-members", help="Query brokers for the members of each group.")
    ] = True,
) -> Result[GroupSummary]:
    """Groups with their members online and their lag. Every group with settings or offsets at a broker.

    `--no-members` saves a request for each broker and group.

    \b
    Examples:
      orbitmq group list
      orbitmq group list --match 'pay*' -o wide
    """
    from orbitmq.admin import groups

    return await groups.groups(session, pattern=pattern, system=system, lag=lag, members=members)


@reads(
    app,
    "progress",
    "GroupProgress",
    (
        "GROUP=group", "MEMBERS=members", "MODEL=model", "LAG=lagMessages", "RETRY=retryLagMessages",
        "DEAD=deadLetters", "EXPIRED=expiredMessages", "CONSUME/S=consumeTps", "PRODUCE/S=produceTps",
        "DRAIN S=drainSeconds", "DELAY=delayMs", "+LEAST LAG=knownLagMessages", "+SKEW=skew",
        "+LAST CONSUMED AGE=lastConsumedAgeMs", "+DELIVERED/S=handedOutTps", "+LATENCY=latencyMs",
        "+UNOWNED=unownedQueues", "+IDLE CLIENTS=idleClients", "+UNREAD=unreadQueues",
    ),
)  # fmt: skip
async def progress(
    session: Session,
    group: GroupArgument,
    topic: TopicOption = None,
    clients: Annotated[
        bool, typer.Option("--clients/--no-clients", help="Query members for the queues they have.")
    ] = True,
) -> Result[GroupProgress]:
    """A group in one line: lag, rates, time to catch up. Also shows retries and dead letters.

    The lag is unknown (-) while a broker does not respond; the known part is in `knownLagMessages`.

    \b
    Examples:
      orbitmq group progress payments
      orbitmq group progress payments -o json | jq '.items[].queues'
    """
    from orbitmq.admin.progress import progress as asked

    return await asked(session, group, topic, clients=clients)


@reads(
    app,
    "lag",
    "QueueLagList",
    (
        "TOPIC=topic", "BROKER=brokerName", "QUEUE=queueId", "END=maxOffset", "OFFSET=consumerOffset",
        "LAG=lagMessages", "STATE=state", "DELAY=delayMs", "CLIENT=clientId", "+MIN=minOffset",
        "+EXPIRED=expiredMessages", "+LAST CONSUMED=lastConsumedAtMs", "+LAST CONSUMED AGE=lastConsumedAgeMs",
        "+LATENCY=latencyMs",
    ),
)  # fmt: skip
async def lag(
    session: Session,
    group: GroupArgument,
    topic: TopicOption = None,
    clients: Annotated[
        bool, typer.Option("--clients/--no-clients", help="Query members for the queues they have.")
    ] = True,
    above: Annotated[
        int | None, typer.Option("--fail-above", min=0, metavar="N", help="Exit with 8 if the lag is greater.")
    ] = None,
    within: Annotated[
        float,
        typer.Option(
            "--wait", min=0, metavar="SECONDS", help="Repeat until the lag is low enough, for at most SECONDS."
        ),
    ] = 0,
) -> Result[GroupQueue]:
    """Offsets and lag of a group in each queue. Also shows the member that has the queue.

    DELAY is how long the next message has waited. STATE: caughtUp, behind, noOffset, offsetAhead, expired, broadcast,
    unknown.

    \b
    Examples:
      orbitmq group lag payments --watch 2
      orbitmq group lag payments --topic Orders --fail-above 1000
      orbitmq group lag payments --fail-above 0 --wait 60
    """
    from orbitmq.admin.progress import by_queue

    return await by_queue(session, group, topic, clients=clients, above=above, within_seconds=within)


@reads(
    app,
    "in-flight",
    "InFlightMessageList",
    (
        "TOPIC=topic", "BROKER=brokerName", "QUEUE=queueId", "OFFSET=queueOffset", "DELIVERED=deliveredAtMs",
        "REDELIVERED=redeliveredAtMs",
    ),
)  # fmt: skip
async def in_flight(
    session: Session,
    group: GroupArgument,
    topic: TopicOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, metavar="N", help="Show at most N.")] = 100,
) -> Result[InFlightMessage]:
    """Messages delivered to a group and not acknowledged yet.

    Of POP consumption: members of RocketMQ 5's kind, and `SimpleConsumer`. They are redelivered unless they are
    acknowledged in time. Brokers of RocketMQ do not list them.

    \b
    Examples:
      orbitmq group in-flight payments
      orbitmq group in-flight payments -t Orders --watch 2
    """
    from orbitmq.admin import in_flight_messages

    return await in_flight_messages.in_flight_messages(session, group, topic, limit)


@reads(
    app,
    "why",
    "GroupDiagnosis",
    ("SEVERITY=severity", "RULE=rule", "REASON=message", "COMMAND=remedy", "+EVIDENCE=evidence"),
)
async def why(session: Session, group: GroupArgument) -> Result[Finding]:
    """Why a group does not consume, and what to do. Also if it consumes too little, or not what you expect; the worst
    reason first.

    A group with lag is well only if its listeners finish messages. If that is unclear at first, the group is checked
    again after 6 s; what is not clear then is `unknown`, too early to tell.

    Exit code: 0 nothing is critical, 8 something is, 3 no such group, 5 a broker or member does not respond.

    \b
    Examples:
      orbitmq group why payments
      orbitmq group why payments -o json | jq '.items[].evidence'
    """
    from orbitmq.admin.evidence import WATCH_SECONDS
    from orbitmq.admin.evidence import why as asked
    from orbitmq.errors import NotFound

    found = await asked(session, group, watch_seconds=WATCH_SECONDS)
    unknown = next((one for one in found.items if one.rule == "unknown"), None)
    if unknown is not None and not found.failures:
        raise NotFound(unknown.message, unknown.remedy)
    return found


@reads(
    app,
    "connections",
    "MemberList",
    (
        "CLIENT=clientId", "ADDRESS=address", "LANGUAGE=language", "VERSION=version", "BROKERS=brokers",
        "+MISSING=missing",
    ),
)  # fmt: skip
async def connections(session: Session, group: GroupArgument) -> Result[ConsumerMember]:
    """The members of a group that are online at any broker.

    \b
    Examples:
      orbitmq group connections payments
      orbitmq group connections payments -o name
    """
    from orbitmq.admin import clients

    return await clients.connections(session, group)


@reads(
    app,
    "subscriptions",
    "SubscriptionList",
    (
        "TOPIC=topic", "EXPRESSION=expression", "TYPE=expressionType", "CONFLICT=conflict", "CLIENTS=clients",
    ),
)  # fmt: skip
async def subscriptions(session: Session, group: GroupArgument) -> Result[Subscription]:
    """Subscriptions of a group, as its members report them. Where they differ, there is a row per member.

    \b
    Examples:
      orbitmq group subscriptions payments
      orbitmq group subscriptions payments -o json
    """
    from orbitmq.admin import clients

    return await clients.subscriptions(session, group)


@reads(
    app,
    "config",
    "GroupRulesList",
    (
        "GROUP=groupName", "BROKER=brokerName", "CONSUME=consumeEnable", "FROM MIN=consumeFromMinEnable",
        "BROADCAST=consumeBroadcastEnable", "RETRY QUEUES=retryQueueNums", "RETRY MAX=retryMaxTimes",
        "+BROKER ID=brokerId", "+WHEN SLOW=whichBrokerWhenConsumeSlowly",
        "+NOTIFY=notifyConsumerIdsChangedEnable", "+ORDERLY=consumeMessageOrderly",
    ),
)  # fmt: skip
async def config(session: Session, group: GroupArgument) -> Result[GroupRules]:
    """The settings of a group at each broker that has some.

    \b
    Examples:
      orbitmq group config payments
      orbitmq group config payments -o yaml
    """
    from orbitmq.admin import groups

    return await groups.rules(session, group)


@changes(app, "create")
async def create(
    session: Session,
    group: GroupArgument,
    consume: Consume = None,
    from_min: FromMin = None,
    broadcast: Broadcast = None,
    retry_queues: RetryQueues = None,
    retry_max: RetryMax = None,
    broker_id: BrokerId = None,
    slow_id: SlowId = None,
    notify: Notify = None,
    orderly: Orderly = None,
    brokers: Brokers = None,
) -> Plan:
    """Create a group at every master. Settings that you do not give are those of groups that brokers create themselves.

    \b
    Examples:
      orbitmq group create payments --retry-max-times 5
      orbitmq group create payments --no-consume-enable --dry-run
    """
    from orbitmq.admin import groups

    rules = _given(
        consume_enable=consume, consume_from_min_enable=from_min, consume_broadcast_enable=broadcast,
        retry_queue_nums=retry_queues, retry_max_times=retry_max, broker_id=broker_id,
        which_broker_when_consume_slowly=slow_id, notify_consumer_ids_changed_enable=notify,
        consume_message_orderly=orderly,
    )  # fmt: skip
    return await groups.plan_create(session, group, rules, brokers=brokers or ())


@changes(app, "alter")
async def alter(
    session: Session,
    group: GroupArgument,
    consume: Consume = None,
    from_min: FromMin = None,
    broadcast: Broadcast = None,
    retry_queues: RetryQueues = None,
    retry_max: RetryMax = None,
    broker_id: BrokerId = None,
    slow_id: SlowId = None,
    notify: Notify = None,
    orderly: Orderly = None,
    brokers: Brokers = None,
) -> Plan:
    """Change settings of a group at every broker that has it. What you do not give stays as it is.

    \b
    Examples:
      orbitmq group alter payments --consume-enable
      orbitmq group alter payments --retry-max-times 3 --broker broker-a
    """
    from orbitmq.admin import groups

    rules = _given(
        consume_enable=consume, consume_from_min_enable=from_min, consume_broadcast_enable=broadcast,
        retry_queue_nums=retry_queues, retry_max_times=retry_max, broker_id=broker_id,
        which_broker_when_consume_slowly=slow_id, notify_consumer_ids_changed_enable=notify,
        consume_message_orderly=orderly,
    )  # fmt: skip
    return await groups.plan_alter(session, group, rules, brokers=brokers or ())


@changes(app, "delete")
async def delete(
    session: Session,
    group: GroupArgument,
    offsets: Annotated[bool, typer.Option("--offsets", help="Delete its offsets, too.")] = False,
    topics: Annotated[bool, typer.Option("--topics", help="Delete its retry and dead-letter topics, too.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Delete it even while members are online.")] = False,
    brokers: Brokers = None,
) -> Plan:
    """Delete the settings of a group. Refused while a member is online, because its heartbeat would create it again.

    An undo file keeps the settings, and with --offsets the offsets: `orbitmq offset undo FILE`.

    \b
    Examples:
      orbitmq group delete payments --offsets --topics
      orbitmq group delete payments --dry-run
    """
    from orbitmq.admin import groups

    return await groups.plan_delete(session, group, offsets=offsets, topics=topics, force=force, brokers=brokers or ())
