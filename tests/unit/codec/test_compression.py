import sys

import pytest
import zstandard

from cometmq.codec import compression, sysflag
from cometmq.codec.compression import CompressionType
from cometmq.codec.sysflag import TransactionType
from cometmq.errors import LocalProtocolError, MissingDependency, RemoteProtocolError
from cometmq.model.limits import ZSTD_WINDOW_BYTES_MAX

KINDS = pytest.mark.parametrize("kind", list(CompressionType))

BODY = b"the quick brown fox jumps over the lazy dog " * 200
BOMB = bytes(2 * 1024 * 1024)


@KINDS
@pytest.mark.parametrize("body", [b"", b"x", BODY])
def test_a_body_survives_compression(kind: CompressionType, body: bytes) -> None:
    packed = compression.compress(body, kind)

    assert compression.decompress(packed, kind, len(body)) == body
    assert compression.decompress(memoryview(packed), kind, len(body) + 100) == body


@KINDS
def test_a_bomb_does_not_go_off(kind: CompressionType) -> None:
    packed = compression.compress(BOMB, kind)
    assert len(packed) < 20_000

    for limit in (0, 1000, len(BOMB) - 1):
        with pytest.raises(RemoteProtocolError, match="more than"):
            compression.decompress(packed, kind, limit)


@KINDS
def test_cut_off_data_is_refused(kind: CompressionType) -> None:
    packed = compression.compress(BODY, kind)

    for length in range(0, len(packed), 7):
        with pytest.raises(RemoteProtocolError, match=kind.name):
            compression.decompress(packed[:length], kind, len(BODY))


@KINDS
def test_foreign_bytes_are_refused(kind: CompressionType) -> None:
    with pytest.raises(RemoteProtocolError, match="damaged"):
        compression.decompress(BODY, kind, len(BODY))


def test_a_zstandard_stream_without_size_is_bounded_too() -> None:
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(BOMB)

    assert compression.decompress(packed, CompressionType.ZSTD, len(BOMB)) == BOMB
    with pytest.raises(RemoteProtocolError):
        compression.decompress(packed, CompressionType.ZSTD, len(BOMB) - 1)


def test_a_zstandard_window_has_its_limit() -> None:
    def packed(window_log: int) -> bytes:
        parameters = zstandard.ZstdCompressionParameters(window_log=window_log)
        stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        return stream.compress(BODY) + stream.flush()

    assert ZSTD_WINDOW_BYTES_MAX == 1 << 23
    assert compression.decompress(packed(23), CompressionType.ZSTD, len(BODY)) == BODY
    assert compression.decompress(packed(24), CompressionType.ZSTD, 1 << 24) == BODY
    with pytest.raises(RemoteProtocolError):
        compression.decompress(packed(24), CompressionType.ZSTD, len(BODY))


def test_lz4_is_a_frame_of_independent_blocks_as_java_reads_it() -> None:
    more_than_a_block = bytes(5 * 1024 * 1024)

    packed = compression.compress(more_than_a_block, CompressionType.LZ4)

    version_1_independent_blocks_only = 0x60
    assert packed[:5] == bytes.fromhex("04224d18") + bytes([version_1_independent_blocks_only])


def test_the_level_is_used_and_checked() -> None:
    for kind in (CompressionType.ZLIB, CompressionType.ZSTD):
        sizes = {len(compression.compress(BODY, kind, level)) for level in (1, 9)}
        assert len(sizes) == 2
        with pytest.raises(LocalProtocolError):
            compression.compress(BODY, kind, 99)


@pytest.mark.parametrize(
    ("package", "kind"), [("lz4", CompressionType.LZ4), ("zstandard", CompressionType.ZSTD)]
)
def test_a_missing_package_is_named(
    package: str, kind: CompressionType, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = compression.compress(BODY, kind)
    for module in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(MissingDependency, match=r"pip install 'cometmq\[compress\]'"):
        compression.compress(BODY, kind)
    with pytest.raises(MissingDependency, match=package):
        compression.decompress(packed, kind, len(BODY))


def test_the_flag_says_how_a_body_is_compressed() -> None:
    assert sysflag.compression_type(0) is None
    assert sysflag.compression_type(0x300) is None
    assert sysflag.compression_type(0x1) is CompressionType.ZLIB
    for kind in CompressionType:
        flag = sysflag.with_compression(sysflag.MULTI_TAGS, kind)
        assert flag == 0x1 | 0x2 | kind
        assert sysflag.compression_type(flag) is kind


@pytest.mark.parametrize("flag", [0x401, 0x501, 0x601, 0x701])
def test_an_unknown_compression_type_is_refused(flag: int) -> None:
    with pytest.raises(RemoteProtocolError, match="compression"):
        sysflag.compression_type(flag)


def test_the_flag_says_what_a_record_is_to_its_transaction() -> None:
    for kind in TransactionType:
        flag = sysflag.with_transaction_type(0x3FF, kind)
        assert sysflag.transaction_type(flag) is kind
        assert flag | sysflag.TRANSACTION_MASK == 0x3FF


def test_flags_print_their_bits() -> None:
    flag = sysflag.SysFlag(0x1 | 0x20)

    assert flag == sysflag.SysFlag.COMPRESSED | sysflag.SysFlag.STORE_HOST_V6
    assert "STORE_HOST_V6" in repr(flag)
    assert sysflag.SysFlag.ROLLBACK == sysflag.SysFlag.PREPARED | sysflag.SysFlag.COMMIT
