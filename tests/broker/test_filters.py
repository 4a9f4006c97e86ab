"""Registered expressions follow RocketMQ's rules of version, life and death, and its file."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from orbitmq.broker.filters import BITMAP_COST_MAX, COMPILED_MAX, FILTERS_MAX, REVIVAL_MS, Filters
from orbitmq.broker.options import BrokerOptions
from orbitmq.errors import RequestRejected
from orbitmq.filter.sql92 import compile_sql92
from orbitmq.message.config import SQL92, SubscriptionData
from orbitmq.message.properties import encode_properties
from orbitmq.runtime.clock import ManualClock
from tests.support.golden import GOLDEN, manifest, unpack
from tests.support.loops import until

DAY_MS = 86_400_000
START_MS = 1_700_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_MS)


def made(directory: Path, clock: ManualClock, **options: str) -> Filters:
    return Filters(directory, BrokerOptions.parse({"enablePropertyFilter": "true", **options}), clock)


@pytest.fixture
def filters(tmp_path: Path, clock: ManualClock) -> Filters:
    return made(tmp_path, clock)


def sql(topic: str, expression: str, version: int = 1) -> SubscriptionData:
    return SubscriptionData(topic, expression, version=version, expression_type=SQL92)


def text(filters: Filters, topic: str = "T", group: str = "g") -> str | None:
    found = filters.find(topic, group)
    return None if found is None else found.expression.text


def saved(filters: Filters) -> dict[str, object]:
    found: dict[str, object] = json.loads(filters._text()())["filterDataByTopic"]
    return found


def test_an_expression_is_replaced_by_a_newer_one_only(filters: Filters, clock: ManualClock) -> None:
    filters.register("g", [sql("T", "a > 5", 10)])
    clock.advance(1000)
    filters.register("g", [sql("T", "a > 6", 10)])
    filters.register("g", [sql("T", "a > 7", 9)])
    assert text(filters) == "a > 5"
    filters.register("g", [sql("T", "a > 5", 11)])
    assert (filters.find("T", "g").version, filters.find("T", "g").born_ms) == (11, START_MS)  # type: ignore[union-attr]
    filters.register("g", [sql("T", "a > 6", 12)])
    assert (text(filters), filters.find("T", "g").born_ms) == ("a > 6", START_MS + 1000)  # type: ignore[union-attr]


def test_an_expression_that_means_nothing_removes_the_old_one(
    filters: Filters, caplog: pytest.LogCaptureFixture
) -> None:
    filters.register("g", [sql("T", "a > 5", 10)])
    with caplog.at_level(logging.WARNING):
        filters.register("g", [sql("T", "a >", 11), SubscriptionData("U", "a > 5", expression_type="SQL99")])
    assert text(filters) is text(filters, "U") is None
    assert "line 1, column 4" in caplog.text
    filters.register("g", [sql("T", "a > 5", 12)])
    assert text(filters) == "a > 5"


def test_what_is_subscribed_no_longer_dies_and_is_revived(filters: Filters, clock: ManualClock) -> None:
    filters.register("g", [sql("T", "a > 5"), sql("U", "b > 5"), SubscriptionData("V", "TagA")])
    clock.advance(10)
    filters.register("g", [sql("T", "a > 5"), SubscriptionData("U", "TagA")])
    assert (filters.find("T", "g").dead_ms, filters.find("U", "g").dead_ms) == (0, START_MS + 10)  # type: ignore[union-attr]
    clock.advance(10)
    filters.forget_group("g")
    assert (filters.find("T", "g").dead_ms, filters.find("U", "g").dead_ms) == (START_MS + 20, START_MS + 10)  # type: ignore[union-attr]
    filters.forget_group("unknown")
    filters.register("g", [sql("T", "a > 5")])
    assert (filters.find("T", "g").dead_ms, filters.find("T", "g").born_ms) == (0, START_MS)  # type: ignore[union-attr]


async def test_the_dead_go_after_their_time(filters: Filters, clock: ManualClock) -> None:
    filters.register("g", [sql("T", "a > 5"), sql("U", "b > 5")])
    filters.register("h", [sql("T", "a > 5")])
    filters.forget_group("g")
    clock.advance(DAY_MS - 1)
    filters.save_soon()
    assert text(filters) == "a > 5"
    clock.advance(1)
    filters.save_soon()
    await filters.file.flush()
    assert text(filters) is text(filters, "U") is None
    assert text(filters, "T", "h") == "a > 5"
    assert list(json.loads(filters.file.path.read_text())["filterDataByTopic"]) == ["T"]


def test_nothing_is_registered_while_expressions_are_off(tmp_path: Path, clock: ManualClock) -> None:
    filters = made(tmp_path, clock, enablePropertyFilter="false")
    filters.register("g", [sql("T", "a > 5")])
    assert text(filters) is None
    with pytest.raises(RequestRejected, match="does not support consumer to filter message by SQL92"):
        filters.check("a > 5", SQL92)


async def test_a_restart_keeps_filters_as_dead(tmp_path: Path, filters: Filters, clock: ManualClock) -> None:
    filters.register("g", [sql("T", "a > 5"), sql("U", "b = '5'")])
    filters.register("h", [sql("T", "c = '中文'")])
    filters.forget_group("h")
    filters.save_soon()
    await filters.file.flush()
    clock.advance(1000)
    again = made(tmp_path, clock)
    again.load()
    assert [text(again), text(again, "U"), text(again, "T", "h")] == ["a > 5", "b = '5'", "c = '中文'"]
    found = again.find("T", "g")
    assert found is not None
    assert (found.born_ms, found.dead_ms) == (START_MS, START_MS), "dead since its birth, which was less than 30 s ago"
    clock.advance(DAY_MS)
    later = made(tmp_path, clock)
    later.load()
    assert later.find("T", "g").dead_ms == clock.now_ms() - REVIVAL_MS  # type: ignore[union-attr]
    assert later.find("T", "h").dead_ms == START_MS  # type: ignore[union-attr]


async def test_an_unchanged_table_is_not_written(filters: Filters) -> None:
    filters.register("g", [sql("T", "a > 5")])
    filters.save_soon()
    await filters.file.flush()
    filters.file.path.unlink()
    filters.register("g", [sql("T", "a > 5")])
    filters.save_soon()
    await filters.file.flush()
    assert not filters.file.path.exists()
    filters.register("g", [sql("T", "a > 5", 2)])
    filters.save_soon()
    await until(filters.file.path.exists)


@pytest.mark.parametrize("path", [GOLDEN / "configs" / "broker_consumerFilter.json"])
def test_rocketmqs_file_is_read_and_written_as_it_was(path: Path, tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "consumerFilter.json").write_bytes(path.read_bytes())
    filters = made(tmp_path, clock)
    filters.load()
    assert sorted(filters._text()()) == sorted(path.read_text()), "the same text but for the order of maps"
    assert json.loads(filters._text()()) == json.loads(path.read_text())
    assert saved(filters), "it holds something"


def test_a_file_for_bitmaps_of_another_size_is_left_alone(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "consumerFilter.json").write_bytes((GOLDEN / "configs" / "broker_consumerFilter.json").read_bytes())
    filters = made(tmp_path, clock, expectConsumerNumUseFilter="64")
    filters.load()
    assert saved(filters) == {}


def test_bitmaps_are_those_of_rocketmq(tmp_path: Path, clock: ManualClock) -> None:
    """The units of a queue's extension that RocketMQ wrote while these filters were registered."""
    store = unpack("cqext", tmp_path)
    filters = made(store / "config", clock, expectConsumerNumUseFilter="4")
    filters.load()
    told = manifest("cqext")
    messages = {message["physicalOffset"]: message for message in told["messages"]}
    compared = 0
    for queue in told["queues"]:
        for entry, unit in zip(queue["entries"], queue.get("ext") or (), strict=False):
            if unit and unit["filterBitMap"]:
                properties = encode_properties(messages[entry[0]]["properties"]).encode()
                assert filters.bitmap(queue["topic"], properties).hex() == unit["filterBitMap"], entry
                compared += 1
    assert compared > 100


def test_a_topic_without_filters_or_with_too_many_gets_no_bitmap(filters: Filters) -> None:
    assert filters.bitmap("T", b"a\x015") == b""
    most = BITMAP_COST_MAX // compile_sql92("a = 5").cost
    for number in range(most):
        filters.register(f"g{number}", [sql("T", "a = 5")])
    assert any(filters.bitmap("T", b"a\x015"))
    assert filters.bitmap("T", b"a\x016") == bytes(14)
    filters.register("one more", [sql("T", "a = 5")])
    assert filters.bitmap("T", b"a\x015") == b""
    filters.register("one more", [sql("T", "a >", 2)])
    assert any(filters.bitmap("T", b"a\x015"))


def test_one_heartbeat_compiles_so_many_and_the_next_goes_on(filters: Filters) -> None:
    wanted = [sql(f"T{number}", f"a = {number}") for number in range(COMPILED_MAX + 3)]
    filters.register("g", wanted)
    assert len(filters.of("g")) == COMPILED_MAX
    filters.register("g", wanted)
    assert len(filters.of("g")) == COMPILED_MAX + 3
    assert not any(one.is_dead for one in filters.of("g"))


def test_there_is_a_limit(filters: Filters, caplog: pytest.LogCaptureFixture) -> None:
    filters._count = FILTERS_MAX - 1
    filters.register("g", [sql("T", "a > 5")])
    with caplog.at_level(logging.WARNING):
        filters.register("h", [sql("T", "a > 5")])
    assert text(filters, "T", "g") == "a > 5"
    assert text(filters, "T", "h") is None
    assert f"limit={FILTERS_MAX}" in caplog.text
