"""Topics exist from the start, come with the first message after RocketMQ's rules, and survive a restart."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from orbitmq.broker import topics as topics_module
from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.topics import Topics
from orbitmq.errors import RequestRejected
from orbitmq.message.config import MULTI_TAG, DataVersion, TopicConfig
from orbitmq.message.javajson import loads
from orbitmq.runtime.clock import ManualClock
from orbitmq.runtime.refusals import Refusals
from tests.support.golden import GOLDEN

NOW_MS = 1_700_000_000_000
OPTIONS = BrokerOptions(broker_name="broker-a", broker_cluster_name="c1")


def made(directory: Path, **options: object) -> Topics:
    return Topics(directory, OPTIONS.replace(**options), ManualClock(NOW_MS))


# ----------------------------------------------------------------------------------------------------------- built-in


def test_the_topics_of_a_fresh_broker_are_rocketmqs(tmp_path: Path) -> None:
    table = made(tmp_path).table
    assert {name: (c.read_queues, c.write_queues, c.perm) for name, c in table.items()} == {
        "SELF_TEST_TOPIC": (1, 1, 6),
        "TBW102": (8, 8, 7),
        "BenchmarkTest": (1024, 1024, 6),
        "c1": (16, 16, 7),
        "broker-a": (1, 1, 7),
        "OFFSET_MOVED_EVENT": (1, 1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 1, 6),
        "c1_REPLY_TOPIC": (1, 1, 6),
    }


def test_options_decide_about_some_of_them(tmp_path: Path) -> None:
    table = made(
        tmp_path,
        auto_create_topic_enable=False,
        cluster_topic_enable=False,
        broker_topic_enable=False,
        trace_topic_enable=True,
        default_topic_queue_nums=3,
    ).table
    assert "TBW102" not in table
    assert (table["c1"].perm, table["broker-a"].perm) == (1, 1)
    assert table["RMQ_SYS_TRACE_TOPIC"] == TopicConfig("RMQ_SYS_TRACE_TOPIC", 1, 1)
    assert made(tmp_path, default_topic_queue_nums=3).table["TBW102"].write_queues == 3


def test_system_topics_are_protected(tmp_path: Path) -> None:
    topics = made(tmp_path)
    protected = ["TBW102", "c1", "broker-a", "c1_REPLY_TOPIC", "rmq_sys_anything", "RMQ_SYS_TRANS_HALF_TOPIC"]
    assert all(map(topics.is_protected, [*topics.table, *protected]))
    assert not topics.is_protected("Orders")


# ------------------------------------------------------------------------------------------------- the first message


@pytest.mark.parametrize(
    ("name", "queues", "unit", "created"),
    [
        ("Orders", 4, False, TopicConfig("Orders", 4, 4, 6)),
        ("Orders", 99, False, TopicConfig("Orders", 8, 8, 6)),
        ("Orders", -1, False, TopicConfig("Orders", 0, 0, 6)),
        ("Orders", 4, True, TopicConfig("Orders", 4, 4, 6, sys_flag=1)),
        ("%RETRY%g", 4, True, TopicConfig("%RETRY%g", 4, 4, 6, sys_flag=2)),
    ],
)
async def test_a_first_message_makes_a_topic_after_its_template(
    tmp_path: Path, name: str, queues: int, unit: bool, created: TopicConfig
) -> None:
    topics = made(tmp_path)
    assert topics.create_for_send(name, "TBW102", queues, unit=unit) == created
    assert topics.get(name) == created
    await topics.file.flush()


async def test_the_template_hands_down_permission_and_filter_type(tmp_path: Path) -> None:
    topics = made(tmp_path)
    topics.put(TopicConfig("Model", 16, 6, perm=5, filter_type=MULTI_TAG))
    assert topics.create_for_send("Bills", "Model", 9, unit=False) == TopicConfig("Bills", 6, 6, 4, MULTI_TAG)
    await topics.file.flush()


async def test_created_topics_take_the_messages_that_an_option_says(tmp_path: Path) -> None:
    topics = made(tmp_path, auto_create_topic_message_type="MIXED")
    created = topics.create_for_send("Orders", "TBW102", 4, unit=False)
    assert created == TopicConfig("Orders", 4, 4, 6, attributes={"message.type": "MIXED"})
    assert topics.create_for_send("%RETRY%g", "TBW102", 4, unit=False) == TopicConfig("%RETRY%g", 4, 4, 6)
    await topics.file.flush()


async def test_without_a_template_to_inherit_from_there_is_no_topic(tmp_path: Path) -> None:
    topics = made(tmp_path)
    for template in ("Unknown", "SELF_TEST_TOPIC", ""):
        assert topics.create_for_send("Orders", template, 4, unit=False) is None
    assert topics.get("Orders") is None
    assert topics.version == DataVersion(0, NOW_MS)


async def test_auto_creation_can_be_off_though_a_file_still_holds_the_template(tmp_path: Path) -> None:
    topics = made(tmp_path, auto_create_topic_enable=False)
    topics.put(TopicConfig("TBW102", 8, 8, perm=7))
    assert topics.create_for_send("Orders", "TBW102", 4, unit=False) is None
    assert topics.create_for_send("Orders", "c1", 4, unit=False) is not None
    await topics.file.flush()


async def test_a_retry_topic_needs_no_template(tmp_path: Path) -> None:
    topics = made(tmp_path, auto_create_topic_enable=False)
    assert topics.create_for_send("%RETRY%g", "TBW102", 4, unit=False) == TopicConfig("%RETRY%g", 1, 1, 6)
    assert topics.create_for_group("h", 3, unit=True) == TopicConfig("%RETRY%h", 3, 3, 6, sys_flag=2)
    assert topics.create_for_group("h", 9) == TopicConfig("%RETRY%h", 3, 3, 6, sys_flag=2)
    await topics.file.flush()


async def test_invented_names_have_a_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Senders meet it first, then those that invent groups, and administrators last; what is there can be changed."""
    first = len(made(tmp_path).table)
    monkeypatch.setattr(topics_module, "ADMINISTRATORS_SHARE", first + 4)
    topics = made(tmp_path, auto_created_topics_max=first + 1, topics_max=first + 4)
    assert topics.create_for_send("First", "TBW102", 1, unit=False) is not None
    assert topics.create_for_send("Second", "TBW102", 1, unit=False) is None
    assert f"topic=Second reason=limit topics={first + 1} limit={first + 1} " in caplog.text
    topics.create_for_group("g", 1)
    topics.create_for_system("%DLQ%g", 1)
    topics.create_for_group("g", 1)
    for create in (lambda: topics.create_for_group("h", 1), lambda: topics.create_for_system("%DLQ%h", 1)):
        with pytest.raises(RequestRejected, match="topicsMax"):
            create()
    topics.put(TopicConfig("Made", 1, 1))
    with pytest.raises(RequestRejected, match="topicsMax"):
        topics.put(TopicConfig("Surplus", 1, 1))
    topics.put(TopicConfig("Made", 4, 4))
    topics.create_for_system("TRANS_CHECK_MAX_TIME_TOPIC", 1)
    topics.delete("Made")
    topics.delete("TRANS_CHECK_MAX_TIME_TOPIC")
    topics.put(TopicConfig("Surplus", 1, 1))
    await topics.file.flush()


async def test_retry_topics_of_groups_that_administrators_made_take_all_there_is(tmp_path: Path) -> None:
    first = len(made(tmp_path).table)
    topics = made(tmp_path, auto_create_subscription_group=False, topics_max=first + 5)
    for number in range(5):
        topics.create_for_group(f"g{number}", 1)
    with pytest.raises(RequestRejected, match="topicsMax"):
        topics.create_for_group("surplus", 1)
    await topics.file.flush()


def test_topics_that_may_not_be_made_by_sends_make_few_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A production broker's setting, and an application whose topic nobody has made: no refusal to be alarmed by."""
    refusals = Refusals()
    options = OPTIONS.replace(auto_create_topic_enable=False)
    topics = Topics(tmp_path, options, ManualClock(NOW_MS), refusals=refusals)
    for _ in range(1000):
        assert topics.create_for_send("Unknown", "TBW102", 1, unit=False) is None
    assert caplog.messages == ["event=topic_refused topic=Unknown template=TBW102"]
    assert not any(refusals.counts.values())


async def test_all_topics_fit_into_one_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else no name server would hear of any. A topic that is gone leaves its room."""
    monkeypatch.setattr(topics_module, "AUTO_CREATED_SIZE_MAX", 2000)
    monkeypatch.setattr(topics_module, "TEXT_SIZE_MAX", 4000)
    topics = made(tmp_path)
    created = [f"{'n' * 100}{number}" for number in range(100)]
    by_sends = [name for name in created if topics.create_for_send(name, "TBW102", 1, unit=False)]
    assert 2000 < len("".join(created[: len(by_sends)])) * 4 < 4000
    made_before = len(topics.table)
    with suppress(RequestRejected):
        for name in created:
            topics.put(TopicConfig(name, 1, 1))
    with pytest.raises(RequestRejected, match="one frame"):
        topics.put(TopicConfig("surplus", 1, 1))
    assert made_before < len(topics.table) < len(created)
    assert len(topics.text().compact()) < 6000
    for name in list(topics.table):
        topics.delete(name)
    assert topics._texts.size == 0
    topics.put(TopicConfig("again", 1, 1))
    await topics.file.flush()


# ------------------------------------------------------------------------------------------------ versions and files


async def test_each_change_counts_and_is_told(tmp_path: Path) -> None:
    told: list[TopicConfig | None] = []
    clock = ManualClock(NOW_MS)
    topics = Topics(tmp_path, OPTIONS, clock, told.append)
    orders = TopicConfig("Orders", 4, 4)
    topics.put(orders)
    clock.advance(5)
    topics.put(orders)
    assert topics.version == DataVersion(1, NOW_MS)
    topics.delete("Unknown")
    topics.delete("Orders")
    assert topics.version == DataVersion(2, NOW_MS + 5)
    assert told == [orders, None]
    assert topics.get("Orders") is None
    await topics.file.flush()


async def test_a_snapshot_is_the_whole_table_or_a_part_with_its_version(tmp_path: Path) -> None:
    topics = made(tmp_path)
    topics.put(TopicConfig("Orders", 4, 4))
    assert topics.snapshot().topics == topics.table
    part = topics.snapshot([topics.table["Orders"]])
    assert part.topics == {"Orders": TopicConfig("Orders", 4, 4)}
    assert part.data_version == topics.version
    await topics.file.flush()


async def test_a_restart_keeps_topics_and_version(tmp_path: Path) -> None:
    topics = made(tmp_path)
    topics.put(TopicConfig("Orders", 4, 2, perm=4, filter_type=MULTI_TAG, sys_flag=1, order=True))
    topics.put(TopicConfig("TBW102", 2, 2, perm=7))
    await topics.file.flush()
    again = made(tmp_path)
    again.load()
    assert again.table == topics.table
    assert again.version == topics.version


async def test_a_file_of_rocketmq_is_read_and_written_again(tmp_path: Path) -> None:
    text = (GOLDEN / "configs/broker_topics.json").read_text(encoding="utf-8")
    java = loads(text)
    topics = made(tmp_path)
    topics.file.path.write_text(text, encoding="utf-8")
    topics.load()
    assert topics.version == DataVersion(**java["dataVersion"])
    assert set(topics.table) == set(java["topicConfigTable"]) | topics.built_in
    for name, config in java["topicConfigTable"].items():
        found = topics.table[name]
        assert (found.read_queues, found.write_queues, found.perm, found.sys_flag, found.order) == (
            config["readQueueNums"],
            config["writeQueueNums"],
            config["perm"],
            config["topicSysFlag"],
            config["order"],
        )
    topics.file.mark()
    await topics.file.flush()
    written = json.loads(topics.file.path.read_text(encoding="utf-8"))
    assert written["dataVersion"] == java["dataVersion"]
    assert {name: written["topicConfigTable"][name] for name in java["topicConfigTable"]} == java["topicConfigTable"]


async def test_the_name_servers_say_which_topics_keep_their_order(tmp_path: Path) -> None:
    changed: list[TopicConfig | None] = []
    topics = made(tmp_path)
    topics._on_change = changed.append
    for name, order in (("Orders", False), ("Bills", True), ("Stock", True)):
        topics.put(TopicConfig(name, order=order))
    changed.clear()
    version = topics.version
    topics.take_order({"Orders": "broker-a:4", "Stock": "broker-a:4", "Unknown": "broker-a:4"})
    assert [name for name, config in topics.table.items() if config.order] == ["Orders", "Stock"]
    assert changed == [TopicConfig("Orders", order=True), TopicConfig("Bills")]
    assert topics.version.counter == version.counter + 2
    topics.take_order({"Orders": "broker-a:4", "Stock": "broker-a:4"})
    assert len(changed) == 2, "nothing is registered anew for nothing"
    await topics.file.flush()
