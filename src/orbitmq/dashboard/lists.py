"""Long lists: sorted by a column, a page of rows at a time, the filters in every link. Knows no kind of row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from orbitmq.dashboard.routes import DashboardRequest

T = TypeVar("T")

ROWS = 100
"""On one page: more is not read, and a phone would take long to draw it."""


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """A column of a list; one that has a `word` can be sorted by, and the word stands in `?sort=`."""

    heading: str
    word: str | None = None
    of: Callable[[T], Any] | None = None
    is_number: bool = False
    """Stands right, and the largest comes first when it is sorted by."""


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """The rows of one page, and where the others are."""

    rows: list[T]
    first: int
    """How many rows stand before them."""
    total: int
    columns: Sequence[Column[T]]
    sort: str
    """The word of a column, `-` before it for the largest first."""
    path: str
    """Path below the cluster, with the filters, and ending so that another field can follow."""
    page: int = ROWS

    @property
    def here(self) -> str:
        """The same in the order it is shown in."""
        return f"{self.path}{urlencode({'sort': self.sort})}&"

    def link(self, column: Column[T]) -> str | None:
        """Where the list is sorted by this column, and the other way round where it is already."""
        if column.word is None:
            return None
        turned = column.is_number if self.sort.lstrip("-") != column.word else not self.sort.startswith("-")
        return f"{self.path}{urlencode({'sort': ('-' if turned else '') + column.word})}"

    def order(self, column: Column[T]) -> str | None:
        """What `aria-sort` says of the column."""
        if column.word is None or self.sort.lstrip("-") != column.word:
            return None
        return "descending" if self.sort.startswith("-") else "ascending"


def listing(
    request: DashboardRequest, path: str, rows: Iterable[T], columns: Sequence[Column[T]], *, keep: Sequence[str] = ()
) -> Listing[T]:
    """What `sort` and `from` of the query ask for; `keep` names its filters. Without `sort` the order is as it comes.

    Unknown values stand last, whichever way it is sorted.
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
