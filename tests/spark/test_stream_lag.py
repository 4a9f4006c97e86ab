"""The lag of a stream by topic: its figures, the form in which a query's progress carries it, and what is not known."""

from __future__ import annotations

import json

import pytest

from orbitmq.spark.stream_lag import TOPICS_MAX, LagReport, Spread, TopicLag, summed, topic_lags
from tests.spark.scripted_peer import queue

NOW = 1_700_000_100_000
O0, O1, P0 = queue(0), queue(1), queue(0, "payments")


def test_a_topic_has_the_least_the_mean_and_the_most_of_its_queues() -> None:
    found = topic_lags({O0: 5, O1: 0, P0: 40}, {O0: NOW - 3000, P0: NOW - 500}, NOW)
    assert found == [
        TopicLag("payments", 1, Spread(40, 40, 40), Spread(0.5, 0.5, 0.5)),
        TopicLag("orders", 2, Spread(0, 2.5, 5), Spread(0, 1.5, 3)),
    ]


def test_a_message_from_the_future_waits_no_time() -> None:
    assert topic_lags({O0: 1}, {O0: NOW + 5000}, NOW)[0].seconds == Spread(0, 0, 0)


def test_the_time_of_a_topic_is_unknown_if_that_of_a_queue_is() -> None:
    (found,) = topic_lags({O0: 5, O1: 1}, {O0: NOW - 3000}, NOW)
    assert (found.messages, found.seconds) == (Spread(1, 3, 5), None)


def test_a_report_has_the_topics_furthest_behind() -> None:
    waiting = {queue(0, f"t{number:03}"): number for number in range(TOPICS_MAX + 50)}
    found = topic_lags(waiting, {}, NOW)
    assert [lag.topic for lag in found] == [f"t{number:03}" for number in range(TOPICS_MAX + 49, 49, -1)]


def test_reports_come_back_from_the_progress_of_a_query() -> None:
    lags = topic_lags({O0: 5, O1: 0, P0: 3}, {O0: NOW - 3000}, NOW)
    report = LagReport("orbitmq topic orders, from 127.0.0.1:9876", NOW, lags)
    assert LagReport.of_json(json.dumps({"q": {}, "v": 1} | report.as_json())) == report


@pytest.mark.parametrize(
    "offset", [None, 7, "", "earliest", "[]", "{}", '{"behind": 3}', '{"behind": {"t": {}}}', '{"orders": {"0": 23}}']
)
def test_offsets_of_other_sources_are_no_report(offset: object) -> None:
    assert LagReport.of_json(offset) is None


def test_a_topic_that_a_query_reads_twice_is_counted_once() -> None:
    one = TopicLag("orders", 1, Spread(2, 2, 2), Spread(1, 1, 1))
    other = TopicLag("orders", 3, Spread(0, 10, 20), Spread(0, 5, 9))
    reports = [LagReport("a", NOW, [one]), LagReport("b", NOW, [other])]
    assert summed(reports) == [TopicLag("orders", 4, Spread(0, 8, 20), Spread(0, 4, 9))]
    unknown = LagReport("c", NOW, [TopicLag("orders", 1, Spread(0, 0, 0), None)])
    assert summed([*reports, unknown])[0].seconds is None
