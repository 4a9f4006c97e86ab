"""Figures of a broker, as Java's tools ask for them."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.errors import BrokerError
from orbitmq.operations.statistics import broker_consume_stats, runtime_info, statistic
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.requests import RequestCode
from tests.support.recorded import ADDRESS, exchange


def test_the_runtime_table() -> None:
    found = exchange(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert asyncio.run(runtime_info(found.remoting, ADDRESS))["brokerVersionDesc"] == "V4_9_7"
    found.assert_asked_as_java()


def test_a_statistic_that_was_counted() -> None:
    found = exchange(RequestCode.VIEW_BROKER_STATS_DATA)
    figure = asyncio.run(statistic(found.remoting, ADDRESS, found.ext["statsName"], found.ext["statsKey"]))
    assert figure is not None
    found.assert_asked_as_java()


def test_what_was_never_counted_is_none_and_a_failure_is_raised() -> None:
    found = exchange(RequestCode.VIEW_BROKER_STATS_DATA)
    answer = found.remoting.answer
    assert answer is not None
    answer.code, answer.remark = ResponseCode.SYSTEM_ERROR, "The stats <TOPIC_PUT_NUMS> <None> not exist"
    assert asyncio.run(statistic(found.remoting, ADDRESS, "TOPIC_PUT_NUMS", "None")) is None
    answer.remark = "the disk is gone"
    with pytest.raises(BrokerError, match="the disk is gone"):
        asyncio.run(statistic(found.remoting, ADDRESS, "TOPIC_PUT_NUMS", "None"))


def test_the_progress_of_all_groups() -> None:
    found = exchange(RequestCode.GET_BROKER_CONSUME_STATS)
    assert asyncio.run(broker_consume_stats(found.remoting, ADDRESS)).broker_addr
    found.assert_asked_as_java()
