"""Name servers may be written in any of the usual ways."""

from __future__ import annotations

import pytest

from orbitmq.client.core.addresses import name_servers


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
