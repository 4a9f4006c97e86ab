"""Traces are written as RocketMQ writes them, and read back also where its own reader gives up."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.client.core.trace import (
    CLOUD,
    ConsumeBegun,
    ConsumeEnded,
    Published,
    Record,
    TransactionEnded,
    decode_trace,
    encode_record,
)
from orbitmq.errors import BodyError
from tests.support.golden import vectors

# For the cloud Java leaves the end of SubAfter out; this client does not.
CASES = [case for case in vectors()["trace_encode"] if case["context"]["accessChannel"] == "LOCAL"]


def records(context: dict[str, Any]) -> list[Record]:
    return [_record(context, bean) for bean in context["beans"]]


def _record(c: dict[str, Any], b: dict[str, Any]) -> Record:
    if c["type"] == "Pub":
        return Published(
            c["timeStamp"], c["regionId"], c["groupName"], b["topic"], b["msgId"], b["tags"], b["keys"], b["storeHost"],
            b["bodyLength"], c["costTime"], b["msgTypeOrdinal"], b["offsetMsgId"], c["success"],
        )  # fmt: skip
    if c["type"] == "SubBefore":
        return ConsumeBegun(
            c["timeStamp"], c["regionId"], c["groupName"], c["requestId"], b["msgId"], b["retryTimes"], b["keys"]
        )
    if c["type"] == "SubAfter":
        return ConsumeEnded(
            c["requestId"], b["msgId"], c["costTime"], c["success"], b["keys"], c["contextCode"], c["timeStamp"],
            c["groupName"],
        )  # fmt: skip
    return TransactionEnded(
        c["timeStamp"], c["regionId"], c["groupName"], b["topic"], b["msgId"], b["tags"], b["keys"], b["storeHost"],
        b["msgTypeOrdinal"], b["transactionId"], b["transactionState"], b["fromTransactionCheck"],
    )  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['context']['type']}-{case['context']['groupName']}")
def test_records_are_those_of_rocketmq_both_ways(case: dict[str, Any]) -> None:
    made = records(case["context"])
    assert "".join(map(encode_record, made)) == case["transData"]
    assert decode_trace(case["transData"].encode()) == made


def test_there_are_cases_of_every_kind() -> None:
    assert {case["context"]["type"] for case in CASES} == {"Pub", "SubBefore", "SubAfter", "EndTransaction"}


def test_records_of_older_and_newer_writers_are_taken() -> None:
    old = "Pub\x011\x01r\x01g\x01t\x01id\x01tag\x01key\x01a:1\x015\x016\x010\x01true\x02"
    new = old.replace("\x01true\x02", "\x01OFFSET\x01true\x01client\x02")
    assert [record.offset_msg_id for record in decode_trace((old + new).encode())] == [None, "OFFSET"]  # type: ignore[union-attr]
    (ended,) = decode_trace(b"SubAfter\x01req\x01id\x013\x01true\x01key\x010\x02")
    assert ended == ConsumeEnded("req", "id", 3, True, "key", 0)


def test_a_missing_text_is_null_and_other_kinds_are_left_out() -> None:
    begun = ConsumeBegun(1, None, "g", "r", "id", 0, None)
    assert encode_record(begun) == "SubBefore\x011\x01null\x01g\x01r\x01id\x010\x01null\x02"
    assert decode_trace(encode_record(begun).encode() + b"Recall\x01x\x02") == [begun]
    assert decode_trace(b"") == []


@pytest.mark.parametrize("text", ["Pub\x011\x02", "SubBefore\x01now\x01r\x01g\x01r\x01id\x010\x01k\x02"])
def test_a_malformed_record_is_an_error(text: str) -> None:
    with pytest.raises(BodyError, match="of a trace that cannot be read"):
        decode_trace(text.encode())


def test_in_the_cloud_the_end_of_a_delivery_is_shorter_and_still_ends() -> None:
    ended = ConsumeEnded("R", "M", 5, True, "k", 0, 1234, "g")
    text = encode_record(ended, CLOUD)
    assert text == "SubAfter\x01R\x01M\x015\x01true\x01k\x010\x02"
    assert decode_trace((text * 2).encode()) == [ConsumeEnded("R", "M", 5, True, "k", 0)] * 2
    begun = ConsumeBegun(1, "r", "g", "R", "M", 0, "k")
    assert encode_record(begun, CLOUD) == encode_record(begun)
