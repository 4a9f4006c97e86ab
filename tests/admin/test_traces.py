"""Records of a trace are read, paired and put into the stock graph; an empty answer says why it is empty."""

from __future__ import annotations

import msgspec
import pytest

from orbitmq.admin.results import Failure
from orbitmq.admin.traces import NoTrace, Trace, Traced, TraceNode, graph, in_order, read, why_none
from orbitmq.client.core.trace import ConsumeBegun, ConsumeEnded, Published, Record, TransactionEnded, encode_record
from orbitmq.message.model import MessageExt

ID = "7F00000100002A9F00000000001E8480"
SENT = Published(1000, "R", "producers", "Orders", ID, "red", "k1 k2", "10.0.0.1:10911", 5, 12, 2, "AB01", success=True)
DECIDED = TransactionEnded(
    1100, "R", "producers", "Orders", ID, "red", "k1", "10.0.0.1:10911", 2, "T1", "COMMIT_MESSAGE", from_check=True
)
BEGUN = ConsumeBegun(2000, "R", "readers", "q1", ID, 1, "k1 k2")
ENDED = ConsumeEnded("q1", ID, 30, success=False, keys="k1 k2", outcome=2)
OTHER = ConsumeBegun(2000, "R", "readers", "q2", "B" * 32, 0, "k3")


def message(*records: Record, born_host: str = "10.0.0.9:5000") -> MessageExt:
    body = "".join(map(encode_record, records)).encode()
    return MessageExt("RMQ_SYS_TRACE_TOPIC", body, born_host=born_host)


def test_all_four_kinds_are_read_and_those_of_other_messages_left_out() -> None:
    found = read(message(SENT, DECIDED, BEGUN, ENDED, OTHER), ID)
    assert [one.kind for one in found] == ["Pub", "EndTransaction", "SubBefore", "SubAfter"]
    assert {one.client_host for one in found} == {"10.0.0.9:5000"}
    sent, decided, begun, ended = found
    assert (sent.at_ms, sent.cost_ms, sent.success) == (1000, 12, True)
    assert (sent.offset_msg_id, sent.store_host) == ("AB01", "10.0.0.1:10911")
    assert (decided.state, decided.from_check, decided.transaction_id) == ("COMMIT_MESSAGE", True, "T1")
    assert (begun.retries, begun.request_id, begun.group) == (1, "q1", "readers")
    assert (ended.at_ms, ended.cost_ms, ended.success, ended.outcome, ended.group) == (None, 30, False, 2, None)


def test_a_key_finds_them_as_well_and_part_of_one_does_not() -> None:
    assert len(read(message(SENT, OTHER), "k2")) == 1
    assert read(message(SENT, OTHER), "k") == []


def test_a_malformed_message_has_no_records() -> None:
    assert read(MessageExt("RMQ_SYS_TRACE_TOPIC", b"Pub\x01x\x02"), ID) == []


def records(*found: Record) -> list[Traced]:
    return read(message(*found), ID)


def test_records_are_in_order_and_each_once() -> None:
    found = in_order(records(ENDED, BEGUN, DECIDED, SENT, SENT))
    assert [one.kind for one in found] == ["Pub", "EndTransaction", "SubBefore", "SubAfter"]


def test_the_graph_has_the_stock_shape() -> None:
    found = graph(records(SENT, DECIDED, BEGUN, ENDED))
    shape = msgspec.to_builtins(found)
    assert set(shape) == {"producerNode", "subscriptionNodeList", "messageTraceViews"}
    assert set(shape["producerNode"]) == {
        "msgId", "tags", "keys", "offSetMsgId", "topic", "groupName", "traceNode", "transactionNodeList",
    }  # fmt: skip
    node = shape["subscriptionNodeList"][0]["consumeNodeList"][0]
    assert set(node) >= {
        "requestId", "storeHost", "clientHost", "costTime", "beginTimestamp", "endTimestamp", "retryTimes", "status",
    }  # fmt: skip
    assert found.producer_node
    assert (found.producer_node.trace_node.begin_timestamp, found.producer_node.trace_node.end_timestamp) == (
        1000,
        1012,
    )
    (decision,) = found.producer_node.transaction_node_list
    assert (decision.transaction_state, decision.from_transaction_check) == ("COMMIT_MESSAGE", True)
    (group,) = found.subscription_node_list
    assert group.subscription_group == "readers"
    assert group.consume_node_list == [
        TraceNode(request_id="q1", client_host="10.0.0.9:5000", cost_time=30, begin_timestamp=2000,
                  end_timestamp=2030, retry_times=1, status="failed")
    ]  # fmt: skip


def test_half_a_pair_is_shown_with_what_is_unknown() -> None:
    (group,) = graph(records(BEGUN)).subscription_node_list
    (node,) = group.consume_node_list
    assert (node.status, node.end_timestamp, node.cost_time) == ("unknown", -1, -1)
    found = graph(records(ENDED))
    (group,) = found.subscription_node_list
    assert (group.subscription_group, group.consume_node_list[0].begin_timestamp) == ("%UNKNOWN_GROUP%", -1)
    assert found.producer_node is None


FAILURE = Failure("broker-b", None, "TIMEOUT", "no answer", None, True)


@pytest.mark.parametrize(
    ("made_ms", "oldest", "failures", "cause"),
    [
        (5, [6, 7], [], NoTrace.EXPIRED),
        (6, [6, 7], [], NoTrace.NOT_TRACED),
        (None, [6], [], NoTrace.NOT_TRACED),
        (5, [], [], NoTrace.NOT_TRACED),
        (5, [6], [FAILURE], NoTrace.QUERY_FAILED),
    ],
)
def test_an_empty_answer_has_a_cause(
    made_ms: int | None, oldest: list[int], failures: list[Failure], cause: NoTrace
) -> None:
    assert why_none(made_ms, oldest, failures) is cause


def test_each_cause_is_told() -> None:
    told = {Trace("x", "T", [], [], cause).why for cause in NoTrace}
    assert len(told) == len(NoTrace)
    assert (
        Trace("x", "T", [], [], NoTrace.NO_TOPIC).why
        == "there is no trace topic T: brokers make it with traceTopicEnable=true"
    )
    assert Trace("x", "T", [], []).why is None
