"""Results that are shown as text instead of a table, from the same plain objects. Knows no session.

Texts of messages and clients must not control the terminal: characters that cannot be printed are replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from orbitmq.admin.envelope import RFC3339, at_ms_of
from orbitmq.cli.wrapping import NARROW, remedy_lines, wrapped
from orbitmq.runtime.error_texts import translated
from orbitmq.runtime.languages import N_, gettext
from orbitmq.runtime.printable import printable, readable_json
from orbitmq.runtime.wide_text import width as columns_of
from orbitmq.runtime.wide_text import wrapped as lines_of

Item = dict[str, Any]

WORDS = (
    # What happened to a message.
    N_("born"), N_("due"), N_("checked"), N_("rolledBack"), N_("givenUp"), N_("retry"), N_("sent"), N_("consuming"),
    # Fields of a message.
    N_("topic"), N_("queue"), N_("id"), N_("offset id"), N_("tags"), N_("keys"), N_("size"), N_("delay level"),
    N_("transaction"), N_("compression"), N_("property"),
    # What a step of a change does.
    N_("set"), N_("put"), N_("remove"), N_("recall"),
)  # fmt: skip
"""Words of results that a terminal shows in the language of the user; those of severities and outcomes are the web
page's.
"""

BAR = 24
"""Length of the longest bar, in characters."""


def _clean(text: object) -> str:
    return printable(str(text).replace("\n", " ").replace("\t", " "))


def _said(text: object) -> str:
    """A sentence of ours, in the language of the user."""
    return _clean(translated(str(text)))


def _padded(text: str, columns: int) -> str:
    return f"{text}{'':{max(0, columns - columns_of(text))}}"


def _hanging(head: str, text: str, width: int) -> list[str]:
    """The text behind its head, and what does not fit below its beginning."""
    room = width - columns_of(head)
    if room < NARROW:
        return [head + text]
    first, *rest = lines_of(text, room)
    return [head + first, *(" " * columns_of(head) + line for line in rest)]


def _body(text: str) -> str:
    return "\n".join(_clean(line) for line in text.replace("\t", "    ").split("\n"))


def _time(at_ms: int | None) -> str:
    if at_ms is None:
        return "-".ljust(23)
    try:
        return datetime.fromtimestamp(at_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S.") + f"{at_ms % 1000:03d}"
    except (ValueError, OverflowError, OSError):
        return str(at_ms).ljust(23)


def _local(found: re.Match[str]) -> str:
    """A moment of a sentence, as those of the timeline below it."""
    at_ms = at_ms_of(found[0])
    return found[0] if at_ms is None else _time(at_ms)


def history(item: Item, width: int = 0) -> str:
    """The summary, and below it the events by time."""
    sentence = _said(item["sentence"])
    lines = [wrapped(RFC3339.sub(_local, sentence), width) if width else sentence]
    events = item["timeline"]
    if events:
        lines.append("")
        kinds = [str(event["kind"]) for event in events]
        kinds = list(map(gettext, kinds)) if width else kinds
        longest = max(map(columns_of, kinds))
        for kind, event in zip(kinds, events, strict=True):
            lines += _hanging(f"  {_time(event['atMs'])}  {_padded(kind, longest)}  ", _said(event["text"]), width)
    if item["traceNote"] and item["state"] != "notFound":
        note = _said(f"no trace: {item['traceNote']}")
        lines += ["", wrapped(note, width, "  ") if width else f"  {note}"]
    return "\n".join(lines) + "\n\n"


def message(item: Item, width: int = 0) -> str:
    """Every field, and the body below them; on a terminal, which has a `width`, JSON is indented."""
    body = item["body"]
    _ = gettext if width else str
    place = _("{broker}, queue {queue}, offset {offset}")
    moment = _("{time} at {place}")
    of_topic = _("{topic} (of {original})")
    is_copy = item["topic"] != item["realTopic"]
    fields = {
        "topic": of_topic.format(topic=item["topic"], original=item["realTopic"]) if is_copy else item["topic"],
        "queue": place.format(broker=item["brokerName"], queue=item["queueId"], offset=item["queueOffset"]),
        "id": item["msgId"],
        "offset id": item["offsetMsgId"],
        "tags": item["tags"],
        "keys": " ".join(item["keys"]) or None,
        "born": moment.format(time=_time(item["bornAtMs"]), place=item["bornHost"]),
        "stored": moment.format(time=_time(item["storedAtMs"]), place=item["storeHost"])
        + _(", log offset {offset}").format(offset=item["commitLogOffset"]),
        "size": _("{size} bytes stored").format(size=item["sizeBytes"])
        + (_(", body {size}").format(size=body["sizeBytes"]) if body else ""),
        "failed": item["reconsumeTimes"] or None,
        "delay level": item["delayLevel"],
        "transaction": item["transaction"],
        "compression": body["compression"] if body else None,
    }
    shown = [(name, value) for name, value in fields.items() if value is not None]
    shown += [("property", f"{name} = {value}") for name, value in sorted(item["properties"].items())]
    lines = [f"{_padded(_(name), 12)} {_clean(value)}" for name, value in shown]
    if body:
        lines += ["", _body(_indented(body) if width else body["content"])]
        if body["truncated"]:
            lines.append(translated(f"[the beginning of {body['sizeBytes']} bytes; all of it with --full]"))
        if body["problem"]:
            lines.append(f"[{_said(body['problem'])}]")
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
        lines.append(f"{begin}  {bar:{BAR}}  {took:>10}  {state:<16}  {_said(name)}")
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


def _indented(body: Item) -> str:
    """JSON with its numbers as they are written; any other text as it is."""
    content = str(body["content"])
    if body["form"] != "text" or body["truncated"] or not content.lstrip().startswith(("{", "[")):
        return content
    try:
        return readable_json(msgspec.json.format(content, indent=2))
    except msgspec.DecodeError:
        return content


def stack(item: Item) -> str:
    """The stacks of one client, frame by frame."""
    return f"{_clean(item['clientId'])}\n\n{_body((item['stack'] or 'no stack').rstrip())}\n\n"


def finding(item: Item, width: int) -> str:
    """What was found, and below it what to do: a command has a line of its own, which can be copied whole."""
    is_well = item["severity"] == "well"
    severity = str(item["severity"])
    head = f"{_padded(gettext(severity), 9)} {_clean(item['rule'])}"
    if is_well:
        lines = [wrapped(f"{head}: {_said(item['message'])}", width)]
    else:
        lines = [f"{head}  {_clean(item['subject'])}", wrapped(_said(item["message"]), width, "  ")]
    if item["remedy"]:
        lines.append(remedy_lines(_said(item["remedy"]), width))
    return "\n".join(lines) + ("\n" if is_well else "\n\n")


def step(item: Item, width: int) -> str:
    """One step of a change, and below it what it changes."""
    outcome, target, action, subject = (str(item[name]) for name in ("outcome", "target", "action", "subject"))
    head = f"{_padded(gettext(outcome), 9)} {deed(target, action, subject)}"
    return "\n".join([wrapped(head, width), *(wrapped(line, width, "  ") for line in _differences(item))]) + "\n"


def deed(target: str, action: str, subject: str) -> str:
    """What a step does, in the language of the user."""
    return f"{_clean(target)}: {_said(gettext(action))} {_said(subject)}"


def _differences(item: Item) -> Iterator[str]:
    before, after = item["before"], item["after"]
    if isinstance(before, dict) or isinstance(after, dict):
        old, new = before or {}, after or {}
        for name in dict.fromkeys([*old, *new]):
            if old.get(name) != new.get(name):
                yield _difference(f"{name}: ", old.get(name), new.get(name))
    elif before != after:
        yield _difference("", before, after)


def _difference(name: str, before: object, after: object) -> str:
    old, new = ("-" if one is None else _clean(one) for one in (before, after))
    return f"{_clean(name)}{new}" if before is None else f"{_clean(name)}{old} -> {new}"


TEXTS: Mapping[str, Callable[[Item], str]] = {
    "MessageStory": history, "Message": message, "TraceGraph": graph, "ClientStack": stack,
}  # fmt: skip
"""Kind -> the text of one item."""
ON_TERMINAL: Mapping[str, Callable[[Item, int], str]] = {
    "MessageStory": history, "Message": message, "GroupDiagnosis": finding, "ClusterHealth": finding,
    "Examination": finding, "Plan": step, "ConfigDifferences": step,
}  # fmt: skip
"""Kind -> the text of one item on a terminal of so many columns. In a pipe findings are a table."""
