"""Every recorded configuration file fits its type and is written again byte for byte."""

import functools
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.codec import fastjson
from cometmq.codec.bodies import documents
from cometmq.codec.fastjson import PrettyStyle
from cometmq.errors import RemoteProtocolError

STORE_DIRECTORY = Path(__file__).resolve().parent.parent / "data" / "store"
STYLES = {"4.9.7": PrettyStyle.FASTJSON_1, "5.5.0": PrettyStyle.FASTJSON_2}
BINARY = {"timercheck"}


@functools.cache
def config_files(release: str) -> tuple[tuple[str, bytes], ...]:
    """Name and content of the configuration files in both archives of a release."""
    return tuple(
        found
        for path in sorted(STORE_DIRECTORY.glob(f"{release}-*.tar.gz"))
        for found in _files_of(path)
    )


def _files_of(path: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        for member in archive:
            name = member.name.removeprefix("store/config/")
            content = archive.extractfile(member) if name != member.name else None
            if content is not None and name not in BINARY:
                yield name.removesuffix(".bak"), content.read()


@pytest.mark.parametrize(("release", "count"), [("4.9.7", 20), ("5.5.0", 32)])
def test_configuration_files_are_written_again_byte_for_byte(release: str, count: int) -> None:
    files = config_files(release)

    for name, content in files:
        document = documents.decode(content, name=name)
        assert documents.encode(document, name=name, style=STYLES[release]) == content, name
    assert len(files) == count


@pytest.mark.parametrize("release", STYLES)
def test_a_file_merged_with_itself_stays_the_same(release: str) -> None:
    for name, content in config_files(release):
        document, previous = documents.decode(content, name=name), fastjson.loads(content)
        again = documents.encode(document, name=name, style=STYLES[release], previous=previous)
        assert again == content, name


@pytest.mark.parametrize("release", STYLES)
def test_a_file_cut_anywhere_is_refused_cleanly(release: str) -> None:
    """What a crash leaves of a file must make the reader turn to its backup, not fall over."""
    for name, content in dict(config_files(release)).items():
        for end in range(0, len(content), 1 + len(content) // 20):
            with pytest.raises(RemoteProtocolError):
                documents.decode(content[:end], name=name)
