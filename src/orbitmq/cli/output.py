"""Writes results: as a table on a terminal, or as JSON, lines, YAML, CSV, names, or with a template. Only results go to
standard output; everything else goes to standard error.

Columns are `HEADING=path` in the item's JSON; a dot separates nested fields, and a leading `+` shows the column in wide
tables only. The end of a path is its unit and decides the format in a table: `Bytes`, `Ms`, `AtMs`, `Ratio`. Values are
shortened only in a table on a terminal.
"""

from __future__ import annotations

import csv
import io
import json
import string
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, TextIO

from orbitmq.admin.envelope import envelope, plain
from orbitmq.admin.results import Result
from orbitmq.cli import texts
from orbitmq.cli.safe_output import safe
from orbitmq.errors import ConfigurationError
from orbitmq.runtime.printable import printable, printable_json

FORMATS = ("table", "wide", "json", "jsonl", "yaml", "csv", "name")
TEMPLATE = "template="
UNKNOWN = "-"
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
    if form == "table" and kind in texts.TEXTS:
        stream.writelines(texts.TEXTS[kind](item) for item in items)
    elif form in ("table", "wide"):
        _table(items, columns, stream, wide=form == "wide")
    else:
        text.writelines(row + "\n" for row in headings(columns, form))
        text.writelines(line(item, columns, form) + "\n" for item in items)


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


PROSE = {"sentence", "message", "verdict", "remedy", "command"}
"""Columns that wrap in a terminal: half a reason, or half a command, is useless."""


def _table(items: list[dict[str, Any]], columns: Sequence[str], stream: TextIO, *, wide: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    shown = [column for column in columns if wide or not column.startswith("+")]
    on_terminal = stream.isatty() and not wide
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in shown:
        numbers = all(isinstance(value_of(item, path_of(column)), (int, float, type(None))) for item in items)
        right = numbers and bool(items) and not path_of(column).endswith("AtMs")
        is_prose = path_of(column) in PROSE
        overflow = ("fold" if is_prose else "ellipsis") if on_terminal else "ignore"
        table.add_column(
            heading_of(column),
            justify="right" if right else "left",
            no_wrap=not (on_terminal and is_prose),
            overflow=overflow,  # type: ignore[arg-type]
        )
    for item in items:
        table.add_row(*(cell(path_of(column), value_of(item, path_of(column))) for column in shown))
    # In a pipe lines are as long as their values: scripts must get them uncut.
    console = Console(
        file=stream, highlight=False, markup=False, emoji=False, width=None if on_terminal else _width(table)
    )
    with console.capture() as captured:
        console.print(table, soft_wrap=not on_terminal)
    stream.writelines(f"{row.rstrip()}\n" for row in captured.get().splitlines())


def cell(path: str, value: Any) -> str:
    """Escaped: text of a message must not control the terminal."""
    return printable(formatted(path, value).replace("\n", " ").replace("\t", " "))


def _width(table: Any) -> int:
    """Wide enough for every cell in full."""
    lines = [list(column.cells) for column in table.columns]
    widths = [
        max(map(len, [str(column.header), *map(str, cells)]))
        for column, cells in zip(table.columns, lines, strict=True)
    ]
    return max(1, 2 * sum(widths) + 4 * len(widths))  # wide characters take two columns


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
