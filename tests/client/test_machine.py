"""The addresses of this machine are addresses."""

from __future__ import annotations

import ipaddress

from orbitmq.client.machine import own_addresses


def test_own_addresses() -> None:
    found = own_addresses()
    assert found
    assert all(ipaddress.ip_address(address) for address in found)
