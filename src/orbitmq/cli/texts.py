"""Results that are shown as text instead of a table, from the same plain objects. Knows no session.

Texts of messages and clients must not control the terminal: characters that cannot be printed are replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from orbitmq.runtime.printable import printable

Item = dict[str, Any]

BAR = 24
"""Length of the longest bar, in characters."""


def _clean(text: object) -> str:
    return printable(str(text).replace("\n", " ").replace("\t", " "))


def _body(text: str) -> str:
    return "\n".join(_clean(line) for line in text.replace("\t", "    ").split("\n"))


def _time(at_ms: int | None) -> str:
    if at_ms is None:
        return "-".ljust(23)
    try:
        return datetime.fromtimestamp(at_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S.") + f"{at_ms % 1000:03d}"
    except (ValueError, OverflowError, OSError):
        return str(at_ms).ljust(23)


def history(item: Item) -> str:
    """The summary, and below it the events by time."""
    lines = [_clean(item["sentence"])]
    events = item["timeline"]
    if events:
        lines.append("")
        width = max(len(event["kind"]) for event in events)
        lines += [f"  {_time(event['atMs'])}  {event['kind']:{width}}  {_clean(event['text'])}" for event in events]
    if item["traceNote"] and item["state"] != "notFound":
        lines += ["", f"  no trace: {_clean(item['traceNote'])}"]
    return "\n".join(lines) + "\n\n"


def message(item: Item) -> str:
    """Every field, and the body below them."""
    body = item["body"]
    fields = {
        "topic": item["topic"] if item["topic"] == item["realTopic"] else f"{item['topic']} (of {item['realTopic']})",
        "queue": f"{item['brokerName']}, queue {item['queueId']}, offset {item['queueOffset']}",
        "id": item["msgId"],
        "offset id": item["offsetMsgId"],
        "tags": item["tags"],
        "keys": " ".join(item["keys"]) or None,
        "born": f"{_time(item['bornAtMs'])} at {item['bornHost']}",
        "stored": f"{_time(item['storedAtMs'])} at {item['storeHost']}, log offset {item['commitLogOffset']}",
        "size": f"{item['sizeBytes']} bytes stored" + (f", body {body['sizeBytes']}" if body else ""),
        "failed": item["reconsumeTimes"] or None,
        "delay level": item["delayLevel"],
        "transaction": item["transaction"],
        "compression": body["compression"] if body else None,
    }
    lines = [f"{name:12} {_clean(value)}" for name, value in fields.items() if value is not None]
    lines += [f"{'property':12} {_clean(name)} = {_clean(value)}" for name, value in sorted(item["properties"].items())]
    if body:
        lines += ["", _body(body["content"])]
        if body["truncated"]:
            lines.append(f"[the beginning of {body['sizeBytes']} bytes; all of it with --full]")
        if body["problem"]:
            lines.append(f"[{_clean(body['problem'])}]")
    return "\n".join(lines) + "\n\n"


def graph(item: Item) -> str:
    """The send, decisions and deliveries, one per line, with a bar for the duration of each."""
    nodes = list(_nodes(item))
    longest = max((node["costTime"] for _, node in nodes), default=0)
    lines = []
    for name, node in nodes:
        cost = node["costTime"]
        bar = "█" * max(1, round(BAR * cost / longest)) if cost > 0 and longest > 0 else "·"
        took = f"{cost} ms" if cost >= 0 else "unknown"
        state = node["transactionState"] or node["status"]
        begin = _time(node["beginTimestamp"] if node["beginTimestamp"] >= 0 else None)
        lines.append(f"{begin}  {bar:{BAR}}  {took:>10}  {state:<16}  {_clean(name)}")
    return "\n".join(lines) + "\n" if lines else ""


def _nodes(item: Item) -> Iterator[tuple[str, Mapping[str, Any]]]:
    producer = item["producerNode"]
    if producer:
        node = producer["traceNode"]
        yield f"{producer['groupName']} at {node['clientHost']} sent it to {node['storeHost']}", node
        for decision in producer["transactionNodeList"]:
            checked = " after a check" if decision["fromTransactionCheck"] else ""
            yield f"{producer['groupName']} at {decision['clientHost']} decided{checked}", decision
    for group in item["subscriptionNodeList"]:
        for node in group["consumeNodeList"]:
            again = f", retry {node['retryTimes']}" if node["retryTimes"] > 0 else ""
            yield f"{group['subscriptionGroup']} at {node['clientHost']} consumed it{again}", node


TEXTS: Mapping[str, Callable[[Item], str]] = {"MessageStory": history, "Message": message, "TraceGraph": graph}
"""Kind -> the text of one item."""
