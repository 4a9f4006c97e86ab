"""Addresses: the list of name servers as people write it, where it can be looked up, and the port of the VIP channel.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from orbitmq.wire.requests import RequestCode

VIP_DISTANCE = 2  # the VIP channel's port is this much lower than the broker's
VIP_CODES: frozenset[int] = frozenset(request for request in RequestCode if request.is_vip)
"""Requests that use the VIP channel if it is enabled, as in Java's client. Pulls, heartbeats and transaction ends do
not: brokers send their requests on the connection of the heartbeats.
"""


def name_servers(given: str | Iterable[str] | None) -> tuple[str, ...]:
    """`host:port` of each name server; texts separate them by `;` or `,`.

    Of an address with a scheme, as `http://host:port`, the part behind the last slash counts; it is never fetched.
    """
    texts = [given] if isinstance(given, str) else list(given or ())
    parts = [part.strip().rpartition("/")[2] for text in texts for part in text.replace(",", ";").split(";")]
    return tuple(dict.fromkeys(part for part in parts if part))


def vip_address(address: str) -> str:
    """Where the broker at `address` serves the VIP channel."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - VIP_DISTANCE}"


def lookup_url(domain: str, subgroup: str, unit: str) -> str:
    """Where the list of name servers is published, as RocketMQ's clients build it: `http://domain:8080/rocketmq/nsaddr`,
    for a unit with `-unit?nofix=1` behind; a domain with a port keeps it.
    """
    host = domain if ":" in domain else f"{domain}:8080"
    return f"http://{host}/rocketmq/{subgroup}" + (f"-{unit}?nofix=1" if unit else "")
