"""Messages on pages: the ones that a request selects, a row of each, files of them. Knows no template."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from orbitmq.admin import message_pages
from orbitmq.admin.bodies import SHOWN_BYTES, BodyForm, StoredMessage, body_view, shown
from orbitmq.admin.envelope import plain
from orbitmq.admin.message_pages import PageCursor
from orbitmq.admin.messages import by_offset_id
from orbitmq.admin.scan import BUDGET, MessageFilter
from orbitmq.admin.session import Session
from orbitmq.admin.time_texts import moment_ms
from orbitmq.dashboard.routes import DashboardRequest, Download, Fields
from orbitmq.errors import AdminError, BadField, BrokerAway, NotFound
from orbitmq.message.model import MessageExt

ROWS = ("20", "50", "100", "200")
BUDGET_MAX = 100_000  # messages that one page reads: some ten seconds for a broker
BEGINNING_BYTES = 160  # of a body in a list
UNPACKED_MAX = 1 << 20  # of a body in a list: larger ones are decompressed only on the page of the message
FILE_BYTES_MAX = 32 << 20  # of bodies in one file; further ones are truncated and marked
ID_CHARS_MAX = 64  # of an offset id: 32, with an IPv6 address 56
FILTERS = ("topic", "broker", "queue", "tag", "key", "property", "text")
FIELDS = (*FILTERS, "begin", "end", "offset", "order", "rows", "budget")
COLUMNS = (
    "topic", "brokerName", "queueId", "queueOffset", "msgId", "offsetMsgId", "storedAt", "bornAt", "bornHost", "tags",
    "keys", "reconsumeTimes", "sizeBytes", "properties", "bodyForm", "body", "bodyTruncated",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """The fields of a request for messages."""

    request: message_pages.PageRequest
    newest_first: bool
    rows: int
    budget: int
    mark: PageCursor | None
    fields: Mapping[str, str]
    """As given, for the form and for links; without the mark."""

    @property
    def is_key_only(self) -> bool:
        """Whether the key index of the brokers suffices, so that no message has to be scanned."""
        wanted = self.request.wanted
        others = (
            wanted.tag,
            wanted.property,
            wanted.text,
            self.request.broker,
            self.request.queue_id,
            self.request.offset,
        )
        return wanted.key is not None and all(one is None for one in others)

    def link(self, path: str, names: Sequence[str] = FIELDS, **more: str | None) -> str:
        """A link to another page with the same fields."""
        selected = {name: self.fields[name] for name in names if self.fields.get(name)}
        return f"{path}?{urlencode({**selected, **{name: one for name, one in more.items() if one}})}"


def message_query(request: DashboardRequest) -> MessageQuery:
    """The fields of the query. BadField names the one that is wrong."""
    query = request.query
    fields = {name: query.text(name) for name in FIELDS}
    mark = query.text("mark", at_most=message_pages.MARK_CHARS_MAX)
    queue = query.optional("queue", high=1 << 31)
    offset = query.optional("offset")
    order = query.choice("order", ("newest", "oldest"), "newest" if offset is None else "oldest")
    topic, conditions = query.needed("topic", at_most=255), wanted(query, request.now_ms)
    return MessageQuery(
        message_pages.PageRequest(topic, conditions, fields["broker"] or None, queue, offset),
        order == "newest",
        int(query.choice("rows", ROWS, "50")),
        query.number("budget", BUDGET, low=1, high=BUDGET_MAX),
        message_pages.read(mark) if mark else None,
        fields,
    )


def wanted(fields: Fields, now_ms: int) -> MessageFilter:
    """The conditions."""
    name, sign, value = fields.text("property").partition("=")
    if name and not (sign and value):
        raise BadField(f"property is {name!r}; use NAME=VALUE")
    return MessageFilter(
        _moment(fields, "begin", now_ms),
        _moment(fields, "end", now_ms),
        fields.text("tag") or None,
        fields.text("key") or None,
        (name, value) if name else None,
        fields.text("text") or None,
    )


def _moment(fields: Fields, name: str, now_ms: int) -> int | None:
    text = fields.text(name)
    try:
        return moment_ms(text, now_ms) if text else None
    except (AdminError, OverflowError) as error:
        raise BadField(f"{name}: {error}", error.hint if isinstance(error, AdminError) else None) from error


@dataclass(frozen=True, slots=True)
class Row:
    """A message in a list."""

    message: StoredMessage
    beginning: str
    """Size of the body."""
    is_text: bool
    is_cut: bool


def row(message: MessageExt) -> Row:
    """The first bytes of its body; if it is too large to decompress, only that it is compressed."""
    body = body_view(message.body, message.sys_flag, limit=BEGINNING_BYTES, unpacked_max=UNPACKED_MAX)
    view = shown(message, None)
    if body.problem is not None:
        return Row(view, f"{body.compression}, {len(message.body)} bytes packed", is_text=False, is_cut=True)
    return Row(view, body.content, body.form == BodyForm.TEXT, body.truncated)


async def rows(messages: Sequence[MessageExt]) -> list[Row]:
    """One row each, off the event loop: two hundred bodies may decompress to as many MiB."""
    return await asyncio.to_thread(lambda: [row(one) for one in messages])


async def one_message(session: Session, offset_id: str) -> MessageExt:
    """The message of an offset id, its body as stored. BrokerAway if its broker does not respond."""
    if len(offset_id) > ID_CHARS_MAX:
        raise NotFound("this is not an offset id")
    found = await by_offset_id(session, offset_id)
    if found.items:
        return found.items[0]
    if found.failures:
        silent = found.failures[0]
        raise BrokerAway(f"{offset_id} was not found, and {silent.target} does not respond", silent.hint or "try again")
    raise NotFound(f"there is no message {offset_id} (any more)", "its log may have expired; search for its unique id")


def files(messages: Iterable[MessageExt], name: str, form: str) -> Download:
    """All of them as a file: JSON lines for `orbitmq msg send --jsonl`, or CSV for a spreadsheet."""
    views, left = [], FILE_BYTES_MAX
    for message in messages:
        view = shown(message, BodyForm.AUTO, limit=max(left, SHOWN_BYTES))
        left -= min(view.body.size_bytes if view.body else 0, max(left, 0))
        views.append(plain(view))
    text = _csv(views) if form == "csv" else "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in views)
    return Download(f"{name}.{form}", "application/octet-stream", text.encode("utf-8", "backslashreplace"))


def _csv(views: Iterable[Mapping[str, object]]) -> str:
    written = io.StringIO()
    lines = csv.writer(written)
    lines.writerow(COLUMNS)
    for one in views:
        body = one["body"]
        assert isinstance(body, dict), "files have bodies"
        values = {**one, "bodyForm": body["form"], "body": body["content"], "bodyTruncated": body["truncated"]}
        lines.writerow([_cell(values[column]) for column in COLUMNS])
    return written.getvalue()


def _cell(value: object) -> object:
    """Prefixes an apostrophe to a text that a spreadsheet would take for a formula."""
    if isinstance(value, list):
        value = " ".join(map(str, value))
    elif isinstance(value, dict):
        value = json.dumps(value, ensure_ascii=False)
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
