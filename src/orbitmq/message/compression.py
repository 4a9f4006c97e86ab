"""Body compression: zlib, LZ4 frames, Zstandard. The kind travels in the system flag. Pure.

The LZ4 and Zstandard libraries are loaded at their first use, so that programs that never meet them start quickly.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from orbitmq.errors import MessageIllegal, UnitError
from orbitmq.message.flags import COMPRESSED, COMPRESSION_LZ4, COMPRESSION_MASK, COMPRESSION_ZLIB, COMPRESSION_ZSTD

ZLIB = "ZLIB"
LZ4 = "LZ4"
ZSTD = "ZSTD"
COMPRESSION_FLAGS = {ZLIB: COMPRESSION_ZLIB, LZ4: COMPRESSION_LZ4, ZSTD: COMPRESSION_ZSTD}
DEFAULT_LEVEL = 5
LZ4_BLOCK_SIZE = 7  # 4 MiB blocks, as the Java library writes them
DECOMPRESSED_SIZE_MAX = 128 << 20  # 32 times the default message limit; a longer output is a bomb, not a message
CHUNK = 1 << 20
ZSTD_PIECE = 512  # four bytes can unfold to 128 KiB, so a piece never gives more than 16 MiB at once


def compress(body: bytes, kind: str = ZLIB, level: int = DEFAULT_LEVEL) -> bytes:
    """`body` packed; the sender sets `COMPRESSED | COMPRESSION_FLAGS[kind]` in the system flag.

    LZ4 has no levels. MessageIllegal for an unknown kind.
    """
    if kind == ZLIB:
        return zlib.compress(body, level)
    if kind == ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(level=level, write_content_size=False).compress(body)
    if kind == LZ4:
        import lz4.frame

        packed: bytes = lz4.frame.compress(body, block_size=LZ4_BLOCK_SIZE, store_size=False)
        return packed
    raise MessageIllegal(f"unknown compression {kind!r}; use one of {', '.join(COMPRESSION_FLAGS)}")


def decompress(body: bytes, sys_flag: int, size_max: int = DECOMPRESSED_SIZE_MAX) -> bytes:
    """The decompressed body; the same object if the flag says it is not compressed.

    UnitError if the bytes do not match the flag or the result is larger than `size_max`.
    """
    if not sys_flag & COMPRESSED:
        return body
    chunks = []
    size = 0
    try:
        for chunk in _chunks(body, sys_flag & COMPRESSION_MASK):
            chunks.append(chunk)
            size += len(chunk)
            if size > size_max:
                raise UnitError(f"a compressed body larger than {size_max} bytes")
    except (zlib.error, RuntimeError, EOFError) as error:
        raise UnitError(f"a compressed body cannot be unpacked: {error}") from error
    return b"".join(chunks)


def _chunks(body: bytes, kind: int) -> Iterator[bytes]:
    if kind in (0, COMPRESSION_ZLIB):
        return _zlib_chunks(body)
    if kind == COMPRESSION_LZ4:
        return _lz4_chunks(body)
    if kind == COMPRESSION_ZSTD:
        return _zstd_chunks(body)
    raise UnitError(f"unknown compression kind {kind >> 8}")


def _zlib_chunks(body: bytes) -> Iterator[bytes]:
    stream = zlib.decompressobj()
    while not stream.eof:
        chunk = stream.decompress(body, CHUNK)
        body = stream.unconsumed_tail
        if not chunk and not stream.eof:
            raise EOFError("the zlib stream ends early")
        yield chunk


def _lz4_chunks(body: bytes) -> Iterator[bytes]:
    import lz4.frame

    stream = lz4.frame.LZ4FrameDecompressor()
    while not stream.eof:
        chunk: bytes = stream.decompress(body, CHUNK)
        body = b""
        if not chunk and not stream.eof:
            raise EOFError("the LZ4 frame ends early")
        yield chunk


def _zstd_chunks(body: bytes) -> Iterator[bytes]:
    import zstandard

    stream = zstandard.ZstdDecompressor().decompressobj()
    try:
        for start in range(0, len(body), ZSTD_PIECE):
            yield stream.decompress(body[start : start + ZSTD_PIECE])
            if stream.eof:
                return
    except zstandard.ZstdError as error:
        raise EOFError(str(error)) from error
    raise EOFError("the Zstandard frame ends early")
