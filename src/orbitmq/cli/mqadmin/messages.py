"""mqadmin commands that read, find and send messages."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

from orbitmq.admin.messages import by_key, by_offset_id, by_unique_id
from orbitmq.admin.scan import QueueScan, Stretch, stretches
from orbitmq.admin.session import present
from orbitmq.admin.traces import Traced, trace
from orbitmq.admin.tracks import tracks
from orbitmq.cli.mqadmin.forms import cells, millisecond, pretty, second, truth
from orbitmq.cli.mqadmin.runner import Work
from orbitmq.cli.mqadmin.times import TO_THE_END, timestamp_ms
from orbitmq.client.producer import Producer
from orbitmq.errors import ConfigurationError, NotFound, OrbitMQError, UnitError
from orbitmq.message.compression import decompress
from orbitmq.message.ids import decode_unique_id
from orbitmq.message.model import Message, MessageExt, MessageQueue
from orbitmq.operations.groups import consumer_connections
from orbitmq.operations.membership import consume_directly
from orbitmq.operations.queries import queue_entries
from orbitmq.wire.objects import plain

PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
CONSUMED_AT_ONCE = 128
"""The default number of messages of `consumeMessage`."""


# ---------------------------------------------------------------------------------------------------------- one message


async def query_msg_by_id(work: Work) -> None:
    given = work.given
    for one in given.text("i").split(","):
        found = await by_offset_id(work.session, one.strip())
        work.failures += found.failures
        if not found.items:
            raise NotFound(f"CODE: 1 DESC: there is no message at the offset that {one} names")
        message = found.items[0]
        if "g" in given and "d" in given:
            await _push(work, message)
        elif given.truth("s", False):
            receipt = await _send(work, _again(message))
            print(f"prepare resend msg. originalMsgId={one}\nsucceed to resend msg. newMsgId={receipt[3]}")
        else:
            await _show(work, message, with_offset_id=True)


async def query_msg_by_unique_key(work: Work) -> None:
    given = work.given
    found = await by_unique_id(work.session, given.text("t"), given.text("i"))
    work.failures += found.failures
    if not found.items:
        raise NotFound(f"no message of topic {given.text('t')} has the unique id {given.text('i')}")
    if "g" in given and "d" in given:
        await _push(work, found.items[-1])
        return
    for message in found.items if "a" in given else found.items[-1:]:
        await _show(work, message, with_offset_id=False)


async def query_msg_by_key(work: Work) -> None:
    found = await by_key(work.session, work.given.text("t"), work.given.text("k"))
    work.failures += found.failures
    print(f"{'#Message ID':<50} {'#QID':>4} {'#Offset':>40}")
    for message in found.items:
        print(f"{message.msg_id:<50} {message.queue_id:>4} {message.queue_offset:>40}")


async def query_msg_by_offset(work: Work) -> None:
    queue = MessageQueue(work.given.text("t"), work.given.text("b"), work.given.number("i", 0))
    offset = work.given.number("o", 0)
    for part in await _at_offset(work, queue, offset):
        async for message in _messages(work, replace(part, end=min(part.end, offset + 1))):
            await _show(work, message, with_offset_id=True)
            return
    raise NotFound(f"queue {queue} has no message at offset {offset}")


async def _show(work: Work, message: MessageExt, *, with_offset_id: bool) -> None:
    path = await asyncio.to_thread(_save_body, message)
    fields = [
        *([("OffsetID", message.offset_msg_id)] if with_offset_id else []),
        ("Topic", message.topic),
        ("Tags", f"[{message.tags or 'null'}]"),
        ("Keys", f"[{message.keys or 'null'}]"),
        ("Queue ID", message.queue_id),
        ("Queue Offset", message.queue_offset),
        ("CommitLog Offset", message.commit_log_offset),
        ("Reconsume Times", message.reconsume_times),
        ("Born Timestamp", millisecond(message.born_timestamp)),
        ("Store Timestamp", millisecond(message.store_timestamp)),
        ("Born Host", message.born_host),
        ("Store Host", message.store_host),
        ("System Flag", message.sys_flag),
        ("Properties", _map(message.properties)),
        ("Message Body Path", path),
    ]
    print("\n".join(f"{f'{name}:':<20} {value}" for name, value in fields))
    found = await tracks(work.session, message)
    print("\n")
    for track in found.items:
        print(
            f"MessageTrack [consumerGroup={track.group}, trackType={track.track}, exceptionDesc={track.note or 'null'}]"
        )


def _map(properties: dict[str, str]) -> str:
    return "{" + ", ".join(f"{key}={value}" for key, value in properties.items()) + "}"


def _body(message: MessageExt) -> bytes:
    """As it was sent; as stored if it cannot be decompressed."""
    try:
        return decompress(message.body, message.sys_flag)
    except UnitError:
        return message.body


def _save_body(message: MessageExt) -> Path:
    """In a new directory, where no other user can place a link; RocketMQ's tool uses a shared one."""
    folder = Path(tempfile.mkdtemp(prefix="rocketmq-msgbodys-"))
    path = folder / "".join(sign for sign in message.msg_id if sign.isalnum())
    path.write_bytes(_body(message))
    return path


async def _push(work: Work, message: MessageExt) -> None:
    """Deliver it to a member at the broker that stores it."""
    group, client = work.given.text("g"), work.given.text("d")
    node = await work.session.node(message.store_host)
    if await consumer_connections(work.session.remoting, node.address, group) is None:
        raise NotFound(f"group {group} has no member online at {node}")
    result = await consume_directly(work.session.remoting, node.address, group, client, message.offset_msg_id)
    outcome = result.consume_result.name if result.consume_result else None
    print(
        f"ConsumeMessageDirectlyResult [order={truth(result.order)}, autoCommit={truth(result.auto_commit)}, "
        f"consumeResult={outcome}, remark={result.remark}, spentTimeMills={result.spent_time_ms}]"
    )


# ------------------------------------------------------------------------------------------------------------- traces


async def query_msg_trace_by_id(work: Work) -> None:
    found = await trace(work.session, work.given.text("i"), work.given.text("t", "RMQ_SYS_TRACE_TOPIC"))
    work.failures += found.failures
    sent = [record for record in found.records if record.kind == "Pub"]
    if sent:
        print(_trace_row("#Type", "#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status"))
    for record in sent:
        print(_trace_row("Pub", *_trace(record, record.cost_ms, success=record.success)))
    ended = {record.request_id: record for record in found.records if record.kind == "SubAfter"}
    groups: dict[str, list[Traced]] = {}
    for record in found.records:
        if record.kind == "SubBefore":
            groups.setdefault(record.group or "", []).append(record)
    for consumed in groups.values():
        print("\n" + _trace_row("#Type", "#ConsumerGroup", "#ClientHost", "#ConsumerTime", "#CostTimes", "#Status"))
        for record in consumed:
            end = ended.get(record.request_id)
            cost_ms, success = (end.cost_ms, end.success) if end else (None, None)
            print(_trace_row("Sub", *_trace(record, cost_ms, success=success)))


def _trace_row(*values: object) -> str:
    return " ".join(
        f"{value!s:<{width}}" for value, width in zip(values, (10, 20, 20, 20, 10, 1), strict=True)
    ).rstrip()


def _trace(record: Traced, cost_ms: int | None, *, success: bool | None) -> tuple[str, ...]:
    at = second(record.at_ms) if record.at_ms is not None else "N/A"
    status = "unknown" if success is None else "success" if success else "failed"
    return record.group or "", (record.client_host or "").partition(":")[0], at, f"{cost_ms or 0}ms", status


# ------------------------------------------------------------------------------------------------------------- reading


async def _parts(work: Work, topic: str, queue: MessageQueue | None, since: str, until: str) -> list[Stretch]:
    """All queues of the topic or one, within the times of these options."""
    found = await stretches(
        work.session, topic, begin_ms=_time(work, since), end_ms=_time(work, until),
        broker=queue.broker_name if queue else None, queue_id=queue.queue_id if queue else None,
    )  # fmt: skip
    work.failures += found.failures
    return found.items


async def _messages(work: Work, part: Stretch, tag: str = "*") -> AsyncIterator[MessageExt]:
    look = QueueScan(work.session, [part], newest_first=False, budget=None, tag=None if tag == "*" else tag)
    async for message in look:
        yield message
    work.failures += look.failures


async def _at_offset(work: Work, queue: MessageQueue, offset: int) -> list[Stretch]:
    """From an offset on; nothing if the queue does not exist."""
    parts = await _parts(work, queue.topic, queue, "", "")
    return [replace(part, begin=max(part.begin, offset)) for part in parts]


def _queue(queue: MessageQueue) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def _time(work: Work, letter: str) -> int | None:
    text = work.given.text(letter) if letter else ""
    if not text:
        return None
    at_ms = timestamp_ms(text)
    if at_ms is None:
        raise ConfigurationError(f"-{letter} {text}: milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS")
    return None if at_ms == TO_THE_END else at_ms


def _line(message: MessageExt, charset: str | None) -> str:
    """As Java prints a message; with `charset` also its body as text."""
    body = _body(message)
    inner = (
        f"Message{{topic='{message.topic}', flag={message.flag}, properties={_map(message.properties)}, "
        f"body={list(body)}, transactionId='{message.transaction_id or 'null'}'}}"
    )
    whole = (
        f"MessageExt [brokerName={message.broker_name}, queueId={message.queue_id}, storeSize={message.store_size}, "
        f"queueOffset={message.queue_offset}, sysFlag={message.sys_flag}, bornTimestamp={message.born_timestamp}, "
        f"bornHost=/{message.born_host}, storeTimestamp={message.store_timestamp}, storeHost=/{message.store_host}, "
        f"msgId={message.offset_msg_id}, commitLogOffset={message.commit_log_offset}, bodyCRC={message.body_crc}, "
        f"reconsumeTimes={message.reconsume_times}, "
        f"preparedTransactionOffset={message.prepared_transaction_offset}, toString()={inner}]"
    )
    text = f" BODY: {body.decode(charset, 'replace')}" if charset is not None else " BODY: NOT PRINT BODY"
    return f"MSGID: {message.msg_id} {whole}{text}"


def _charset(work: Work, *, printed: bool) -> str | None:
    if not printed:
        return None
    name = work.given.text("c", "UTF-8")
    try:
        "".encode(name)
    except LookupError:
        raise ConfigurationError(f"-c {name}: no such character set") from None
    return name


async def print_msg(work: Work) -> None:
    charset = _charset(work, printed=work.given.truth("d", True))
    for part in await _parts(work, work.given.text("t"), None, "b", "e"):
        print(f"minOffset={part.begin}, maxOffset={part.end}, {_queue(part.queue)}")
        async for message in _messages(work, part, work.given.text("s", "*")):
            print(_line(message, charset))
        print("-" * 56)


async def print_msg_by_queue(work: Work) -> None:
    given = work.given
    queue = MessageQueue(given.text("t"), given.text("a"), given.number("i", 0))
    charset = _charset(work, printed=given.truth("d", False))
    tags: Counter[str] = Counter()
    for part in await _parts(work, queue.topic, queue, "b", "e"):
        async for message in _messages(work, part, given.text("s", "*")):
            tags[message.tags or ""] += 1
            if given.truth("p", False):
                print(_line(message, charset))
    if given.truth("f", False):
        for tag, count in tags.most_common():
            print(f"Tag: {tag:<30} Count: {count}")


async def consume_message(work: Work) -> None:
    given = work.given
    topic, left = given.text("t"), given.number("c", CONSUMED_AT_ONCE)
    if ("i" in given and "b" not in given) or ("o" in given and "i" not in given):
        raise ConfigurationError("an offset (-o) needs its queue (-i), and a queue its broker (-b)")
    queue = MessageQueue(topic, given.text("b"), given.number("i", 0)) if "i" in given else None
    if queue is not None and "o" in given:
        parts = await _at_offset(work, queue, given.number("o", 0))
    else:
        parts = await _parts(work, topic, queue, "s", "e")
        parts = [part for part in parts if given.text("b") in ("", part.queue.broker_name)]
    print("Consume ok")
    for part in parts:
        async for message in _messages(work, part):
            if left <= 0:
                return
            left -= 1
            print(_line(message, "UTF-8"))


async def query_cq(work: Work) -> None:
    given = work.given
    topic, group = given.text("t"), given.text("g") or None
    homes = await work.session.homes(topic)
    broker = given.text("b")
    node = await work.session.node(broker) if broker else present(homes[0])
    found = await queue_entries(
        work.session.remoting, node.address, topic, given.number("q", 0), given.number("i", 0), given.number("c", 10),
        group=group,
    )  # fmt: skip
    line = "=" * 38
    subscription = pretty(plain(found.subscription_data)) if found.subscription_data else "null"
    print(f"Subscription data: \n{subscription}\n{line}\nFilter data: \n{found.filter_data or 'null'}\n{line}")
    print(f"Queue data: \nmax: {found.max_queue_index}, min: {found.min_queue_index}\n{line}")
    for index, entry in enumerate(found.queue_data, given.number("i", 0)):
        print(f"idx: {index}")
        print(
            f"ConsumeQueueData{{physicOffset={entry.physical_offset}, physicSize={entry.physical_size}, "
            f"tagsCode={entry.tags_code}, extendDataJson='{entry.extend_data_json or 'null'}', "
            f"bitMap='{entry.bit_map or 'null'}', eval={truth(entry.eval)}, msg='{entry.msg or 'null'}'}}\n{line}"
        )


async def decode_message_id(work: Work) -> None:
    """The content of a unique id: the address of the producer, and the time."""
    text = work.given.text("i")
    made = decode_unique_id(text, time.time_ns() // 1_000_000)
    print(f"ip={ip_address(made.ip)}\ndate={millisecond(made.created_ms)}")


# ------------------------------------------------------------------------------------------------------------- sending


def _again(message: MessageExt) -> Message:
    """The message to send again, without the properties that the system added."""
    return Message(message.topic, _body(message), tags=message.tags or "", keys=message.keys or "", flag=message.flag)


async def _send(
    work: Work, message: Message, queue: MessageQueue | None = None, *, traced: bool = False
) -> tuple[object, ...]:
    """Broker, queue, outcome and id of one send."""
    async with work.producer(PRODUCER_GROUP, enable_trace=traced) as producer:
        return await _sent(producer, message, queue)


async def _sent(producer: Producer, message: Message, queue: MessageQueue | None) -> tuple[object, ...]:
    receipt = await producer.send(message, queue=queue)
    return receipt.queue.broker_name, receipt.queue.queue_id, receipt.status.name, receipt.msg_id


async def send_message(work: Work) -> None:
    given = work.given
    topic = given.text("t")
    if "i" in given and "b" not in given:
        raise ConfigurationError("-b broker must be given with -i qid")
    queue = MessageQueue(topic, given.text("b"), given.number("i", 0)) if "b" in given else None
    message = Message(topic, given.text("p").encode(), tags=given.text("c"), keys=given.text("k"))
    row = await _send(work, message, queue, traced=given.truth("m", False))
    print(_sent_row("#Broker Name", "#QID", "#Send Result", "#MsgId"))
    print(_sent_row(*row))


def _sent_row(*values: object) -> str:
    return cells(*zip(values, (-32, -4, -20, -1), strict=True)).rstrip()


async def check_msg_send_rt(work: Work) -> None:
    given = work.given
    topic, amount = given.text("t"), given.number("a", 100)
    message = Message(topic, b"a" * given.number("s", 128))
    times: list[float] = []
    print(_sent_row("#Broker Name", "#QID", "#Send Result", "#RT"))
    async with work.producer(PRODUCER_GROUP) as producer:
        for _ in range(amount):
            began = time.perf_counter()
            broker, number, outcome, _id = await _sent(producer, message, None)
            times.append((time.perf_counter() - began) * 1000)
            print(_sent_row(broker, number, truth(outcome == "SEND_OK"), round(times[-1])))
    counted = times[1:] or times
    print(f"Avg RT: {sum(counted) / len(counted) if counted else 0:.2f}")


async def send_msg_status(work: Work) -> None:
    given = work.given
    broker = given.text("b")
    message = Message(broker, b"a" * given.number("s", 128))
    async with work.producer(PRODUCER_GROUP) as producer:
        await producer.send(message)  # not reported: it opens the connection
        for _ in range(given.number("c", 50)):
            began = time.perf_counter()
            receipt = await producer.send(message)
            took_ms = round((time.perf_counter() - began) * 1000)
            print(
                f"rt={took_ms}ms, SendResult=SendResult [sendStatus={receipt.status.name}, msgId={receipt.msg_id}, "
                f"offsetMsgId={receipt.offset_msg_id}, messageQueue={_queue(receipt.queue)}, "
                f"queueOffset={receipt.queue_offset}]"
            )


async def cluster_rt(work: Work) -> None:
    """Repeats until Ctrl-C, as RocketMQ's tool does."""
    given = work.given
    print(_rt_row("#Cluster Name", "#Broker Name", "#RT", "#successCount", "#failCount"))
    message_size, amount = given.number("s", 128), max(1, given.number("a", 100))
    while True:
        for node in await work.session.masters():
            if given.text("c") in ("", node.cluster):
                row = await _round_trips(work, node.name, message_size, amount)
                print(_rt_row(node.cluster, node.name, *row), flush=True)
        await asyncio.sleep(max(1, given.number("i", 10)))


async def _round_trips(work: Work, broker: str, size: int, amount: int) -> tuple[object, ...]:
    times: list[float] = []
    failed = 0
    async with work.producer(PRODUCER_GROUP) as producer:
        for _ in range(amount):
            began = time.perf_counter()
            try:
                await producer.send(Message(broker, b"a" * size))
            except OrbitMQError:
                failed += 1
            else:
                times.append((time.perf_counter() - began) * 1000)
    counted = times[1:] or times
    return f"{sum(counted) / len(counted):.2f}" if counted else "-", len(times), failed


def _rt_row(*values: object) -> str:
    return "  ".join(str(value).ljust(width) for value, width in zip(values, (24, 24, 8, 16, 16), strict=True)).rstrip()


COMMANDS = {
    "queryMsgById": query_msg_by_id,
    "queryMsgByUniqueKey": query_msg_by_unique_key,
    "queryMsgByKey": query_msg_by_key,
    "queryMsgByOffset": query_msg_by_offset,
    "queryMsgTraceById": query_msg_trace_by_id,
    "printMsg": print_msg,
    "printMsgByQueue": print_msg_by_queue,
    "consumeMessage": consume_message,
    "queryCq": query_cq,
    "DecodeMessageId": decode_message_id,
    "sendMessage": send_message,
    "checkMsgSendRT": check_msg_send_rt,
    "sendMsgStatus": send_msg_status,
    "clusterRT": cluster_rt,
}
