"""What must hold for messages that a driver sent and another received. Knows rows, not clients.

Rows are those the Java drivers print (class Messages there); a sent row has index, msgId, queueId, queueOffset, status.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from tests.support.messages import differences, index_of

Row = Mapping[str, Any]


def messages(rows: Iterable[Row]) -> list[Row]:
    """The deliveries among the rows of a consumer."""
    return [row for row in rows if row.get("event") == "message"]


def results(rows: Iterable[Row]) -> list[Row]:
    """The send results among the rows of a producer."""
    return [row for row in rows if "status" in row]


def assert_each_once(received: Iterable[Row], run: str, indexes: Iterable[int]) -> None:
    """Every index was delivered exactly once, each with the content it was sent with."""
    received = list(received)
    times = Counter(map(index_of, received))
    wanted = set(indexes)
    assert set(times) == wanted, (
        f"missing {sorted(wanted - set(times))[:10]}, surplus {sorted(set(times) - wanted)[:10]}"
    )
    assert not [index for index, count in times.items() if count > 1], "delivered more than once"
    assert_content(received, run)


def assert_content(received: Iterable[Row], run: str) -> None:
    wrong = {index_of(row): found for row in received if (found := differences(row, run))}
    assert not wrong, f"{len(wrong)} messages differ, such as {next(iter(wrong.items()))}"


def assert_as_acknowledged(received: Iterable[Row], sent: Iterable[Row]) -> None:
    """What a producer was told about its messages is what consumers see: place, unique id, position in the log."""
    told = {row["index"]: row for row in sent}
    assert {row["status"] for row in told.values()} == {"SEND_OK"}
    for row in received:
        result = told[index_of(row)]
        for name in ("broker", "queueId", "queueOffset", "msgId"):
            assert row[name] == result[name], (name, row, result)
        assert row["commitLogOffset"] == int(result["offsetMsgId"][16:], 16)


def by_queue(received: Iterable[Row]) -> dict[int, list[Row]]:
    """Rows of each queue in the order they came."""
    queues: dict[int, list[Row]] = defaultdict(list)
    for row in received:
        queues[row["queueId"]].append(row)
    return dict(queues)


def assert_queues_without_gaps(received: Iterable[Row], queue_count: int) -> None:
    """The offsets of each queue are 0, 1, 2, ... and the log positions rise with them."""
    queues = by_queue(received)
    assert sorted(queues) == list(range(queue_count))
    for rows in queues.values():
        rows.sort(key=lambda row: row["queueOffset"])
        assert [row["queueOffset"] for row in rows] == list(range(len(rows)))
        positions = [row["commitLogOffset"] for row in rows]
        assert positions == sorted(set(positions))
