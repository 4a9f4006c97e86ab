"""The text map of a header: the fields of a request as it carries them.

In a module of its own, which is compiled: each request has a dozen of fields.
"""

from __future__ import annotations

import msgspec

from orbitmq.wire.header import Header


def to_ext(header: Header) -> dict[str, str]:
    """The text map of a header; fields that are None are left out."""
    ext: dict[str, str] = {}
    values: tuple[object, ...] = msgspec.structs.astuple(header)
    for name, value in zip(header.__struct_encode_fields__, values, strict=True):
        if value is None:
            continue
        if type(value) is str:
            ext[name] = value
        elif isinstance(value, bool):
            ext[name] = "true" if value else "false"
        else:
            ext[name] = str(value)
    return ext
