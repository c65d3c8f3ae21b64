"""Compressed bodies: zlib, LZ4 frames and Zstandard, as the Java clients write them.

LZ4 and Zstandard come with the extra ``compress`` and are imported when first needed.
"""

from __future__ import annotations

import importlib
import zlib
from typing import TYPE_CHECKING

from cometmq.codec.sysflag import CompressionType
from cometmq.errors import LocalProtocolError, MissingDependency, RemoteProtocolError
from cometmq.model.limits import ZSTD_WINDOW_BYTES_MAX

if TYPE_CHECKING:
    from types import ModuleType

    from _typeshed import ReadableBuffer

__all__ = ["LEVEL_DEFAULT", "CompressionType", "compress", "decompress"]

LEVEL_DEFAULT = 5
"""What Java clients use; it is also a sensible level for Zstandard."""


def compress(data: ReadableBuffer, kind: CompressionType, level: int = LEVEL_DEFAULT) -> bytes:
    """Return ``data`` compressed. LZ4 knows no levels here, as in Java.

    Raises MissingDependency when the package for ``kind`` is not installed, LocalProtocolError
    for a level it does not have.
    """
    if kind is CompressionType.LZ4:
        return _lz4_compress(data)
    if kind is CompressionType.ZSTD:
        return _zstd_compress(data, level)
    try:
        return zlib.compress(data, level)
    except zlib.error as error:
        raise LocalProtocolError(f"zlib has no level {level}") from error


def decompress(data: ReadableBuffer, kind: CompressionType, limit: int) -> bytes:
    """Return the original of ``data``, which may have at most ``limit`` bytes.

    Raises RemoteProtocolError when there would be more, when ``data`` is cut off and when it is
    not of that kind. Whatever the input claims, memory stays near ``limit`` (and a few MiB of
    window). Bytes after the end of the compressed stream are ignored.
    """
    assert limit >= 0, limit
    if kind is CompressionType.LZ4:
        return _lz4_decompress(data, limit)
    if kind is CompressionType.ZSTD:
        return _zstd_decompress(data, limit)
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(data, limit + 1)
    except zlib.error as error:
        raise _damaged(kind, error) from error
    return _complete(plain, stream.eof, kind, limit)


def _lz4_compress(data: ReadableBuffer) -> bytes:
    frame = _imported("lz4", "lz4.frame")
    # Java's reader refuses blocks that depend on each other.
    compressed: bytes = frame.compress(
        data, block_size=frame.BLOCKSIZE_MAX4MB, block_linked=False, store_size=False
    )
    return compressed


def _lz4_decompress(data: ReadableBuffer, limit: int) -> bytes:
    stream = _imported("lz4", "lz4.frame").LZ4FrameDecompressor()
    try:
        plain = stream.decompress(data, limit + 1)
    except RuntimeError as error:
        raise _damaged(CompressionType.LZ4, error) from error
    return _complete(plain, stream.eof, CompressionType.LZ4, limit)


def _zstd_compress(data: ReadableBuffer, level: int) -> bytes:
    zstandard = _imported("zstandard", "zstandard")
    try:
        compressor = zstandard.ZstdCompressor(level=level)
    except ValueError as error:
        raise LocalProtocolError(f"Zstandard has no level {level}") from error
    compressed: bytes = compressor.compress(data)
    return compressed


def _zstd_decompress(data: ReadableBuffer, limit: int) -> bytes:
    zstandard = _imported("zstandard", "zstandard")
    window_bytes_max = max(ZSTD_WINDOW_BYTES_MAX, limit)
    decompressor = zstandard.ZstdDecompressor(max_window_size=window_bytes_max)
    try:
        # The package believes a size in the frame's header more than max_output_size.
        if zstandard.frame_content_size(data) > limit:
            raise _too_large(CompressionType.ZSTD, limit)
        plain = decompressor.decompress(data, max_output_size=limit + 1)
    except zstandard.ZstdError as error:
        raise _damaged(CompressionType.ZSTD, error) from error
    return _complete(plain, True, CompressionType.ZSTD, limit)


def _complete(plain: bytes, is_whole: bool, kind: CompressionType, limit: int) -> bytes:
    if len(plain) > limit:
        raise _too_large(kind, limit)
    if not is_whole:
        raise RemoteProtocolError(f"{kind.name} data is cut off")
    return plain


def _too_large(kind: CompressionType, limit: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"{kind.name} data has more than the {limit} bytes allowed")


def _damaged(kind: CompressionType, error: Exception) -> RemoteProtocolError:
    return RemoteProtocolError(f"{kind.name} data is damaged: {error}")


def _imported(package: str, module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingDependency(package, "compress", f"{package} compression") from error
