"""A document is read strictly, and written the same each time."""

from __future__ import annotations

import pytest

from orbitmq.admin.declared import AccountEntry, Document, GroupEntry, SecretReference, TopicEntry, dump, parse
from orbitmq.errors import ConfigurationError

TEXT = """\
apiVersion: orbitmq/v1
kind: ClusterConfig
topics:
- {name: Orders, readQueues: 8, perm: RW}
- {name: Audit, brokers: [broker-a]}
- {name: Audit, writeQueues: 4, brokers: [broker-b]}
groups:
- {name: billing, retryMaxTimes: 5}
accounts:
- {accessKey: order-service, secret: {env: SECRET}, topicPerms: ["Orders=PUB|SUB"]}
"""


def test_what_a_document_says() -> None:
    document = parse(TEXT)
    assert document.topics is not None
    assert document.topics[0] == TopicEntry("Orders", read_queues=8, perm="RW")
    assert document.groups == [GroupEntry("billing", retry_max_times=5)]
    assert document.groups[0].rules() == {"retry_max_times": 5}
    assert document.accounts == [
        AccountEntry("order-service", SecretReference(env="SECRET"), topic_perms=["Orders=PUB|SUB"])
    ]


def test_what_is_written_is_read_again_and_written_the_same() -> None:
    text = dump(parse(TEXT))
    assert parse(text) == parse(TEXT)
    assert dump(parse(text)) == text
    assert text.startswith("apiVersion: orbitmq/v1\nkind: ClusterConfig\ntopics:\n- name: Orders\n")


def test_a_missing_section_is_not_an_empty_one() -> None:
    assert parse("topics: []") == Document(topics=[])
    assert parse("") == Document()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("topics: [{name: a, queues: 3}]", r"unknown field `queues` - at `\$.topics\[0\]`"),
        ("topics: [{readQueues: 3}]", "missing required field `name`"),
        ("topics: [{name: a, readQueues: many}]", "readQueues"),
        ("topics: [{name: a}, {name: a}]", "topic a is declared twice"),
        ("topics: [{name: a}, {name: a, brokers: [b]}]", "topic a is declared twice"),
        ("groups: [{name: a, brokers: [b]}, {name: a, brokers: [b, c]}]", "group a is declared twice"),
        ("accounts: [{accessKey: a, secretKey: open}]", "unknown field `secretKey`"),
        ("kind: Other", "Other is not"),
        ("topics: [", "no YAML"),
        ("- a", "Expected `object`"),
        ("topics: !!python/object/apply:os.system [id]", "no YAML"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, place: str) -> None:
    with pytest.raises(ConfigurationError, match=place):
        parse(text)
