"""What the growth bench makes of its measurements, and that its requests are those of the protocol."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from bench.growth_load import BATCH, Answer, Meter, Pullers, Senders, batch_frame, frame
from bench.growth_plots import lines
from bench.growth_report import Row, failures, falls, fragment, line, row, series, table
from bench.systems import OURS, RIVAL
from orbitmq.message.properties import decode_properties
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FrameDecoder
from orbitmq.wire.requests import RequestCode


def measured(**figures: Any) -> dict[str, Any]:
    told = {"rate": 1000.0, "cpuMicros": 10.0, "p50Micros": 100.0, "p99Micros": 500.0, "delivered": 0.0, "errors": 0}
    return {**told, **figures}


def at(step: float, system: str, **figures: Any) -> Row:
    return row("topics", step, "send", system, [measured(**figures)])


def decoded(data: bytes) -> Command:
    (command,) = FrameDecoder(typed=False).feed(data)
    return command


def test_a_figure_is_the_median_of_its_rounds() -> None:
    found = row("topics", 1, "send", OURS, [measured(rate=rate, errors=rate == 5) for rate in (1, 5, 100)])
    assert (found.rate, found.errors, found.cpuMicros) == (5, 1, 10)
    assert row("topics", 1, "send", OURS, [measured(), measured(p99Micros=None)]).p99Micros is None


@pytest.mark.parametrize(
    ("ours", "rivals", "named"),
    [
        ({"rate": 790.0}, {"rate": 810.0}, ["rate: 0.79 of the first step is left, RocketMQ 4.9.7's 0.81"]),
        ({"rate": 810.0}, {"rate": 100.0}, []),
        ({"rate": 700.0}, {"rate": 700.0}, []),
        ({"cpuMicros": 13.0}, {}, ["cpuMicros: 0.77 of the first step is left, RocketMQ 4.9.7's 1.00"]),
        ({"p99Micros": 5000.0}, {"p99Micros": 5000.0}, []),
        ({"p99Micros": None}, {}, []),
    ],
)  # fmt: skip
def test_a_figure_that_falls_where_the_rivals_does_not_is_named(
    ours: dict[str, Any], rivals: dict[str, Any], named: list[str]
) -> None:
    told = falls([at(1, OURS), at(1, RIVAL), at(100, OURS, **ours), at(100, RIVAL, **rivals)])
    assert list(told) == [f"topics 100, send, {text}" for text in named]


def test_what_only_we_have_falls_nowhere() -> None:
    assert list(falls([at(1, OURS), at(2, OURS, rate=1.0)])) == []


def test_failed_requests_are_told() -> None:
    rows = [at(1, OURS), at(1, RIVAL, errors=3), at(2, OURS, rate=0.0)]
    assert [text.split(", ")[2] for text in failures(rows)] == [f"{RIVAL}: 3 errors", f"{OURS}: 0 errors"]


def test_steps_come_in_their_order_and_the_table_holds_every_row() -> None:
    rows = [at(100, OURS), at(1, OURS), at(1, RIVAL)]
    assert [one.step for one in series(rows, "topics", "send", OURS)] == [1, 100]
    assert [one["step"] for one in csv.DictReader(io.StringIO(table(rows)))] == ["100", "1", "1"]
    assert line(rows[0]) == "topics 100, send, orbitmq: 1,000/s, 10.0 µs broker CPU each, p50 100 p99 500 µs"
    points = lines([vars(one) for one in rows], "topics", "p99Micros", 1000)
    assert points == {(OURS, "send"): [(1, 0.5), (100, 0.5)], (RIVAL, "send"): [(1, 0.5)]}


def test_the_page_shows_both_systems_side_by_side_and_what_falls() -> None:
    head = {"time": "T", "took": 9, "rounds": 1, "seconds": 5.0, "command": "python x ", "machine": {"cores": 2}}
    rows = [at(1, RIVAL), at(1, OURS, p99Micros=250.0), at(10_000, OURS, cpuMicros=None)]
    text = fragment({**head, "falls": ["topics 10000"]}, rows)
    assert "with `python x`: cores 2." in text
    assert "| topics | 1 | send | 1,000 | 1,000 | 10.0 | 10.0 | 0.5 | 0.2 |" in text
    assert "| topics | 10,000 | send |  | 1,000 |  |  |  | 0.5 |" in text
    assert text.endswith("\n- topics 10000\n")
    assert fragment({**head, "falls": []}, rows).endswith("\n- none\n")


def test_what_was_not_measured_in_the_window_does_not_count() -> None:
    meter = Meter()
    meter.done(1, 9.0)
    meter.is_open = True
    for milliseconds in range(1, 101):
        meter.done(2, milliseconds / 1000)
    told = meter.row(10.0, cpu_seconds=0.002)
    assert (told["messages"], told["rate"], told["cpuMicros"]) == (200, 20.0, 10.0)
    assert (told["p50Micros"], told["p99Micros"]) == (51_000, 100_000)
    assert Meter().row(1.0, 1.0)["cpuMicros"] is None


def test_sends_go_round_the_queues_with_keys_of_their_own() -> None:
    senders = Senders([("a", 0), ("b", 1)])
    found = [decoded(senders.next()) for _ in range(4)]
    assert {one.code for one in found} == {RequestCode.SEND_MESSAGE_V2}
    assert [(one.ext["b"], one.ext["e"]) for one in found] == [("b", "1"), ("a", "0")] * 2
    keys = [decode_properties(one.ext["i"]) for one in found]
    assert len({one["KEYS"] for one in keys}) == len({one["UNIQ_KEY"] for one in keys}) == 4
    assert {len(one.body) for one in found} == {1024}


def test_a_batch_holds_its_messages() -> None:
    command = decoded(batch_frame(("a", 3), 32, BATCH))
    assert (command.code, command.ext["m"]) == (RequestCode.SEND_BATCH_MESSAGE, "true")
    assert command.body.count(b"KEYS\x01order-") == BATCH


def test_pulls_stay_inside_of_what_there_is() -> None:
    pullers = Pullers([("a", 0), ("a", 1)], depth=64, count=8)
    found = [decoded(pullers.next()).ext for _ in range(100)]
    assert {one["queueId"] for one in found} == {"0", "1"}
    assert {int(one["queueOffset"]) for one in found} == set(range(0, 64, 8))


def test_an_answer_is_read_whatever_stands_behind_its_header() -> None:
    answer = Answer(frame(0, {"nextBeginOffset": 7}, b"{...", number=3)[4:])
    assert (answer.code, answer.number, answer.field("nextBeginOffset")) == (ResponseCode.SUCCESS, 3, 7)
