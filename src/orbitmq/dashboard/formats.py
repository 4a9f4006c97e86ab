"""How values look on a page: numbers, sizes, times, curves. Everything that comes from a cluster is escaped.

An unknown value is shown as a dash. Knows no page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context, select_autoescape
from markupsafe import Markup

from orbitmq.admin.envelope import RFC3339, at_ms_of, rfc3339
from orbitmq.admin.shares import QueueSpread
from orbitmq.dashboard.roles import Role
from orbitmq.dashboard.words import N_
from orbitmq.runtime.error_texts import translated
from orbitmq.runtime.languages import LANGUAGES, gettext, html_tag, language, ngettext
from orbitmq.runtime.printable import printable

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SPANS = ((86_400_000, N_("d")), (3_600_000, N_("h")), (60_000, N_("min")), (1000, N_("s")))
CURVE_WIDTH, CURVE_HEIGHT = 120, 24
SPREAD_WIDTH, SPREAD_HEIGHT = 120, 10
SPREAD_NARROWEST = 3  # of its bar and its mark, so that equal queues are visible


def environment() -> Environment:
    """Templates of this package; an undefined name is an error, not an empty text. They speak the language of
    the context: `orbitmq.runtime.languages`."""
    made = Environment(
        loader=PackageLoader("orbitmq.dashboard"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        count=count,
        size=size,
        span=span,
        at=at,
        moments=moments,
        ago=ago,
        since=since,
        percent=percent,
        rate=rate,
        # Not a constant of the template, which would keep the language in which it is first shown.
        known=pass_context(lambda _, value: known(value)),
        part=part,
        curve=curve,
        spread=spread,
        exact=exact,
        html_tag=html_tag,
        rule_name=rule_name,
        short_span=short_span,
        translated=translated,
        word=word,
        printable=printable,
    )
    made.globals.update({"_": said, "gettext": said, "ngettext": counted})
    made.globals.update(Role=Role, language=language, languages=LANGUAGES)
    return made


def said(text: str, /, **values: Any) -> Markup:
    """`_` of templates: a text of ours in the language of the page. Its markup stays, and values are escaped."""
    return Markup(gettext(text)) % _escaped(values)  # noqa: S704 - a text of this package


def counted(singular: str, plural: str, number: int, /, **values: Any) -> Markup:
    """`ngettext` of templates: the form for `number`, which is also the value of `num`."""
    text = ngettext(singular, plural, number)
    return Markup(text) % _escaped({"num": count(number), **values})  # noqa: S704 - a text of this package


def _escaped(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: shown(value) for name, value in values.items()}


def word(text: object) -> str:
    """A text from a table in the language of the page; other texts as they are."""
    return "" if text is None else gettext(str(text))


def rule_name(rule: str) -> str:
    """The name of a setting of a group: `Retry max times`."""
    return gettext(rule.replace("_", " ").replace(" nums", "s").capitalize())


def unknown() -> Markup:
    return Markup('<span class="unknown" title="{}">–</span>').format(gettext("unknown"))


def part(text: object) -> str:
    """A name as part of an address: `/`, `%` and `?` in it are escaped."""
    return quote(str(text), safe="")


class _Exact(str):
    """Inserted unchanged, except for HTML's own characters."""

    __slots__ = ()


def exact(text: object) -> _Exact:
    """The value of a form field, which the form sends back unchanged."""
    return _Exact(text)


def shown(value: Any) -> Any:
    """Every text of a page except markup and values of fields, because it may come from a peer."""
    return printable(value, lines=True) if isinstance(value, str) and not isinstance(value, (Markup, _Exact)) else value


def known(value: Any) -> Any:
    """The value, or a dash if it is unknown."""
    return unknown() if value is None else value


def count(value: int | float | None) -> str | Markup:
    """`1,234,567`."""
    return unknown() if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str | Markup:
    """Per second: `1,234` or `0.3`."""
    if value is None:
        return unknown()
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def size(value: int | None) -> str | Markup:
    """Bytes: `1.5 MiB`."""
    if value is None:
        return unknown()
    amount = float(value)
    for unit in _SIZES[:-1]:
        if abs(amount) < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" or amount == int(amount) else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} {_SIZES[-1]}"


def percent(value: float | None) -> str | Markup:
    """A ratio, 0 to 1: `42 %`."""
    return unknown() if value is None else f"{value * 100:.0f} %"


def span(value_ms: float | None) -> str | Markup:
    """A time span in milliseconds: `3 min 20 s`, `15 ms`."""
    if value_ms is None:
        return unknown()
    left, words = abs(round(value_ms)), list[str]()
    for length, unit in _SPANS:
        if left >= length and len(words) < 2:
            words.append(f"{left // length} {gettext(unit)}")
            left %= length
        elif words:
            break
    return ("-" if value_ms < 0 else "") + (" ".join(words) or f"{left} {gettext('ms')}")


def short_span(value_ms: float | None) -> str | Markup:
    """A span below a second with its fraction: `0.42 ms`."""
    return unknown() if value_ms is None else f"{value_ms:.2f} {gettext('ms')}"


def at(value_ms: int | None) -> Markup:
    """A point in time: `2026-11-22 10:00:00`, in UTC until the browser converts it to local time."""
    text = None if value_ms is None else rfc3339(value_ms)
    if text is None or value_ms is None:
        return unknown()
    shown = datetime.fromtimestamp(value_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(text, shown)


def moments(sentence: str) -> Markup:
    """A sentence whose points in time are shown as `at` shows them."""
    shown = printable(sentence)
    times = [found if (at_ms := at_ms_of(found)) is None else at(at_ms) for found in RFC3339.findall(shown)]
    return Markup().join(one for pair in zip(RFC3339.split(shown), [*times, ""], strict=True) for one in pair)


def ago(value_ms: int | None, now_ms: int) -> Markup | str:
    """The age of a time: `3 min 20 s ago`."""
    passed = 0 if value_ms is None else now_ms - value_ms
    text = gettext("in %(span)s") if passed < 0 else gettext("%(span)s ago")
    return _in_words(value_ms, text % {"span": span(abs(passed))})


def since(value_ms: int | None, now_ms: int) -> Markup | str:
    """The time since then: `3 min 20 s`."""
    return _in_words(value_ms, span(0 if value_ms is None else max(0, now_ms - value_ms)))


def _in_words(value_ms: int | None, words: object) -> Markup:
    text = None if value_ms is None else rfc3339(value_ms)
    if text is None:
        return unknown()
    return Markup('<time datetime="{0}" title="{0}" data-words="1">{1}</time>').format(text, words)


def curve(values: Sequence[float | None], what: str) -> Markup:
    """The last samples as a small curve, with gaps for missing ones; `what` is its name for screen readers."""
    present = [value for value in values if value is not None]
    if len(present) < 2:
        return Markup('<span class="unknown" title="{}">–</span>').format(
            gettext("%(what)s: too few samples yet") % {"what": what}
        )
    low, high = min(0.0, *present), max(present)
    scale = (CURVE_HEIGHT - 2) / ((high - low) or 1)
    step = CURVE_WIDTH / max(1, len(values) - 1)
    runs: list[list[str]] = [[]]
    for number, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append(f"{number * step:.1f},{CURVE_HEIGHT - 1 - (value - low) * scale:.1f}")
    lines = Markup("").join(Markup('<polyline points="{}"/>').format(" ".join(run)) for run in runs if run)
    facts = {"what": what, "first": count(present[0]), "last": count(present[-1]), "most": count(high)}
    words = gettext("%(what)s: %(first)s to %(last)s, at most %(most)s") % facts
    return Markup(
        '<svg class="curve" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img" aria-label="{words}">'
        "<title>{words}</title>{lines}</svg>"
    ).format(w=CURVE_WIDTH, h=CURVE_HEIGHT, words=words, lines=lines)


def spread(value: QueueSpread | None, high: float, what: str, unit: Callable[[float], Any] = rate) -> Markup:
    """The smallest, the mean and the largest value of some queues as a bar with a mark, on an axis from 0 to `high`."""
    if value is None:
        return unknown()

    def place(amount: float) -> float:
        return amount * (SPREAD_WIDTH - SPREAD_NARROWEST) / (high or 1)

    numbers = [unit(one) for one in (value.low, value.mean, value.high)]
    begin = place(value.low)
    drawn = Markup(
        '<svg class="spread" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img" aria-label="{words}">'
        '<title>{words}</title><rect class="track" y="4" width="{w}" height="2"/>'
        '<rect x="{begin:.1f}" y="2" width="{length:.1f}" height="6" rx="3"/>'
        '<rect class="mean" x="{mean:.1f}" width="{mark}" height="{h}"/></svg>'
    ).format(
        w=SPREAD_WIDTH,
        h=SPREAD_HEIGHT,
        words=gettext("%(what)s: %(low)s to %(high)s, mean %(mean)s")
        % {"what": what, "low": numbers[0], "high": numbers[2], "mean": numbers[1]},
        begin=begin,
        length=place(value.high) - begin + SPREAD_NARROWEST,
        mean=place(value.mean),
        mark=SPREAD_NARROWEST,
    )
    return Markup("{} <span>{} / {} / {}</span>").format(drawn, *numbers)


def rendered(template: str, values: Mapping[str, Any], templates: Environment) -> str:
    return templates.get_template(template).render(values)
