"""The file a broadcasting consumer keeps its offsets in is one and the same for Java's clients and orbitmq's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from orbitmq.client import LitePullConsumer, MessageModel, PushConsumer
from orbitmq.client.core.offsets import decode_file, encode_file
from tests.interop.conftest import System
from tests.support.delivery import messages
from tests.support.java_rocketmq import ROCKETMQ_4, ROCKETMQ_5, run_driver
from tests.support.python_client import FIRST, Collector, send

# Java's clients of either version at brokers of their own, and both at orbitmq. No broker sees the file, but where a
# consumer begins whose file does not know a queue yet is for the broker to say.
PAIRS = [("java", ROCKETMQ_4), ("java-5", ROCKETMQ_5), ("orbitmq", ROCKETMQ_4), ("orbitmq", ROCKETMQ_5)]
COUNT = 12


def of_run(rows: list[dict[str, Any]], run: str) -> set[str]:
    """Everything delivered must be of this run: what came before is in the file as done."""
    assert {row["properties"]["run"] for row in rows} == {run}
    return {row["properties"]["index"] for row in rows}


def file_below(directory: Path, group: str) -> Path:
    (found,) = directory.glob(f"*/{group}/offsets.json")
    return found


@pytest.mark.parametrize(("system", "version"), PAIRS, indirect=["system"], scope="session")
def test_push_consumers_go_on_where_those_of_the_other_kind_stopped(
    system: System, label: str, tmp_path: Path, version: str
) -> None:
    def java(run: str) -> None:
        asyncio.run(send(system.namesrv_address, label, run, COUNT))
        rows = run_driver(
            "consume", "--namesrv", system.namesrv_address, "--topic", label, "--group", label, "--from", "FIRST",
            "--model", "BROADCASTING", "--instance", "it-", "--offsets", tmp_path, "--expect", COUNT, version=version,
        )  # fmt: skip
        assert len(of_run(messages(rows), run)) == COUNT

    async def python(run: str) -> None:
        await send(system.namesrv_address, label, run, COUNT)
        collector = Collector()
        consumer = PushConsumer(
            label, system.namesrv_address, message_model=MessageModel.BROADCASTING, instance_name="it-0",
            local_offset_dir=str(tmp_path), consume_from_where=FIRST,
        )  # fmt: skip
        consumer.subscribe(label)
        consumer.set_listener(collector)
        async with consumer:
            assert len(of_run(await collector.until(COUNT), run)) == COUNT

    java("one")
    file = file_below(tmp_path, label)
    written = file.read_text()
    assert encode_file(decode_file(written)) == written, "the same bytes"
    assert sum(decode_file(written).values()) == COUNT
    asyncio.run(python("two"))
    assert file_below(tmp_path, label) == file, "no other file came into being"
    assert decode_file(file.with_suffix(".json.bak").read_text()) == decode_file(written)
    assert sum(decode_file(file.read_text()).values()) == 2 * COUNT
    java("three")
    assert sum(decode_file(file.read_text()).values()) == 3 * COUNT


@pytest.mark.with_five
def test_lite_pull_consumers_go_on_where_those_of_the_other_kind_stopped(
    system: System, label: str, tmp_path: Path
) -> None:
    def java(run: str) -> None:
        asyncio.run(send(system.namesrv_address, label, run, COUNT))
        rows = run_driver(
            "litepull", "--namesrv", system.namesrv_address, "--topic", label, "--group", label, "--from", "FIRST",
            "--model", "BROADCASTING", "--instance", "it", "--offsets", tmp_path, "--steps", f"none:{COUNT}",
        )  # fmt: skip
        assert len(of_run(messages(rows), run)) == COUNT

    async def python(run: str) -> None:
        await send(system.namesrv_address, label, run, COUNT)
        rows: set[str] = set()
        consumer = LitePullConsumer(
            label, system.namesrv_address, message_model=MessageModel.BROADCASTING, instance_name="it",
            local_offset_dir=str(tmp_path), consume_from_where=FIRST,
        )  # fmt: skip
        consumer.subscribe(label)
        async with consumer:
            async for message in consumer:
                assert message.properties["run"] == run
                rows.add(message.properties["index"])
                if len(rows) == COUNT:
                    return

    java("one")
    file = file_below(tmp_path, label)
    asyncio.run(python("two"))
    assert file_below(tmp_path, label) == file, "no other file came into being"
    java("three")
    assert sum(decode_file(file.read_text()).values()) == 3 * COUNT
