# cython: wraparound=False, boundscheck=False, annotation_typing=False
"""A unit out of a request that is still undecoded, with one copy of its body. Pure.

Compiled by Cython, with the types of the `.pxd` next to this file; interpreted it serves tests only.
"""

from __future__ import annotations


def pack_common(
    data: bytes, body_start: int, body_end: int, topic: bytes, properties: bytes, crc: int, queue_id: int, flag: int,
    queue_offset: int, physical_offset: int, sys_flag: int, born: int, born_host: bytes, stored_at: int,
    store_host: bytes, times: int,
) -> bytearray:  # fmt: skip
    """The unit of a message with two IPv4 hosts, as `message.unit` describes it, with the body taken out of `data`."""
    text = data
    topic_ = topic
    properties_ = properties
    born_host_ = born_host
    store_host_ = store_host
    topic_size = len(topic)
    properties_size = len(properties)
    body_size = body_end - body_start
    size = 91 + body_size + topic_size + properties_size
    room = bytearray(size)
    out = room
    _put4(out, 0, size)
    _put4(out, 4, 0xDAA320A7)
    _put4(out, 8, crc)
    _put4(out, 12, queue_id)
    _put4(out, 16, flag)
    _put8(out, 20, queue_offset)
    _put8(out, 28, physical_offset)
    _put4(out, 36, sys_flag)
    _put8(out, 40, born)
    for number in range(8):
        out[48 + number] = born_host_[number]
        out[64 + number] = store_host_[number]
    _put8(out, 56, stored_at)
    _put4(out, 72, times)
    _put8(out, 76, 0)
    _put4(out, 84, body_size)
    for number in range(body_size):
        out[88 + number] = text[body_start + number]
    at = 88 + body_size
    out[at] = topic_size
    at += 1
    for number in range(topic_size):
        out[at + number] = topic_[number]
    at += topic_size
    out[at] = properties_size >> 8
    out[at + 1] = properties_size & 255
    at += 2
    for number in range(properties_size):
        out[at + number] = properties_[number]
    return room


def _put4(out: bytearray, at: int, value: int) -> None:
    out[at] = value >> 24 & 255
    out[at + 1] = value >> 16 & 255
    out[at + 2] = value >> 8 & 255
    out[at + 3] = value & 255


def _put8(out: bytearray, at: int, value: int) -> None:
    _put4(out, at, value >> 32)
    _put4(out, at + 4, value)
