"""Long lists: sorted by a column, in pages of rows, with the filters in every link. Knows no kind of row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from orbitmq.dashboard.routes import DashboardRequest

T = TypeVar("T")

ROWS = 100
"""Rows on a page: users do not read more, and a phone would take long to render it."""


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """A column of a list. With a `word` the list can be sorted by it, as `?sort=WORD`."""

    heading: str
    word: str | None = None
    of: Callable[[T], Any] | None = None
    is_number: bool = False
    """Aligned to the right, and sorted with the largest first."""


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """The rows of one page, and links to the others."""

    rows: list[T]
    first: int
    """The number of rows before them."""
    total: int
    columns: Sequence[Column[T]]
    sort: str
    """The word of a column, with a leading `-` for the largest first."""
    path: str
    """Path below the cluster, with the filters; another field can be appended."""
    page: int = ROWS

    @property
    def here(self) -> str:
        """The same with the current order."""
        return f"{self.path}{urlencode({'sort': self.sort})}&"

    def link(self, column: Column[T]) -> str | None:
        """The link to sort by this column; in reverse order if the list is sorted by it."""
        if column.word is None:
            return None
        turned = column.is_number if self.sort.lstrip("-") != column.word else not self.sort.startswith("-")
        return f"{self.path}{urlencode({'sort': ('-' if turned else '') + column.word})}"

    def order(self, column: Column[T]) -> str | None:
        """The value of `aria-sort` of the column."""
        if column.word is None or self.sort.lstrip("-") != column.word:
            return None
        return "descending" if self.sort.startswith("-") else "ascending"


def listing(
    request: DashboardRequest, path: str, rows: Iterable[T], columns: Sequence[Column[T]], *, keep: Sequence[str] = ()
) -> Listing[T]:
    """The page that `sort` and `from` of the query select; `keep` names its filters. Without `sort`, rows keep their
    order.

    Unknown values are last in both directions.
    """
    words = [sign + column.word for column in columns if column.word is not None for sign in ("", "-")]
    sort = request.query.choice("sort", ["", *words])
    chosen = next((column for column in columns if column.word == sort.lstrip("-")), None) if sort else None
    ordered = list(rows) if chosen is None or chosen.of is None else _ordered(rows, chosen.of, sort.startswith("-"))
    first = request.query.number("from", 0)
    filters = {name: request.query.text(name) for name in keep if request.query.text(name)}
    address = f"{path}?{urlencode(filters)}{'&' if filters else ''}"
    return Listing(ordered[first : first + ROWS], first, len(ordered), columns, sort, address)


def _ordered(rows: Iterable[T], of: Callable[[T], Any], turned: bool) -> list[T]:
    known: list[T] = []
    unknown: list[T] = []
    for row in rows:
        (unknown if of(row) is None else known).append(row)
    return [*sorted(known, key=of, reverse=turned), *unknown]
