"""Bit sets that travel as numbers: the system flag of a message, topic permissions, pull flags, topic flags.

Pure constants and bit arithmetic.
"""

from __future__ import annotations

from typing import Final

# System flag of a message, on disk and on the wire.
COMPRESSED: Final = 0x1
MULTI_TAGS: Final = 0x2
TRANSACTION_NOT: Final = 0x0
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC
TRANSACTION_MASK: Final = 0xC
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
NEED_UNWRAP: Final = 0x40  # set by RocketMQ 5 only
INNER_BATCH: Final = 0x80  # set by RocketMQ 5 only
COMPRESSION_LZ4: Final = 0x100
COMPRESSION_ZSTD: Final = 0x200
COMPRESSION_ZLIB: Final = 0x300
COMPRESSION_MASK: Final = 0x700  # 0 together with COMPRESSED is zlib as well: producers before 4.9 set no kind

# Permission of a topic or broker.
PERM_READ: Final = 4
PERM_WRITE: Final = 2
PERM_INHERIT: Final = 1

# System flag of a pull request.
PULL_COMMIT_OFFSET: Final = 0x1
PULL_SUSPEND: Final = 0x2
PULL_SUBSCRIPTION: Final = 0x4
PULL_CLASS_FILTER: Final = 0x8
PULL_LITE: Final = 0x10

# System flag of a topic.
TOPIC_UNIT: Final = 0x1
TOPIC_UNIT_SUBSCRIPTION: Final = 0x2


def transaction_type(sys_flag: int) -> int:
    """One of the four TRANSACTION values."""
    return sys_flag & TRANSACTION_MASK


def with_transaction_type(sys_flag: int, transaction: int) -> int:
    """The flag with its transaction bits replaced."""
    return sys_flag & ~TRANSACTION_MASK | transaction


def pull_flag(*, commit_offset: bool, suspend: bool, subscription: bool, class_filter: bool, lite: bool = False) -> int:
    """The flag of a pull request."""
    return commit_offset | suspend << 1 | subscription << 2 | class_filter << 3 | lite << 4


def perm_text(perm: int) -> str:
    """`RWX` with a dash for each missing right, as RocketMQ's tools print it."""
    rights = ((PERM_READ, "R"), (PERM_WRITE, "W"), (PERM_INHERIT, "X"))
    return "".join(letter if perm & bit else "-" for bit, letter in rights)
