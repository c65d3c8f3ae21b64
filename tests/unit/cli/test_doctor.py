import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from cometmq.cli.app import app
from cometmq.cli.check import Check, Status
from cometmq.cli.commands.doctor import examine, verdict
from cometmq.cli.machine import PACKAGES, Machine, Package
from cometmq.cli.problems import ExitCode

HEALTHY = Machine(
    python=(3, 13, 1),
    implementation="CPython",
    platform="Linux 6.1 x86_64",
    core="compiled",
    is_core_forced=False,
    packages={name: Package("1.0") for name in PACKAGES},
    file_limit=(65536, 65536),
)


def finding(machine: Machine) -> Check:
    """The one check that is not in order."""
    (found,) = [check for check in examine(machine) if check.status is not Status.OK]
    return found


def with_package(name: str, package: Package) -> Machine:
    return replace(HEALTHY, packages={**HEALTHY.packages, name: package})


def test_a_healthy_machine_passes_every_check() -> None:
    checks = examine(HEALTHY)

    assert [check.name for check in checks] == ["python", "core", *PACKAGES, "open files"]
    assert {check.status for check in checks} == {Status.OK}
    assert not any(check.next_step for check in checks)


def test_an_old_python_fails() -> None:
    found = finding(replace(HEALTHY, python=(3, 10, 14)))

    assert (found.name, found.status) == ("python", Status.FAIL)
    assert found.detail == "3.10.14 is too old"
    assert "3.11" in found.next_step


def test_a_core_that_was_not_built_is_mentioned() -> None:
    found = finding(replace(HEALTHY, core="plain"))

    assert (found.name, found.status) == ("core", Status.WARN)
    assert "compiler" in found.next_step


def test_a_core_that_was_switched_off_is_told_from_one_that_is_missing() -> None:
    found = finding(replace(HEALTHY, core="plain", is_core_forced=True))

    assert (found.name, found.status) == ("core", Status.WARN)
    assert found.next_step == "unset COMETMQ_PURE to use the compiled core"


@pytest.mark.parametrize(
    ("name", "next_step"),
    [
        ("uvloop", "pip install 'uvloop'"),
        ("lz4", "pip install 'cometmq[compress]'"),
        ("zstandard", "pip install 'cometmq[compress]'"),
    ],
)
def test_a_missing_package_is_mentioned_with_what_is_lost(name: str, next_step: str) -> None:
    found = finding(with_package(name, Package(None)))

    assert (found.name, found.status, found.next_step) == (name, Status.WARN, next_step)
    assert found.detail.startswith("not installed: ")


@pytest.mark.parametrize("name", PACKAGES)
def test_a_broken_package_fails(name: str) -> None:
    found = finding(with_package(name, Package("1.0", fault="undefined symbol: x")))

    assert (found.name, found.status) == (name, Status.FAIL)
    assert found.detail == "1.0 is installed but cannot be imported: undefined symbol: x"


@pytest.mark.parametrize(
    ("limit", "status", "next_step"),
    [
        ((255, 4096), Status.FAIL, "limits.conf"),
        ((1024, 20000), Status.WARN, "ulimit -n 20000"),
        ((1024, -1), Status.WARN, "ulimit -n 8192"),
        ((1024, 4096), Status.WARN, "limits.conf"),
    ],
)
def test_a_low_limit_on_open_files_is_found(
    limit: tuple[int, int], status: Status, next_step: str
) -> None:
    found = finding(replace(HEALTHY, file_limit=limit))

    assert (found.name, found.status) == ("open files", status)
    assert next_step in found.next_step


@pytest.mark.parametrize("limit", [(8192, 8192), (-1, -1), None])
def test_a_generous_limit_on_open_files_is_fine(limit: tuple[int, int] | None) -> None:
    assert examine(replace(HEALTHY, file_limit=limit))[-1].status is Status.OK


@pytest.mark.parametrize(
    ("machine", "exit_code"),
    [
        (HEALTHY, ExitCode.DONE),
        (replace(HEALTHY, core="plain"), ExitCode.DONE),
        (replace(HEALTHY, python=(3, 10, 0)), ExitCode.FAILED),
    ],
    ids=["ok", "warn", "fail"],
)
def test_only_a_failed_check_makes_the_command_fail(machine: Machine, exit_code: ExitCode) -> None:
    assert verdict(examine(machine)) is exit_code


@pytest.mark.slow
def test_every_check_is_shown_with_the_same_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")

    result = CliRunner().invoke(app, ["doctor", "-o", "json"])

    shown = json.loads(result.stdout)
    assert {tuple(check) for check in shown} == {("check", "status", "detail", "next_step")}
    assert [check["check"] for check in shown] == [
        *("python", "core", *PACKAGES, "open files", "disk", "java"),
        *("port 9876", "port 10911", "cluster"),
    ]
    assert (shown[-1]["status"], result.exit_code) == ("fail", 1)


@pytest.mark.slow
def test_a_wrong_java_home_is_passed_over_as_spark_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "jvm" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'openjdk version \"17.0.9\"' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")

    result = CliRunner().invoke(app, ["doctor", "-o", "json"])

    (java,) = [check for check in json.loads(result.stdout) if check["check"] == "java"]
    assert (java["status"], java["detail"]) == ("ok", f"Java 17 at {tmp_path / 'jvm'}")
