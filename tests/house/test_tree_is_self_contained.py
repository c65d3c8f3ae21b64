"""The tree names no package registry and no path of somebody's machine."""

import gzip
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

from scripts import tree

# Written in pieces so that this file passes its own test.
REGISTRY_HOSTS = re.compile(
    b"|".join(
        re.escape(".".join(parts)).encode()
        for parts in (
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("npmjs", "org"),
            ("npmjs", "com"),
            ("maven", "org"),
            ("maven", "apache", "org", "maven2"),
            ("proxy", "golang", "org"),
            ("sum", "golang", "org"),
            ("crates", "io"),
            ("deb", "debian", "org"),
        )
    )
)
MACHINE_PATHS = re.compile(rb"(?<![\w./$~{}<-])/(?:work|root|home|farm|Users)/[\w.]")


def contents(path: Path) -> Iterator[tuple[str, bytes]]:
    name = tree.relative(path)
    if name.endswith(".tar.gz"):
        with tarfile.open(path) as archive:
            for member in archive.getmembers():
                if (file := archive.extractfile(member)) is not None:
                    yield f"{name}/{member.name}", file.read()
    elif name.endswith(".gz"):
        yield name, gzip.decompress(path.read_bytes())
    else:
        yield name, path.read_bytes()


def findings(pattern: re.Pattern[bytes]) -> list[str]:
    return [
        f"{name}: {found[0].decode(errors='replace')}"
        for path in tree.tracked_files()
        for name, data in contents(path)
        for found in [pattern.search(data)]
        if found
    ]


def test_no_file_names_a_package_registry() -> None:
    assert findings(REGISTRY_HOSTS) == []


def test_no_file_holds_a_path_of_a_machine() -> None:
    assert findings(MACHINE_PATHS) == []


def test_the_patterns_find_what_they_look_for() -> None:
    assert REGISTRY_HOSTS.search(b"https://files.python" + b"hosted.org/x")
    assert MACHINE_PATHS.search(b"path = '/ro" + b"ot/project'")
