"""The list of name servers as people write it. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def name_servers(given: str | Iterable[str] | None) -> tuple[str, ...]:
    """`host:port` of each name server; texts separate them by `;` or `,`.

    Of an address with a scheme, as `http://host:port`, the part behind the last slash counts; it is never fetched.
    """
    texts = [given] if isinstance(given, str) else list(given or ())
    parts = [part.strip().rpartition("/")[2] for text in texts for part in text.replace(",", ";").split(";")]
    return tuple(dict.fromkeys(part for part in parts if part))
