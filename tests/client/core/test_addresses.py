"""Name servers may be written in any of the usual ways."""

from __future__ import annotations

import pytest

from orbitmq.client.core.addresses import VIP_CODES, lookup_url, name_servers, vip_address


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, ()),
        ("", ()),
        ("a:1", ("a:1",)),
        (" a:1 ; b:2;", ("a:1", "b:2")),
        ("a:1,b:2,a:1", ("a:1", "b:2")),
        (["a:1", "b:2;c:3"], ("a:1", "b:2", "c:3")),
        ("http://a:1", ("a:1",)),
    ],
)
def test_addresses(given: str | list[str] | None, expected: tuple[str, ...]) -> None:
    assert name_servers(given) == expected


def test_the_vip_channel_is_two_ports_below() -> None:
    assert vip_address("10.0.0.1:10911") == "10.0.0.1:10909"
    assert vip_address("[::1]:10911") == "[::1]:10909"


def test_only_java_s_calls_go_over_the_vip_channel() -> None:
    codes = {10, 310, 320, 324, 325, 36, 38, 46, 14, 15, 41, 42, 17, 29, 30, 31, 32, 33, 12, 303}
    assert set(VIP_CODES) == codes
    assert VIP_CODES.isdisjoint({11, 105, 106, 34, 35, 37})


@pytest.mark.parametrize(
    ("domain", "unit", "url"),
    [
        ("example.com", "", "http://example.com:8080/rocketmq/nsaddr"),
        ("example.com:80", "", "http://example.com:80/rocketmq/nsaddr"),
        ("example.com", "u1", "http://example.com:8080/rocketmq/nsaddr-u1?nofix=1"),
    ],
)
def test_the_list_of_name_servers_is_looked_up_where_java_does(domain: str, unit: str, url: str) -> None:
    assert lookup_url(domain, "nsaddr", unit) == url
