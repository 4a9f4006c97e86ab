from __future__ import annotations

import pytest

from orbitmq.message.model import MessageQueue
from orbitmq.message.namespace import NO_NAMESPACE, Namespace, namespace_of, unwrapped


@pytest.mark.parametrize(
    ("name", "wrapped"),
    [
        ("T", "MQ_INST_1%T"),
        ("%RETRY%G", "%RETRY%MQ_INST_1%G"),
        ("%DLQ%G", "%DLQ%MQ_INST_1%G"),
        ("MQ_INST_1%T", "MQ_INST_1%T"),
        ("%RETRY%MQ_INST_1%G", "%RETRY%MQ_INST_1%G"),
        ("TBW102", "TBW102"),
        ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        ("rmq_sys_TRACE_DATA_x", "rmq_sys_TRACE_DATA_x"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
        ("", ""),
    ],
)
def test_a_name_is_wrapped_once_and_systems_names_never(name: str, wrapped: str) -> None:
    assert Namespace("MQ_INST_1").wrap(name) == wrapped
    assert NO_NAMESPACE.wrap(name) == name


@pytest.mark.parametrize(
    ("namespace", "name", "plain"),
    [
        ("NS", "%DLQ%NS%G", "%DLQ%G"),
        ("NS", "NS%T", "T"),
        ("X", "NS%T", "NS%T"),
        ("NS", "NS2%T", "NS2%T"),
        ("", "NS%T", "NS%T"),
    ],
)
def test_only_the_own_namespace_is_taken_off(namespace: str, name: str, plain: str) -> None:
    assert Namespace(namespace).unwrap(name) == plain


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("NS%T", "T"),
        ("%RETRY%NS%G", "%RETRY%G"),
        ("%RETRY%G", "%RETRY%G"),
        ("T", "T"),
        ("%T", "%T"),
        ("TBW102", "TBW102"),
    ],
)
def test_a_record_shows_names_without_any_namespace(name: str, plain: str) -> None:
    assert unwrapped(name) == plain


def test_queues_go_in_and_out() -> None:
    namespace, plain, inside = Namespace("NS"), MessageQueue("T", "b", 1), MessageQueue("NS%T", "b", 1)
    assert namespace.wrap_queue(plain) == inside
    assert namespace.unwrap_queue(inside) == plain
    assert NO_NAMESPACE.wrap_queue(plain) is plain


@pytest.mark.parametrize(
    ("address", "namespace"),
    [
        ("http://MQ_INST_123_abc.region.example.com:80", "MQ_INST_123_abc"),
        ("MQ_INST_123_abc.example.com:9876", "MQ_INST_123_abc"),
        (["MQ_INST_1_a.x:1", "other:2"], "MQ_INST_1_a"),
        ("127.0.0.1:9876", ""),
        ("http://name.example.com:80", ""),
        ([], ""),
        (None, ""),
    ],
)
def test_an_endpoint_may_name_the_namespace(address: str | list[str] | None, namespace: str) -> None:
    assert namespace_of(address) == namespace
