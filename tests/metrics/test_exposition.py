"""Figures become text that Prometheus' own parser reads, in portions, and one that fails costs no other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families

from orbitmq.metrics.exposition import PORTION_SAMPLES, TURN_SECONDS, expose
from orbitmq.metrics.model import Buckets, Metric, Reader, Sample, counter, gauge, histogram
from orbitmq.runtime.histogram import Histogram

SENT = counter("sent_total", "topic", "messages", "Sent.", "counted")
WAITING = gauge("waiting", "", "messages", "Waiting.", "counted")
TOOK = histogram("took_seconds", "", "s", "Took.", "timed")


class _Timer:
    """Goes on by a fixed step each time it is looked at."""

    def __init__(self, step: float = 0.0) -> None:
        self.now, self._step = 0.0, step

    def __call__(self) -> float:
        self.now += self._step
        return self.now


async def _pieces(
    *metrics: tuple[Metric, Reader], failed: list[str] | None = None, step: float = 0.0, series_max: int = 10_000
) -> list[bytes]:
    names = failed if failed is not None else []
    readers = {metric.name: reader for metric, reader in metrics}
    text = expose(
        [metric for metric, _ in metrics], readers, {"cluster": "c"}, names.append, timer=_Timer(step),
        series_max=series_max,
    )  # fmt: skip
    return [piece async for piece in text]


def _parsed(pieces: list[bytes]) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(b"".join(pieces).decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def _topics(count: int) -> Iterator[Sample]:
    for number in range(count):
        yield (f"topic-{number}",), number


async def test_prometheus_reads_what_was_counted() -> None:
    took = Histogram((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 7.0):
        took.observe(seconds)
    odd = 'odd "name"\n\\'
    pieces = await _pieces(
        (SENT, lambda: [((odd,), 3)]), (WAITING, lambda: [((), 5)]), (TOOK, lambda: [((), Buckets.of(took))])
    )
    found = _parsed(pieces)
    common = ("cluster", "c")
    assert found == {
        ("sent_total", frozenset({common, ("topic", odd)})): 3,
        ("waiting", frozenset({common})): 5,
        ("took_seconds_bucket", frozenset({common, ("le", "0.1")})): 2,
        ("took_seconds_bucket", frozenset({common, ("le", "1.0")})): 3,
        ("took_seconds_bucket", frozenset({common, ("le", "+Inf")})): 4,
        ("took_seconds_count", frozenset({common})): 4,
        ("took_seconds_sum", frozenset({common})): 7.65,
    }


async def test_ten_thousand_series_are_written_a_portion_a_turn() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    pieces = await _pieces((SENT, lambda: _topics(10_000)))
    beside.cancel()
    assert len(_parsed(pieces)) == 10_000
    assert max(piece.count(b"\n") for piece in pieces) <= PORTION_SAMPLES + 2
    assert turns >= 10_000 / PORTION_SAMPLES
    assert b"".join(pieces).count(b"# TYPE") == 1


async def test_a_reader_that_works_long_for_nothing_lets_others_come_between() -> None:
    pieces = await _pieces((SENT, lambda: iter([None] * 10 + [(("t",), 1)])), step=TURN_SECONDS)
    assert len(_parsed(pieces)) == 1

    looks = 0

    def idle() -> Iterator[None]:
        nonlocal looks
        for _ in range(10):
            looks += 1
            yield None

    text = expose([SENT], {SENT.name: idle}, {}, lambda _: None, timer=_Timer(TURN_SECONDS))
    first = asyncio.ensure_future(anext(text))
    await asyncio.sleep(0)
    assert looks == 1
    await first
    await text.aclose()


async def test_a_reader_that_fails_takes_only_its_own_metric() -> None:
    def broken() -> Iterator[Sample]:
        yield ("a",), 1
        raise ValueError("a bug")

    failed: list[str] = []
    found = _parsed(await _pieces((SENT, broken), (WAITING, lambda: [((), 5)]), failed=failed))
    assert found[("waiting", frozenset({("cluster", "c")}))] == 5
    assert failed == ["sent_total"]


async def test_names_from_the_network_do_not_make_series_without_end() -> None:
    failed: list[str] = []
    pieces = await _pieces((SENT, lambda: _topics(1000)), failed=failed, series_max=300)
    assert len(_parsed(pieces)) == 300
    assert failed == ["sent_total"]
