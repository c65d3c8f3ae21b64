"""What a machine lacks is a skip with its reason, or a failure where nothing may be lacking."""

from pathlib import Path

import pytest

from tests.interop import requirements
from tests.interop.commands import CommandError


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that is the whole PATH, on a machine where skips are allowed."""
    monkeypatch.delenv("COMETMQ_REQUIRE_ALL", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def install(tools: Path, name: str, script: str) -> None:
    (tools / name).write_text(f"#!/bin/sh\n{script}\n")
    (tools / name).chmod(0o755)


@pytest.mark.usefixtures("tools")
def test_a_missing_tool_skips_by_name_with_the_reason() -> None:
    with pytest.raises(pytest.skip.Exception, match=r"needs java 17\+: not found on PATH"):
        requirements.need("java")


@pytest.mark.usefixtures("tools")
def test_a_missing_tool_fails_where_all_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMETMQ_REQUIRE_ALL", "1")

    with pytest.raises(pytest.fail.Exception, match=r"needs java 17\+: not found on PATH"):
        requirements.need("java")


def test_a_tool_that_is_too_old_skips_with_its_version(tools: Path) -> None:
    install(tools, "java", "echo 'openjdk version \"11.0.2\"' >&2")

    with pytest.raises(pytest.skip.Exception, match=r"needs java 17\+: .*/java is 11\.0\.2"):
        requirements.need("java")


def test_a_tool_that_is_new_enough_will_do(tools: Path) -> None:
    install(tools, "go", "echo 'go version go1.22.1 linux/amd64'")

    requirements.need("go")


def test_a_tool_that_does_not_run_is_missing(tools: Path) -> None:
    install(tools, "mvn", "exit 3")

    with pytest.raises(pytest.skip.Exception, match=r"needs mvn 3\.6\+: .*/mvn does not run"):
        requirements.need("mvn")


def test_a_tool_without_a_version_is_missing(tools: Path) -> None:
    install(tools, "node", "echo hello")

    with pytest.raises(pytest.skip.Exception, match="does not tell its version"):
        requirements.need("node")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', (17, 0, 15)),
        ("javac 21", (21,)),
        ("\x1b[1mApache Maven 3.8.7\x1b[m", (3, 8, 7)),
        ("go version go1.26.8 linux/amd64", (1, 26, 8)),
        ("v20.20.2", (20, 20, 2)),
        ("11.19.1", (11, 19, 1)),
        ("none", None),
    ],
)
def test_the_version_is_found_in_what_tools_print(text: str, version: tuple[int, ...]) -> None:
    assert requirements.version_in(text) == version


@pytest.mark.usefixtures("tools")
def test_what_cannot_be_fetched_is_missing_with_what_the_command_said() -> None:
    with (
        pytest.raises(pytest.skip.Exception, match=r"needs the jars: (?s:.*)no route to host"),
        requirements.fetching("the jars"),
    ):
        raise CommandError(["mvn"], "exit code 1", "no route to host")
