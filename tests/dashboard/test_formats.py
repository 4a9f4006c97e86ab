"""How values look; what comes from a cluster is text and never markup."""

from __future__ import annotations

import re

import pytest

from orbitmq.admin.shares import QueueSpread
from orbitmq.dashboard.formats import (
    ago,
    at,
    count,
    curve,
    environment,
    known,
    moments,
    part,
    percent,
    rate,
    since,
    size,
    span,
    spread,
    unknown,
)

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (count(1234567), "1,234,567"),
        (rate(1234.4), "1,234"),
        (rate(0.25), "0.2"),
        (rate(0.0), "0"),
        (size(0), "0 B"),
        (size(1536), "1.5 KiB"),
        (size(1 << 30), "1 GiB"),
        (size(1 << 62), "4096.0 PiB"),
        (percent(0.424), "42 %"),
        (span(15), "15 ms"),
        (span(200_000), "3 min 20 s"),
        (span(2 * DAY_MS + 59_000), "2 d"),
        (span(3_600_000), "1 h"),
        (span(-1500), "-1 s"),
        (part("a/b?c%d ü"), "a%2Fb%3Fc%25d%20%C3%BC"),
        (known(0), 0),
    ],
)
def test_values(shown: object, expected: object) -> None:
    assert shown == expected


def test_a_sentence_has_the_times_of_the_page() -> None:
    first, last = at(1_700_000_000_123), at(1_700_000_600_000)
    assert moments("<b> since 2023-11-14T22:13:20.123Z, due at 2023-11-14T22:23:20.000Z.") == (
        f"&lt;b&gt; since {first}, due at {last}."
    )
    for text in ("nothing", "since 2023-99-14T22:13:20.123Z", ""):
        assert moments(text) == text


def test_what_is_not_known_says_so() -> None:
    shown = [filter_(None) for filter_ in (count, rate, size, percent, span, at, known)]
    assert shown == [unknown()] * 7
    assert at(1 << 62) == unknown(), "a damaged message may carry any time"
    assert ago(None, 0) == since(None, 0) == unknown()


def test_times() -> None:
    assert (
        str(at(0))
        == '<time datetime="1970-01-01T00:00:00.000Z" title="1970-01-01T00:00:00.000Z">1970-01-01 00:00:00</time>'
    )
    assert ">1 s ago<" in ago(1000, 2000)
    assert ">in 1 s<" in ago(2000, 1000)
    assert ">1 s<" in since(1000, 2000)
    assert ">0 ms<" in since(2000, 1000), "clocks differ"


def test_a_curve_has_gaps_and_words() -> None:
    shown = curve([1, None, 2, 4], '"><script>')
    assert shown.count("<polyline") == 2
    assert "1 to 4, at most 4" in shown
    assert "<script>" not in shown
    assert "too few" in curve([None, 3], "lag")
    assert "<polyline" in curve([0, 0], "lag")


def test_templates_escape() -> None:
    template = environment().from_string('{{ value }} {{ value | known }} <a href="{{ value | part }}">')
    assert "<b>" not in template.render(value='<b> " onclick=')


@pytest.mark.parametrize("place", ["{{ one }}", "<b title='{{ one }}'>", "{{ one | known }}", "{{ many | join(' ') }}"])
def test_every_text_of_a_page_is_shown_with_marks(place: str) -> None:
    hostile = "c\x1b\x9b\u202e<b>"
    page = environment().from_string(place).render(one=hostile, many=[hostile])
    assert "c␛⟨U+009B⟩⟨U+202E⟩&lt;b&gt;" in page


def test_the_value_of_a_field_comes_back_as_it_was() -> None:
    page = environment().from_string('<input value="{{ one | exact }}">').render(one='c\x1b"')
    assert page == '<input value="c\x1b&#34;">'


def test_a_value_that_is_not_text_stays_what_it_is() -> None:
    page = environment().from_string("{{ one }}{{ one | known }}{{ none | known }}").render(one=7)
    assert page == f"77{unknown()}"


def test_queues_are_a_bar_from_the_least_to_the_most_with_a_mark_at_the_mean() -> None:
    drawn = str(spread(QueueSpread(10, 25, 50), 100, "lag of a queue"))
    assert 'aria-label="lag of a queue: 10 to 50, mean 25"' in drawn
    assert drawn.endswith("<span>10 / 25 / 50</span>")
    bar, mark = re.findall(r'x="([\d.]+)"(?: y="2")? width="([\d.]+)"', drawn)
    assert [*map(float, bar)] == [11.7, 49.8], "from 10 to 50 of the 117 units that are 100, and its own width"
    assert float(mark[0]) == pytest.approx(29.25, abs=0.06)


def test_queues_in_time_and_those_that_are_not_known() -> None:
    assert "<span>0 ms / 1 s / 2 s</span>" in spread(QueueSpread(0, 1000, 2000), 2000, "lag", span)
    assert 'width="3.0"' in spread(QueueSpread(0, 0, 0), 0, "lag"), "visible without a lag"
    assert spread(None, 5, "lag") == unknown()
