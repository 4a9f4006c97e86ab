"""Host fields of both address families."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import MessageIllegal, UnitError
from orbitmq.message.hosts import address_text, decode_host, encode_host, host_text


@given(st.ip_addresses(), st.integers(0, 65535))
def test_round_trip(ip: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> None:
    data = encode_host(str(ip), port)
    assert len(data) == (8 if ip.version == 4 else 20)
    assert decode_host(data) == (str(ip), port)


def test_text_keeps_the_port_apart_from_an_ipv6_address() -> None:
    assert host_text(encode_host("10.0.0.1", 10911)) == "10.0.0.1:10911"
    assert host_text(encode_host("fd00::1", 10911)) == "[fd00::1]:10911"


def test_what_is_no_host_is_refused() -> None:
    with pytest.raises(MessageIllegal, match="localhost"):
        encode_host("localhost", 1)
    with pytest.raises(UnitError):
        decode_host(b"12345")


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("10.0.0.1", "10.0.0.1:10911"),
        ("fd00::1", "[fd00::1]:10911"),
        ("[fd00::1]", "[fd00::1]:10911"),
        ("h", "h:10911"),
    ],
)
def test_an_ipv6_address_stands_in_brackets(host: str, text: str) -> None:
    assert address_text(host, 10911) == text
