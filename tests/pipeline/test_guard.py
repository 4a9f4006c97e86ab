"""A broker process keeps its log for the archive: while the archive stands still, until it has come, and until the disk
has no more room; told by the log, by figures and by the next run of the archive."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from orbitmq.client import Message
from orbitmq.client.sync import Producer
from orbitmq.pipeline import command
from orbitmq.wire.bodies import KVTable
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.settings import encode_settings
from tests.spark import sinks
from tests.support.asking import Asker, asking
from tests.support.orbit_process import OrbitUp
from tests.support.process import wait_until

TOPIC = "Guarded"
FILE_SIZE = 1 << 20
BODY_SIZE = 100_000  # ten a file
COUNT = 35
OLD_S = 73 * 3600
PATIENCE_S = 90  # the guard looks every ten seconds
GUARDED = {
    "archiveGuard": "true",
    "mappedFileSizeCommitLog": str(FILE_SIZE),
    "cleanResourceInterval": "20",
    "deleteCommitLogFilesInterval": "1",
    # Every disk is nearly full, and nothing is made of it until an operator says so.
    "rocketmq.broker.diskSpaceCleanForciblyRatio": "0.001",
    "cleanFileForciblyEnable": "false",
}


class Guarded:
    """A broker whose files are old as soon as they are full."""

    def __init__(self, broker: OrbitUp) -> None:
        self.broker = broker
        self.server = broker.namesrv_address
        self._log = broker.store_dir / "commitlog"

    def send(self) -> int:
        """Three whole files and a half; how many they are with those before."""
        with Producer("senders", self.server) as producer:
            for _ in range(COUNT):
                producer.send(Message(TOPIC, os.urandom(BODY_SIZE)))
        return sum(high for _low, high in sinks.bounds(self.server, TOPIC).values())

    @property
    def begins(self) -> int:
        """Where the log begins."""
        return min(int(file.name) for file in self._log.glob("*"))

    @property
    def lost(self) -> int:
        """Messages before the first of each queue."""
        return sum(low for low, _high in sinks.bounds(self.server, TOPIC).values())

    def clean(self) -> int:
        """Turn the time of every file back and have what has expired removed; where the log begins then."""
        for file in self._log.glob("*"):
            seconds = file.stat().st_mtime
            os.utime(file, (seconds - OLD_S, seconds - OLD_S))
        self.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)
        return self.begins

    def ask(self, code: RequestCode, body: bytes = b"") -> bytes:
        async def work(asker: Asker) -> bytes:
            answer = await asker.ask(code, body=body)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            return bytes(answer.body)

        return asking(self.broker.address, work)

    @property
    def figures(self) -> dict[str, int]:
        table = decode(KVTable, self.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).table
        return {name: int(value) for name, value in table.items() if name.startswith("archiveGuard")}

    @property
    def said(self) -> str:
        assert self.broker.process is not None
        return self.broker.process.output() + self.broker.process.errors()

    @property
    def lost_in_log(self) -> int:
        """Messages that the log names as lost. A thread writes the log, so it may trail what metrics count."""
        line = rf"event=unarchived_messages_lost topic={TOPIC} queue=\d+ from=\d+ to=\d+ count=(\d+)"
        return sum(map(int, re.findall(line, self.said)))


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    with OrbitUp(**GUARDED) as broker:  # type: ignore[arg-type]
        yield Guarded(broker)


def test_a_log_is_kept_for_the_archive_and_what_a_full_disk_takes_is_named(
    spark: SparkSession, guarded: Guarded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spark.createDataFrame([], "nothing INT")  # so that the job finds this session and leaves it running
    archive = ["archive", "--name-server", guarded.server, "--lake", str(tmp_path), "--topics", TOPIC]
    guarded.send()
    wait_until(lambda: guarded.clean() or "event=log_file_kept" in guarded.said, PATIENCE_S, "the guard keeps the log")
    assert guarded.begins == 0, "the archive has not come"
    assert guarded.figures["archiveGuardOffset"] == 0

    assert command.main(archive) == 0
    assert re.search(rf"^messages +{COUNT}$", capsys.readouterr().out, re.MULTILINE)
    wait_until(lambda: guarded.clean() == 3 * FILE_SIZE, PATIENCE_S, "what is archived is removed")
    assert guarded.figures["archiveGuardMessagesLost"] == 0
    assert "event=unarchived_messages_lost" not in guarded.said

    count = guarded.send()
    wait_until(
        lambda: guarded.clean() and guarded.said.count("event=log_file_kept") >= 2,
        PATIENCE_S,
        "the guard keeps more",
    )
    assert 0 < guarded.figures["archiveGuardBytesBehind"] < 4 * FILE_SIZE
    guarded.ask(RequestCode.UPDATE_BROKER_CONFIG, encode_settings({"cleanFileForciblyEnable": "true"}))

    def counted() -> int:
        """What is lost once the guard has counted it all: it looks now and then."""
        lost = guarded.lost - COUNT
        return lost if guarded.figures["archiveGuardMessagesLost"] == lost else 0

    lost = wait_until(counted, PATIENCE_S, "the metric of the loss")
    assert lost > 0
    assert "event=wanted_log_file_removed" in guarded.said
    wait_until(lambda: guarded.lost_in_log >= lost, PATIENCE_S, "the log names what is lost")
    assert guarded.lost_in_log == lost

    assert command.main(archive) == 1
    assert "orbitmq pipeline archive: ORBITMQ_DATA_LOSS: queue " in capsys.readouterr().err
    assert command.main([*archive, "--no-fail-on-data-loss"]) == 0
    assert re.search(rf"^messages +{count - COUNT - lost}$", capsys.readouterr().out, re.MULTILINE)
