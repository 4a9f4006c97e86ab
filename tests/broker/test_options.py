"""Where a broker listens follows from who shall reach it, unless the operator says otherwise."""

from __future__ import annotations

import pytest

from orbitmq.broker.options import BrokerOptions


@pytest.mark.parametrize(
    ("told", "bound", "listened"),
    [
        ("127.0.0.1", "", "127.0.0.1"),
        ("127.0.0.7", "", "127.0.0.7"),
        ("::1", "", "::1"),
        ("localhost", "", "localhost"),
        ("10.0.0.5", "", ""),
        ("broker-a.example.org", "", ""),
        ("10.0.0.5", "10.0.0.5", "10.0.0.5"),
        ("127.0.0.1", "0.0.0.0", "0.0.0.0"),
    ],
)
def test_a_broker_told_of_as_loopback_listens_there_alone(told: str, bound: str, listened: str) -> None:
    assert BrokerOptions.parse({"brokerIP1": told, "bindAddress": bound}).listen_address == listened
