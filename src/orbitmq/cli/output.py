"""Writes results: as a table on a terminal, or as JSON, lines, YAML, CSV, names, or with a template. Only results go to
standard output; everything else goes to standard error.

Columns are `HEADING=path` in the item's JSON; a dot separates nested fields, and a leading `+` shows the column in wide
tables only. The end of a path is its unit and decides the format in a table: `Bytes`, `Ms`, `AtMs`, `Ratio`. On a
terminal long values are folded, and rows that do not fit are shown as records; nothing is cut.
"""

from __future__ import annotations

import csv
import io
import json
import string
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Literal, TextIO

from orbitmq.admin.envelope import envelope, plain
from orbitmq.admin.results import Result
from orbitmq.cli import texts
from orbitmq.cli.safe_output import safe
from orbitmq.cli.wrapping import columns as columns_of_terminal
from orbitmq.cli.wrapping import wrapped
from orbitmq.errors import ConfigurationError
from orbitmq.runtime.error_texts import translated
from orbitmq.runtime.printable import printable, printable_json

FORMATS = ("table", "wide", "json", "jsonl", "yaml", "csv", "name")
TEMPLATE = "template="
UNKNOWN = "-"
GAP = 2
"""Columns between those of a table."""
EXACT_BELOW_MS = 10
"""Shorter durations are shown with fractions of a millisecond."""


def check(form: str) -> str:
    """ConfigurationError for an unknown format."""
    if form in FORMATS or form.startswith(TEMPLATE):
        return form
    raise ConfigurationError(f"-o {form}: use one of {', '.join(FORMATS)} or template='$name ...'")


def write(
    kind: str,
    found: Result[Any],
    columns: Sequence[str],
    form: str,
    *,
    cluster: str | None,
    now_ms: int,
    stream: TextIO | None = None,
) -> None:
    """Write a whole result. In formats without an envelope the caller reports warnings and failures."""
    stream = stream or sys.stdout
    text = safe(stream)
    if form in ("json", "yaml"):
        document = envelope(kind, found, cluster, now_ms)
        text.write(_json(document) + "\n" if form == "json" else _yaml(document))
        return
    items = [plain(item, kind) for item in found.items]
    if form == "table" and kind in texts.ON_TERMINAL and stream.isatty():
        stream.writelines(texts.ON_TERMINAL[kind](item, columns_of_terminal()) for item in items)
    elif form == "table" and kind in texts.TEXTS:
        stream.writelines(texts.TEXTS[kind](item) for item in items)
    elif form in ("table", "wide") and not items and stream.isatty():
        stream.write(wrapped(translated(NOTHING.get(kind, "nothing to show")), columns_of_terminal()) + "\n")
    elif form in ("table", "wide"):
        _table(items, columns, stream, wide=form == "wide")
    else:
        text.writelines(row + "\n" for row in headings(columns, form))
        text.writelines(line(item, columns, form) + "\n" for item in items)


NOTHING = {
    "TopicList": "no topic to show; `orbitmq topic create TOPIC` creates one",
    "GroupList": "no group to show; one is there once its first consumer was online",
    "ReplicaList": "no slave to show: every broker is alone",
    "ElectedReplicaList": "no broker to show that elects its master",
}
"""Kind -> what a terminal shows instead of a table without rows."""


def headings(columns: Sequence[str], form: str) -> list[str]:
    """The lines before the first `line`."""
    return [_csv_row(map(heading_of, columns))] if form == "csv" else []


def line(item: dict[str, Any], columns: Sequence[str], form: str) -> str:
    """One item of a stream, without the end of the line. In JSON an object of its own, in YAML a document."""
    if form == "csv":
        return _csv_row(_csv(value_of(item, path_of(column))) for column in columns)
    if form == "yaml":
        return "---\n" + _yaml(item).rstrip("\n")
    if form == "name":
        return str(value_of(item, path_of(columns[0])))
    if form.startswith(TEMPLATE):
        return string.Template(form.removeprefix(TEMPLATE)).safe_substitute(_flat(item))
    if form in ("jsonl", "json"):
        return printable_json(json.dumps(item, ensure_ascii=False))
    return "  ".join(cell(path_of(column), value_of(item, path_of(column))) for column in _shown(columns, form))


def _shown(columns: Sequence[str], form: str) -> list[str]:
    return [column for column in columns if form == "wide" or not column.startswith("+")]


def heading_of(column: str) -> str:
    return column.lstrip("+").partition("=")[0]


def path_of(column: str) -> str:
    return column.partition("=")[2]


def value_of(item: Any, path: str) -> Any:
    """The value at a path; None if there is none."""
    for part in path.split("."):
        item = item.get(part) if isinstance(item, dict) else None
    return item


def formatted(path: str, value: Any) -> str:
    """A value as a table shows it."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, dict)):
        return ", ".join(map(str, value)) if isinstance(value, list) else json.dumps(value, ensure_ascii=False)
    if path.endswith("AtMs"):
        return moment(value)
    if path.endswith("Ms"):
        return duration(value)
    if path.endswith("Bytes"):
        return size(value)
    if path.endswith("Ratio"):
        return f"{value:.1%}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) and not path.endswith(("Id", "id")) else str(value)


def moment(at_ms: int) -> str:
    """`2026-11-22 06:14:00`, local time; the number itself if it is outside the calendar."""
    try:
        return datetime.fromtimestamp(at_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(at_ms)


def duration(ms: float) -> str:
    """`0.42 ms`, `340 ms`, `12.0 s`, `3 min 20 s`, `5 h 10 min`, `12 d 3 h`."""
    if abs(ms) < 1000:
        is_exact = abs(ms) < EXACT_BELOW_MS and ms != int(ms)
        return f"{ms:.2f} ms" if is_exact else f"{ms:.0f} ms"
    seconds = ms / 1000
    if abs(seconds) < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for unit, larger, name, smaller in ((60, 3600, "min", "s"), (3600, 86400, "h", "min"), (86400, 0, "d", "h")):
        if not larger or abs(whole) < larger:
            rest = abs(whole) % unit // (unit // 60 if unit < 86400 else 3600)
            return f"{int(whole / unit)} {name} {rest} {smaller}"
    raise AssertionError


def size(count: float) -> str:
    """`512 B`, `3.4 MiB`; powers of 1024."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


RECORDS_FROM = 1.5
"""Of the width of a terminal: a table that is wider would be columns of a few characters, so its rows are shown as
records. So are those of a table that would break words in half of its rows or more.
"""


def _table(items: list[dict[str, Any]], columns: Sequence[str], stream: TextIO, *, wide: bool) -> None:
    from rich.cells import cell_len

    shown = [column for column in columns if wide or not column.startswith("+")]
    headings = [heading_of(column) for column in shown]
    rows = [[cell(path_of(column), value_of(item, path_of(column))) for column in shown] for item in items]
    natural = sum(max(map(cell_len, column)) + GAP for column in zip(headings, *rows, strict=True))
    width = columns_of_terminal() if stream.isatty() and not wide else None
    numbers = [_is_number(items, path_of(column)) for column in shown]
    widths = None if width is None else _widths([headings, *rows], numbers, width)
    if rows and width is not None and widths is not None:
        broken = sum(_breaks(row, widths) for row in rows)
        if natural > RECORDS_FROM * width or 2 * broken >= len(rows):
            stream.writelines(_records(headings, rows))
            return
    stream.writelines(_ruled(headings, rows, numbers, stream, width or natural, widths))


def _widths(rows: list[list[str]], numbers: list[bool], width: int) -> list[int]:
    """The columns of a table that fits: wide ones give room, but keep numbers and words whole as long as others can."""
    from rich.cells import cell_len

    columns = list(zip(*rows, strict=True))
    room = max(1, width - GAP * (len(columns) - 1))
    widths = [min(room, max(map(cell_len, column))) for column in columns]
    words = [
        widest if is_number else max(cell_len(word) for text in column for word in text.split() or [""])
        for column, widest, is_number in zip(columns, widths, numbers, strict=True)
    ]
    while sum(widths) > room and max(widths) > 1:
        at = max(range(len(widths)), key=lambda at: (widths[at] > words[at], widths[at]))
        widths[at] -= 1
    return widths


def _breaks(row: list[str], widths: list[int]) -> bool:
    """Whether a word of the row is longer than its column is wide."""
    from rich.cells import cell_len

    return any(cell_len(word) > width for text, width in zip(row, widths, strict=True) for word in text.split())


def _is_number(items: list[dict[str, Any]], path: str) -> bool:
    are_numbers = all(isinstance(value_of(item, path), (int, float, type(None))) for item in items)
    return are_numbers and bool(items) and not path.endswith("AtMs")


def _records(headings: list[str], rows: list[list[str]]) -> Iterator[str]:
    """A line for each value, and an empty one between rows."""
    longest = max(map(len, headings))
    for number, row in enumerate(rows):
        yield "\n" if number else ""
        yield from (f"{heading:{longest}}  {value}\n" for heading, value in zip(headings, row, strict=True))


def _ruled(
    headings: list[str],
    rows: list[list[str]],
    numbers: list[bool],
    stream: TextIO,
    width: int,
    widths: list[int] | None,
) -> list[str]:
    """The lines of a table; without `widths`, as in a pipe, lines are as long as their values: scripts must get them
    uncut.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    for at, (heading, is_number) in enumerate(zip(headings, numbers, strict=True)):
        justify: Literal["right", "left"] = "right" if is_number else "left"
        fixed = None if widths is None else widths[at]
        table.add_column(heading, justify=justify, width=fixed, no_wrap=widths is None, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console = Console(file=stream, highlight=False, markup=False, emoji=False, width=width)
    with console.capture() as captured:
        console.print(table, soft_wrap=widths is None)
    return [f"{row.rstrip()}\n" for row in captured.get().splitlines()]


SENTENCES = {"message", "problem", "remedy", "sentence", "verdict"}
"""Columns whose values are sentences of ours."""


def cell(path: str, value: Any) -> str:
    """Escaped: text of a message must not control the terminal. Sentences are in the language of the user."""
    text = formatted(path, value)
    if path in SENTENCES:
        text = translated(text)
    return printable(text.replace("\n", " ").replace("\t", " "))


def _csv_row(values: Iterable[Any]) -> str:
    row = io.StringIO()
    csv.writer(row, lineterminator="").writerow(list(values))
    return row.getvalue()


def _csv(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else value


def _flat(item: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in item.items():
        flat[prefix + key] = value
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}_")
    return flat


def _json(value: Any) -> str:
    return printable_json(json.dumps(value, ensure_ascii=False, indent=2))


def _yaml(value: Any) -> str:
    import yaml

    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True))
