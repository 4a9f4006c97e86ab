"""Charts cover the last hour, say in words what they draw, and have a value for every sample."""

from __future__ import annotations

import json

from orbitmq.admin.cluster import ClusterBroker, Overview
from orbitmq.admin.cluster_view import ClusterView
from orbitmq.admin.groups import GroupSummary, Sums, TopicSums
from orbitmq.admin.results import Failure, Result
from orbitmq.admin.verdict import Severity
from orbitmq.dashboard import charts
from orbitmq.dashboard.clusters import SAMPLE_SECONDS, SAMPLES, History, Moment, samples_of
from orbitmq.dashboard.formats import environment

BEGAN_MS = 1_700_000_000_000


def moment(number: int) -> Moment:
    """Each sample has more of everything; the slave does not respond."""
    overview = Overview(
        "c", "all is well", Severity.WELL, 1, 1, [], [], float(number), 2.0 * number, None, None, None, [], []
    )
    brokers = [
        ClusterBroker(
            "c", "a", 0, "master", "h:1", answers=True, in_per_s=number, out_per_s=2 * number, loop_delay_ms=5,
            put_99_ms=number / 8,
        ),
        ClusterBroker("c", "a", 1, "slave", "h:2", answers=False),
    ]  # fmt: skip
    groups = [
        GroupSummary("billing", ["a"], ["Orders"], False, lag_messages=10 * number, handed_out_tps=0.5),
        GroupSummary("news", ["a"], ["Orders"], False, model="BROADCASTING"),
    ]
    sums = {"billing": Sums(topics={"Orders": TopicSums(10 * number, 300 * number, 4.0)})}
    return Moment(Result([ClusterView([overview], brokers, groups, len(groups))]), sums)


def history(samples: int) -> History:
    made = History()
    for number in range(samples):
        made.add(samples_of(moment(number)), BEGAN_MS + number * 15_000)
    return made


def test_an_hour_is_kept() -> None:
    assert SAMPLES * SAMPLE_SECONDS == charts.SPAN_SECONDS
    kept = history(SAMPLES + 10)
    (rates, latency, lag) = charts.of_cluster(kept, 15_000)
    assert len(rates.times) == len(rates.lines[0].values) == SAMPLES
    drawn = json.loads(rates.json)
    assert drawn["end"] - drawn["begin"] == charts.SPAN_SECONDS - SAMPLE_SECONDS
    assert rates.times[-1] - rates.times[0] == (SAMPLES - 1) * SAMPLE_SECONDS
    assert [line.values[-1] for line in rates.lines] == [SAMPLES + 9, 2 * (SAMPLES + 9)]
    assert [line.values[-1] for line in latency.lines] == [(SAMPLES + 9) / 8, 5]
    assert lag.lines[0].values[-1] == 10 * (SAMPLES + 9), "a broadcast group has none"


def test_a_broker_and_a_group_have_their_own() -> None:
    kept = history(3)
    rates, latency = charts.of_broker(kept, "a", 0, 15_000)
    assert [list(line.values) for line in rates.lines] == [[0, 1, 2], [0, 2, 4]]
    assert list(latency.lines[0].values) == [0, 0.125, 0.25]
    assert not any(chart.is_drawn for chart in charts.of_broker(kept, "a", 1, 15_000)), "it has reported nothing"
    lag, delivered = charts.of_group(kept, "billing", 15_000)
    assert list(lag.lines[0].values) == [0, 10, 20]
    assert list(delivered.lines[0].values) == [0.5, 0.5, 0.5]


def test_a_chart_says_what_it_draws_and_in_which_unit() -> None:
    rates = charts.of_cluster(history(3), 15_000)[0]
    assert rates.summary == "produced: 2 messages/s, at most 2; delivered: 4 messages/s, at most 4"
    drawn = json.loads(rates.json)
    assert (drawn["unit"], drawn["times"]) == ("messages/s", [1_700_000_000, 1_700_000_015, 1_700_000_030])
    assert drawn["end"] - drawn["begin"] == charts.SHORTEST_SECONDS, "a few samples are to be seen"
    assert [one["label"] for one in drawn["series"]] == ["produced", "delivered"]


def test_a_chart_without_two_values_says_when_it_begins() -> None:
    template = environment().from_string('{% from "parts.html" import figure %}{{ figure(chart) }}')
    early = template.render(chart=charts.of_cluster(history(1), 15_000)[0])
    assert "begins with the second measurement, in 15 s" in early
    assert "data-chart" not in early
    assert "data-chart" in template.render(chart=charts.of_cluster(history(2), 15_000)[0])


def test_a_topic_has_what_is_produced_and_the_rate_and_lag_of_each_group() -> None:
    rates, lags = charts.of_topic(history(3), "Orders", 15_000)
    assert [(line.label, line.values) for line in rates.lines] == [
        ("produced", [None, 20, 20]),  # 300 messages in 15 s
        ("billing", [4, 4, 4]),
    ]
    assert [(line.label, line.values) for line in lags.lines] == [("billing", [0, 10, 20])]
    assert rates.lines[1].colour == lags.lines[0].colour, "a group has one colour"
    assert charts.of_topic(history(3), "Mails", 15_000)[0].is_drawn is False


def test_a_topic_shows_the_groups_that_are_the_furthest_behind() -> None:
    kept = History()
    names = [f"g{number}" for number in range(charts.GROUPS_MAX + 3)]
    kept.add({f"lag@Orders@{name}": number for number, name in enumerate(names)} | {"lag@Orders2@other": 99}, BEGAN_MS)
    lags = charts.of_topic(kept, "Orders", 15_000)[1]
    assert [line.label for line in lags.lines] == names[: -charts.GROUPS_MAX - 1 : -1]


def test_a_topic_without_a_group_has_the_rate_that_was_requested_for_it() -> None:
    kept = History()
    for number in range(2):
        kept.add({"in@Logs": 7.5 + number}, BEGAN_MS + number * 15_000)
    (rates,) = charts.of_topic(kept, "Logs", 15_000)
    assert [(line.label, line.values) for line in rates.lines] == [("produced", [7.5, 8.5])]


def test_a_rate_is_unknown_where_a_count_is_or_where_it_shrank() -> None:
    assert charts.rates_of([0, 10, 20, 30, 40], [5, 25, None, 60, 0]) == [None, 2, None, None, None]


def test_a_group_that_has_no_offset_yet_does_not_hide_the_lag_of_the_others() -> None:
    now = moment(3)
    idle = GroupSummary("just-created", ["a"], [], False)
    now.view.groups.append(idle)
    assert samples_of(now)["lag"] == 30
    silent = Failure("h:2", -1, "ConnectError", "refused", None, retryable=True)
    partial = samples_of(Moment(Result([now.view], failures=[silent]), now.sums))
    assert partial["lag"] is None, "a broker that does not respond may have any"
    assert not [name for name in partial if "@" in name], "nor is a topic known as a whole"


def test_a_gap_stays_a_gap() -> None:
    kept = history(2)
    kept.add({}, BEGAN_MS + 30_000)
    kept.add(samples_of(moment(3)), BEGAN_MS + 45_000)
    drawn = json.loads(charts.of_cluster(kept, 15_000)[0].json)
    assert drawn["series"][0]["values"] == [0, 1, None, 3]
