"""White lists mean whom RocketMQ means; `tests/golden` compares with its own results."""

from __future__ import annotations

import pytest

from orbitmq.broker.access.addresses import address_of, pattern
from orbitmq.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("192.168.0.1", ["192.168.0.1"], ["192.168.0.2", "::1"]),
        ("10.1.1.1,::1", ["10.1.1.1", "::1"], ["10.1.1.2"]),
        ("10.1.1.{1,9}", ["10.1.1.1", "10.1.1.9"], ["10.1.1.2"]),
        ("10.1.1.2-5", ["10.1.1.2", "10.1.1.5"], ["10.1.1.1", "10.1.1.6"]),
        ("10.10-20.*.*", ["10.15.3.4"], ["10.21.3.4", "11.15.3.4"]),
        ("2001:db8:*", ["2001:db8:1::5"], ["2001:db9::5", "10.1.1.1"]),
        ("1050::5:600:300c:1-ff", ["1050:0:0:0:5:600:300c:a0"], ["1050::5:600:300c:100"]),
        ("1050:0:0:0:5:600:300c:{1,A0}", ["1050::5:600:300c:a0"], ["1050::5:600:300c:2"]),
        ("*", ["10.1.1.1", "::1"], []),
        (" ", [], ["10.1.1.1"]),
    ],
)
def test_a_pattern_means_these_and_not_those(text: str, inside: list[str], outside: list[str]) -> None:
    matches = pattern(text)
    assert [host for host in inside if not matches(address_of(host))] == []
    assert [host for host in outside if matches(address_of(host))] == []


@pytest.mark.parametrize(
    "text",
    [
        "10.*",
        "192.168.*",
        "10.1.1.-5",
        "10.1.1.1-",
        "a-b",
        "-",
        "{1,2}",
        "10.1.1.{}",
        "1.2.3.4:*",
        "*.1.1.1",
        "1.2.3.300",
    ],
)
def test_what_is_no_pattern_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        pattern(text)
    assert repr(text) in str(refused.value)


def test_peers_without_an_address_are_on_no_list() -> None:
    assert address_of("") is None
    assert address_of("[fe80::1%eth0]") == address_of("fe80::1")
