"""Options of a read: spelling, hints for what others call differently, and values that cannot be."""

from __future__ import annotations

import pytest

from orbitmq.errors import SourceError
from orbitmq.spark.options import read_options

NAMES = {"nameserver": "10.0.0.1:9876; 10.0.0.2:9876", "path": "orders"}


def test_names_are_not_case_sensitive() -> None:
    options = read_options(
        {"NAMESERVER": "n:1,m:2", "subscribe": "a, b", "FAILONDATALOSS": "FALSE", "columns": "body,tags"}
    )
    assert options.name_servers == ("n:1", "m:2")
    assert options.topics == ("a", "b")
    assert options.column_names == ("body", "tags")
    assert options.fail_on_data_loss is False


def test_load_names_the_topic_too() -> None:
    assert read_options(NAMES).topics == ("orders",)
    assert read_options({**NAMES, "subscribe": "orders"}).topics == ("orders",)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"path": "orders"}, "orbitmq topic orders, from n:1, m:2"),
        ({"subscribe": "orders,payments"}, "orbitmq topics orders, payments, from n:1, m:2"),
        ({"subscribe": "a,b,c,d,e,f,g"}, "orbitmq topics a, b, c, d, e and 2 more, from n:1, m:2"),
        ({"subscribePattern": "order.*"}, "orbitmq topics that match order.*, from n:1, m:2"),
        ({"assign": '{"orders": [0]}'}, "orbitmq assigned queues, from n:1, m:2"),
    ],
)
def test_a_read_has_a_description_for_people(given: dict[str, str], text: str) -> None:
    assert read_options({"nameServer": "n:1;m:2", "secretKey": "s", "accessKey": "a", **given}).description == text


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"kafka.bootstrap.servers": "k:9092"}, "option kafka.bootstrap.servers is unknown; use nameServer"),
        ({"startingOffset": "earliest"}, "option startingOffset is unknown; did you mean startingOffsets?"),
        ({"zzz": "1"}, "option zzz is unknown; the options are nameServer, accessKey"),
        ({"includeProperties": "json"}, "option includeProperties: value 'json' is not allowed; use one of map"),
        ({"pullPipeline": "0"}, "option pullPipeline: value '0' is not allowed; use a whole number from 1"),
        ({"verifyCrc": "maybe"}, "option verifyCrc: value 'maybe' is not allowed; use true or false"),
        ({"subscribe": "payments"}, "option subscribe is payments, but load() got orders"),
        ({"subExpression": "||"}, "option subExpression: "),
        ({"groupId": "g" * 121}, f"option groupId: the consumer group '{'g' * 121}' has 121 characters, at most 120"),
        (
            {"maxPartitions": "4", "maxRecordsPerPartition": "100"},
            "options maxPartitions and maxRecordsPerPartition exclude each other",
        ),
        ({"maxPartitions": "4", "minPartitions": "5"}, "option minPartitions is 5, but maxPartitions 4; raise"),
        ({"path": ""}, "no topic; set option subscribe"),
        ({"nameserver": " ; "}, "option nameServer is missing"),
    ],
)
def test_a_mistake_is_refused_by_name(given: dict[str, str], text: str) -> None:
    with pytest.raises(SourceError) as caught:
        _ = read_options({**NAMES, **given}).tags
    assert str(caught.value).startswith(f"ORBITMQ_BAD_OPTION: {text}")


def test_tags_are_those_of_the_expression() -> None:
    assert read_options({**NAMES, "subExpression": "TagA || TagB"}).tags == {"TagA", "TagB"}
    assert read_options(NAMES).tags == frozenset()
