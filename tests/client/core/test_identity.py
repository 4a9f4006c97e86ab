"""A client is named as Java's clients are."""

from __future__ import annotations

import pytest

from orbitmq.client.core.identity import address_bytes, client_address, client_id, own_instance_name


def test_client_ids() -> None:
    assert client_id("10.0.0.7", own_instance_name(17, 99)) == "10.0.0.7@17#99"
    assert client_id("10.0.0.7", "DEFAULT", "unit") == "10.0.0.7@DEFAULT@unit"


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        (["127.0.0.1", "192.168.0.3", "10.1.2.3", "172.16.0.1"], "10.1.2.3"),
        (["192.168.0.3", "192.168.9.9"], "192.168.9.9"),
        (["::1", "fd00::2"], "[fd00::2]"),
        (["127.0.0.1"], "127.0.0.1"),
        ([], "127.0.0.1"),
    ],
)
def test_the_address_is_one_that_others_see(addresses: list[str], expected: str) -> None:
    assert client_address(addresses) == expected


def test_bytes_for_unique_ids() -> None:
    assert address_bytes("10.1.2.3") == bytes([10, 1, 2, 3])
    assert len(address_bytes("[fd00::2]")) == 16
    assert address_bytes("my-host") == bytes([127, 0, 0, 1])
