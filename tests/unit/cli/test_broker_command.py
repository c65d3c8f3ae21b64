"""``cometmq broker``: settings from everywhere, and errors that say what to do."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cometmq.cli.app import app
from cometmq.cli.problems import ExitCode


def run(*arguments: str, environment: dict[str, str] | None = None) -> Result:
    return CliRunner(env=environment).invoke(app, ["broker", *arguments])


def shown(*arguments: str, environment: dict[str, str] | None = None) -> dict[str, list[str]]:
    """Value and note by key, as -p prints them."""
    result = run(*arguments, "-p", "-o", "plain", environment=environment)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = (line.split("\t") for line in result.stdout.splitlines())
    return {key: rest for key, *rest in lines}


def conf(folder: Path, *lines: str) -> Path:
    file = folder / "broker.conf"
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = conf(tmp_path, "listenPort=1001", "brokerName=from-file", "brokerClusterName=from-file")
    environment = {"COMETMQ_LISTEN_PORT": "1002", "COMETMQ_BROKER_NAME": "from-environment"}

    found = shown("-c", str(file), "--listen-port", "1003", environment=environment)

    assert found["listenPort"][0] == "1003"
    assert found["brokerName"][0] == "from-environment"
    assert found["brokerClusterName"][0] == "from-file"


def test_name_servers_are_given_as_to_apaches_broker() -> None:
    assert shown("-n", "a:1;b:2")["namesrvAddr"][0] == "a:1;b:2"
    assert shown("--namesrv-addr", "c:3")["namesrvAddr"][0] == "c:3"


def test_changes_at_run_time_go_to_the_file_that_was_given(tmp_path: Path) -> None:
    file = conf(tmp_path, "brokerName=broker-a")

    assert shown("-c", str(file))["brokerConfigPath"][0] == str(file)


def test_settings_of_the_store_and_of_tls_are_settings_of_the_broker() -> None:
    found = shown(
        "--flush-mode", "SYNC_FLUSH", "--tls-cert-path", "/a", "--tls-client-cert-path", "/b"
    )

    assert found["flushDiskType"][0] == "SYNC_FLUSH"
    assert found["tls.server.certPath"][0] == "/a"
    assert found["tls.client.certPath"][0] == "/b"


def test_keys_without_effect_say_why(tmp_path: Path) -> None:
    file = conf(tmp_path, "sendMessageThreadPoolNums=16")

    value, note = shown("-c", str(file))["sendMessageThreadPoolNums"]

    assert value == "16"
    assert note.startswith("no effect: one event loop answers all requests")


def test_secrets_are_neither_options_nor_printed(tmp_path: Path) -> None:
    file = conf(tmp_path, "tls.server.keyPassword=sesame", "tls.client.keyPassword=sesame")

    result = run("-c", str(file), "-p")

    assert result.exit_code == 0
    assert "sesame" not in result.stdout
    assert run("--tls-key-password", "sesame").exit_code == ExitCode.USAGE


@pytest.mark.parametrize("role", ["SLAVE", "SYNC_MASTER"])
def test_a_role_that_is_not_there_yet_is_refused(role: str, tmp_path: Path) -> None:
    file = conf(tmp_path, f"brokerRole={role}", f"storePathRootDir={tmp_path / 'store'}")

    result = run("-c", str(file))

    assert result.exit_code == ExitCode.USAGE
    assert result.stderr == (
        f"error: setting 'brokerRole': '{role}' is not possible yet: there is no replication\n"
        "  next: use ASYNC_MASTER, or run Apache's broker\n"
    )
    assert not (tmp_path / "store").exists()


def test_access_control_that_would_not_be_there_is_refused(tmp_path: Path) -> None:
    result = run("-c", str(conf(tmp_path, "aclEnable=true")))

    assert result.exit_code == ExitCode.USAGE
    assert "setting 'aclEnable'" in result.stderr


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = run("-c", str(tmp_path / "none.conf"))

    assert result.exit_code == ExitCode.NOT_FOUND
    assert "none.conf" in result.stderr


@pytest.mark.parametrize("program", ["broker", "nameserver"])
def test_keys_that_nobody_knows_are_named_beside_the_settings(program: str, tmp_path: Path) -> None:
    file = conf(tmp_path, "listenProt=1", "of-nobody=2")

    result = CliRunner().invoke(app, [program, "-c", str(file), "-p", "-o", "json"])

    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        "warning: unknown setting 'listenProt' is ignored (did you mean 'listenPort'?)",
        "warning: unknown setting 'of-nobody' is ignored",
    ]
    assert "listenPort" in result.stdout


def test_a_file_with_a_byte_order_mark_loses_no_key(tmp_path: Path) -> None:
    file = conf(tmp_path, "brokerName=marked")
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())

    assert shown("-c", str(file))["brokerName"][0] == "marked"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--bind-address", "nosuch.invalid"), "setting 'bindAddress': 'nosuch.invalid' "),
        (
            ("--health-port", "0", "--health-address", "nosuch.invalid"),
            "setting 'healthAddress': 'nosuch.invalid' ",
        ),
        (("--root", "/proc/nope"), "setting 'storePathRootDir': '/proc/nope' "),
        (("--root", "{folder}/file"), "setting 'storePathRootDir': '{folder}/file' "),
        (("--log-paths", "/proc/nope"), "setting 'storePathCommitLog': '/proc/nope' "),
    ],
)
def test_what_a_broker_cannot_start_with_is_named(
    arguments: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    given = (argument.format(folder=tmp_path) for argument in arguments)

    result = broker_program(tmp_path, "--listen-port", "0", *given)
    _, errors = result.communicate(timeout=60)

    assert result.returncode == ExitCode.USAGE
    assert f"error: {words.format(folder=tmp_path)}" in errors
    assert "  next: " in errors
    assert "Traceback" not in errors


@pytest.mark.slow
def test_a_busy_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        result = broker_program(tmp_path, "--listen-port", str(port))
        _, errors = result.communicate(timeout=20)

    assert result.returncode == ExitCode.FAILED
    assert f"error: port {port} on 127.0.0.1 is in use" in errors
    assert "Traceback" not in errors


@pytest.mark.slow
def test_a_broker_says_what_clients_are_told_and_stops_when_told(tmp_path: Path) -> None:
    result = broker_program(tmp_path, "--listen-port", "0", "--broker-ip1", "localhost")
    assert result.stderr is not None
    lines = []
    for line in result.stderr:
        lines.append(line)
        if "broker listens on" in line:
            break

    result.send_signal(signal.SIGTERM)
    _, rest = result.communicate(timeout=20)

    text = "".join(lines)
    assert "clients are told localhost:" in text
    assert "message ids carry 127.0.0.1" in text
    assert "no name server is set" in text
    assert result.returncode == 0, text + rest


def broker_program(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    line = ["--bind-address", "127.0.0.1", "--root", str(folder / "store"), *arguments]
    return subprocess.Popen(
        [sys.executable, "-m", "cometmq", "broker", *line],
        env={**os.environ, "HOME": str(folder), "NAMESRV_ADDR": ""},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
