"""Messages on pages: the ones that a request selects, a row of each, files of them. Knows no template."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from markupsafe import Markup

from orbitmq.admin import message_pages
from orbitmq.admin.bodies import ANY_CHARSET, SHOWN_BYTES, Body, BodyForm, StoredMessage, body_view, shown, typed_view
from orbitmq.admin.envelope import plain, rfc3339
from orbitmq.admin.message_pages import PageCursor
from orbitmq.admin.messages import by_offset_id
from orbitmq.admin.scan import BUDGET, MessageFilter
from orbitmq.admin.session import Session
from orbitmq.admin.time_texts import moment_ms
from orbitmq.dashboard.json_tree import json_tree
from orbitmq.dashboard.routes import DashboardRequest, Download, Fields
from orbitmq.errors import (
    AdminError,
    BadField,
    BrokerAway,
    ConfigurationError,
    NotFound,
    SchemaIllegal,
    UnitError,
    WrongBody,
)
from orbitmq.message.model import MessageExt
from orbitmq.runtime.languages import gettext
from orbitmq.runtime.printable import readable_json
from orbitmq.schemas.model import SCHEMA_ID, Schema
from orbitmq.schemas.reading import BINARY

ROWS = ("20", "50", "100", "200")
BUDGET_MAX = 100_000  # messages that one page reads: some ten seconds for a broker
BEGINNING_BYTES = 160  # of a body in a list
KEYS_CHARS_MAX = 60  # of a row; longer ones are shown below it
UNPACKED_MAX = 1 << 20  # of a body in a list: larger ones are decompressed only on the page of the message
FILE_BYTES_MAX = 32 << 20  # of bodies in one file; further ones are truncated and marked
TREES = (BodyForm.AUTO, BodyForm.JSON)
"""Forms in which JSON is shown so that it folds."""
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

    @property
    def is_filtered(self) -> bool:
        """Whether there are conditions besides the topic."""
        return any(self.fields.get(name) for name in ("broker", "queue", "offset", "begin", "end", *FILTERS[3:]))

    def lasting_link(self, path: str, mark: str) -> str:
        """The same page for somebody else, and later: times that count from now become points in time."""
        wanted = self.request.wanted
        times = {"begin": wanted.begin_ms, "end": wanted.end_ms}
        fixed = {name: rfc3339(at_ms) or "" for name, at_ms in times.items() if at_ms is not None}
        return replace(self, fields={**self.fields, **fixed}).link(path, mark=mark or None)

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

    @property
    def has_more(self) -> bool:
        """Whether it is worth unfolding: it is cut, JSON that folds, or has keys that do not fit."""
        is_json = self.beginning.lstrip()[:1] in ("{", "[")
        return self.is_cut or not self.is_text or is_json or len(" ".join(self.message.keys)) > KEYS_CHARS_MAX


def row(message: MessageExt, schema: Schema | None = None) -> Row:
    """The first bytes of its body, of one with a schema those of its JSON; if it is too large to decompress, only that
    it is compressed.
    """
    view = shown(message, None)
    if schema is not None:
        with contextlib.suppress(
            ConfigurationError, SchemaIllegal, UnitError, WrongBody
        ):  # its own page has the reason
            typed = typed_view(message.body, message.sys_flag, schema, None)
            line = " ".join(typed.content.split())
            return Row(view, line[:BEGINNING_BYTES], is_text=True, is_cut=len(line) > BEGINNING_BYTES)
    body = body_view(
        message.body, message.sys_flag, charset=ANY_CHARSET, limit=BEGINNING_BYTES, unpacked_max=UNPACKED_MAX
    )
    if body.problem is not None:
        text = gettext("%(form)s, %(size)s bytes packed") % {"form": body.compression, "size": len(message.body)}
        return Row(view, text, is_text=False, is_cut=True)
    is_json = body.form == BodyForm.TEXT and body.content.lstrip()[:1] in ("{", "[")
    content = readable_json(body.content) if is_json else body.content
    return Row(view, content, body.form == BodyForm.TEXT, body.truncated)


async def rows(messages: Sequence[MessageExt], schemas: Iterable[Schema] = ()) -> list[Row]:
    """One row each, off the event loop: two hundred bodies may decompress to as many MiB."""
    by_id = {one.id: one for one in schemas}
    return await asyncio.to_thread(lambda: [row(one, by_id.get(one.properties.get(SCHEMA_ID, ""))) for one in messages])


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


def with_body(
    found: MessageExt,
    form: BodyForm = BodyForm.AUTO,
    charset: str = ANY_CHARSET,
    schema: Schema | None = None,
) -> tuple[StoredMessage, Markup | None, str]:
    """The message with its body, the body as a tree if it is JSON, and its format."""
    view = shown(found, form, charset, SHOWN_BYTES, schema)
    assert view.body is not None, "it was requested"
    tree = json_tree(view.body.content) if form in TREES and not view.body.truncated else None
    return view, tree, _format(view.body, is_json=tree is not None)


def _format(body: Body, *, is_json: bool) -> str:
    """The form that was found, and the charset: `json, gb18030`."""
    form = BodyForm.JSON.value if is_json and body.form not in BINARY else body.form
    return f"{form}, {body.charset}" if body.charset else form


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
