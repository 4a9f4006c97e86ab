"""The address patterns of white lists, as RocketMQ 4.9 reads them. Pure.

    192.168.0.1            one address; IPv6 in any spelling
    a,b,c                  several addresses
    192.168.0.{1,2}        several that differ in the last part
    192.168.0-10.*         a range, or anything, in one part
    *   *.*.*.*            every address

Parts after the first range or `*` are not compared, so `192.*.0.1` matches 192.168.5.20. RocketMQ does the same; a
stricter rule would lock out peers that an existing list admits.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv6Address

from orbitmq.errors import ConfigurationError

Address = IPv4Address | IPv6Address
Matches = Callable[[Address], bool]

EVERYBODY = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_IPV4_PARTS, _IPV6_PARTS = 4, 8
_IPV4_MAX, _IPV6_MAX = 0xFF, 0xFFFF


def address_of(host: str) -> Address | None:
    """The peer's address; None if it has none, like that of a Unix socket."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None


def pattern(text: str) -> Matches:
    """A predicate for the addresses that `text` matches; blank matches none. ConfigurationError names the pattern."""
    if not text.strip():
        return lambda _: False
    if text in EVERYBODY:
        return lambda _: True
    if text.endswith("}"):
        return _one_of(text, _unfolded(text))
    if "," in text:
        return _one_of(text, filter(None, text.split(",")))
    if "*" in text or "-" in text:
        return _range(text)
    return _one_of(text, (text,))


def _refused(text: str) -> ConfigurationError:
    return ConfigurationError(f"white list: {text!r} is no address and no pattern of addresses")


def _one_of(text: str, names: Iterable[str]) -> Matches:
    try:
        return frozenset(map(ipaddress.ip_address, names)).__contains__
    except ValueError:
        raise _refused(text) from None


def _unfolded(text: str) -> list[str]:
    """`10.0.0.{1,2}` as 10.0.0.1 and 10.0.0.2."""
    head, brace, tail = text[:-1].partition("{")
    if not brace or not head.endswith((".", ":")):
        raise _refused(text)
    return [head + part for part in tail.split(",")]


def _range(text: str) -> Matches:
    """Literal parts, then a range or `*`."""
    if ":" in text:
        parts, most, base = _ipv6_parts(text), _IPV6_MAX, 16
    else:
        parts, most, base = text.split("."), _IPV4_MAX, 10
        if len(parts) != _IPV4_PARTS:
            raise _refused(text)
    at = next(i for i, part in enumerate(parts) if "*" in part or "-" in part)
    try:
        head = tuple(int(part, base) for part in parts[:at])
        low, high = _bounds(parts[at], most, base)
    except ValueError:
        raise _refused(text) from None
    if not head or max(head) > most or not 0 <= low <= high <= most:
        raise _refused(text)
    wanted = IPv6Address if base == 16 else IPv4Address

    def matches(address: Address) -> bool:
        if type(address) is not wanted:
            return False
        found = _numbers(address)
        return found[:at] == head and low <= found[at] <= high

    return matches


def _bounds(part: str, most: int, base: int) -> tuple[int, int]:
    if part == "*":
        return 0, most
    low, high = part.split("-")
    return int(low, base), int(high, base)


def _ipv6_parts(text: str) -> list[str]:
    """The parts with `::` filled by zeros. Right before the range RocketMQ fills in one too few, so that `fe80::*`
    leaves the last two parts open."""
    head, gap, tail = text.partition("::")
    before, after = head.split(":") if head else [], tail.split(":")
    if not gap:
        parts = before
    else:
        whole = _IPV6_PARTS if len(after) > 1 else _IPV6_PARTS - 1
        parts = [*before, *["0"] * (whole - len(before) - len(after)), *after]
    if len(parts) > _IPV6_PARTS or (gap and not before and len(after) == 1):
        raise _refused(text)
    return parts


def _numbers(address: Address) -> tuple[int, ...]:
    packed = address.packed
    if len(packed) == _IPV4_PARTS:
        return tuple(packed)
    return tuple(packed[i] << 8 | packed[i + 1] for i in range(0, len(packed), 2))
