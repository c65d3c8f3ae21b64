import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from cometmq.cli.app import App, app
from cometmq.cli.command import Command
from cometmq.cli.connection import Target, ask, cluster_options, explained, resolve, target_of
from cometmq.cli.contexts import ContextEntry, Contexts
from cometmq.cli.frame import Frame, pass_frame
from cometmq.errors import NotFound, SettingsError, Unreachable, Unsupported
from cometmq.remoting.config import TlsClientSettings
from cometmq.testing import LocalCluster

CONTEXTS = Contexts(
    current="test",
    entries={
        "test": ContextEntry(namesrv="test:9876", access_key="tester", timeout_ms=700),
        "prod": ContextEntry(namesrv="prod:9876", tls=True),
    },
)


@pytest.mark.parametrize(
    ("flags", "environment", "contexts", "namesrv", "source"),
    [
        ({}, {}, Contexts(), "127.0.0.1:9876", "the default"),
        ({}, {}, CONTEXTS, "test:9876", "context 'test'"),
        ({}, {"NAMESRV_ADDR": "env:1"}, CONTEXTS, "env:1", "NAMESRV_ADDR"),
        ({}, {"COMETMQ_NAMESRV_ADDR": "env:1"}, CONTEXTS, "env:1", "NAMESRV_ADDR"),
        ({}, {"COMETMQ_CONTEXT": "prod", "NAMESRV_ADDR": "env:1"}, CONTEXTS, "prod:9876",
         "context 'prod'"),
        ({"context": "prod"}, {"COMETMQ_CONTEXT": "test", "NAMESRV_ADDR": "env:1"}, CONTEXTS,
         "prod:9876", "context 'prod'"),
        ({"namesrv": "flag:1"}, {"COMETMQ_CONTEXT": "prod", "NAMESRV_ADDR": "env:1"}, CONTEXTS,
         "flag:1", "--namesrv"),
        ({"namesrv": "flag:1", "context": "prod"}, {}, CONTEXTS, "flag:1", "--namesrv"),
    ],
)  # fmt: skip
def test_the_first_who_names_a_cluster_wins(
    flags: dict[str, Any],
    environment: dict[str, str],
    contexts: Contexts,
    namesrv: str,
    source: str,
) -> None:
    target = resolve(flags, environment, contexts)

    assert (target.namesrv, target.source) == (namesrv, source)


def test_who_names_name_servers_gets_no_keys_of_a_context() -> None:
    assert resolve({"namesrv": "flag:1"}, {}, CONTEXTS).access_key is None
    assert resolve({}, {"NAMESRV_ADDR": "env:1"}, CONTEXTS).access_key is None


def test_what_a_named_context_does_not_say_comes_from_the_environment() -> None:
    environment = {"COMETMQ_ACCESS_KEY": "envy", "COMETMQ_SECRET_KEY": "s", "COMETMQ_TIMEOUT": "2s"}

    prod = resolve({"context": "prod"}, environment, CONTEXTS)
    test = resolve({"context": "test"}, environment, CONTEXTS)

    assert (prod.access_key, prod.secret_key, prod.timeout_ms) == ("envy", "s", 2000)
    assert (test.access_key, test.timeout_ms) == ("tester", 700)


def test_flags_win_over_all() -> None:
    flags = {"context": "test", "access_key": "me", "timeout_ms": 1}

    target = resolve(flags, {"COMETMQ_ACCESS_KEY": "envy"}, CONTEXTS)

    assert (target.namesrv, target.access_key, target.timeout_ms) == ("test:9876", "me", 1)


def test_a_context_that_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFound, match="no such context: 'gone'"):
        resolve({"context": "gone"}, {}, CONTEXTS)


def test_a_secret_is_read_from_its_file_and_shown_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("  top secret\n")

    target = resolve({"access_key": "me", "secret_key_file": str(file)}, {}, Contexts())
    by_variable = resolve({}, {"COMETMQ_SECRET_KEY_FILE": str(file)}, Contexts())
    given_twice = {"COMETMQ_SECRET_KEY": "other", "COMETMQ_SECRET_KEY_FILE": str(file)}

    assert target.secret_key == by_variable.secret_key == "top secret"
    assert resolve({}, given_twice, Contexts()).secret_key == "other"
    assert resolve({"secret_key_file": str(file)}, given_twice, Contexts()).secret_key != "other"
    assert "secret" not in repr(target)


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe", b"x" * 5000])
def test_a_file_without_a_key_is_an_error(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)

    with pytest.raises(SettingsError, match="secret_key_file"):
        resolve({"secret_key_file": str(file)}, {}, Contexts())
    with pytest.raises(SettingsError, match="No such file"):
        resolve({"secret_key_file": str(tmp_path / "none")}, {}, Contexts())


@pytest.mark.parametrize(("name", "value"), [("COMETMQ_TLS", "maybe"), ("COMETMQ_TIMEOUT", "long")])
def test_a_variable_that_cannot_be_used_is_named(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"{name}.*'{value}'"):
        resolve({}, {name: value}, Contexts())


def test_tls_is_asked_for_by_flag_variable_context_or_by_naming_a_file() -> None:
    def tls(flags: dict[str, Any], environment: dict[str, str]) -> Any:
        return resolve(flags, environment, CONTEXTS).tls

    assert tls({}, {}) is None
    assert tls({"tls": True}, {}).is_enabled
    assert tls({}, {"COMETMQ_TLS": "true"}).is_enabled
    assert tls({"context": "prod"}, {}).is_enabled
    assert tls({"context": "prod", "tls": False}, {}) is None
    assert tls({"tls_ca": "/ca.pem"}, {}).trust_cert_path == Path("/ca.pem")
    assert tls({}, {"COMETMQ_TLS_CLIENT_IS_ENABLED": "true"}).is_enabled
    assert tls({}, {"COMETMQ_TLS_CLIENT_IS_ENABLED": "false"}) is None


async def test_an_admin_and_clients_get_what_was_said() -> None:
    target = Target(namesrv="h:1;h2:2", source="", access_key="a", secret_key="s", timeout_ms=1234)

    async with target.admin() as admin:
        assert admin.name_servers.addresses == ("h:1", "h2:2")
    for made in (target.client(), target.async_client(namespace="ns")):
        inner: Any = getattr(made, "_inner", made)
        assert sorted(inner._name_servers) == ["h2:2", "h:1"]
        assert inner._credentials.access_key == "a"


def test_options_stand_after_the_command_and_reach_the_frame() -> None:
    seen: list[Target] = []

    @click.command("look", cls=Command)
    @cluster_options
    @pass_frame
    def look(frame: Frame) -> None:
        seen.append(target_of(frame))

    app = App(name="cometmq", lazy={}, commands={"look": look})
    line = ["look", "--namesrv", "a:1", "--access-key", "k", "--tls", "--timeout", "250ms"]
    result = CliRunner().invoke(app, line)

    assert (result.exit_code, result.output) == (0, "")
    assert (seen[0].namesrv, seen[0].access_key, seen[0].timeout_ms) == ("a:1", "k", 250)
    assert seen[0].tls is not None


@pytest.mark.parametrize(
    ("source", "advice"),
    [("the default", "start a cluster with 'cometmq up'"), ("--namesrv", "comes from --namesrv")],
)
def test_who_cannot_be_reached_is_told_where_the_address_comes_from(
    source: str, advice: str
) -> None:
    target = Target(namesrv="a:1; b:2", source=source)

    with pytest.raises(Unreachable, match=advice), explained(target):
        raise Unreachable("b:2;a:1", "refused")


def test_who_talks_tls_is_told_that_it_may_be_that() -> None:
    target = Target(namesrv="a:1", source="--namesrv", tls=TlsClientSettings(is_enabled=True))

    with pytest.raises(Unreachable, match=r"comes from --namesrv.* speak TLS"), explained(target):
        raise Unreachable("a:1", "refused")


def test_a_broker_that_cannot_be_reached_keeps_its_own_advice() -> None:
    with pytest.raises(Unreachable, match="own"), explained(Target(namesrv="a:1", source="x")):
        raise Unreachable("broker:1", "refused", "own")


def test_nobody_listening_is_unreachable(unused_port: Callable[[], int]) -> None:
    frame = Frame(environment={"NAMESRV_ADDR": f"127.0.0.1:{unused_port()}", "HOME": "/none"})

    with pytest.raises(Unreachable, match="the address comes from NAMESRV_ADDR"):
        ask(frame, lambda admin: admin.topics.list())


@pytest.mark.parametrize(
    "command",
    [
        ("produce", "t", "x"),
        ("produce", "t", "x", "y", "z"),
        ("consume", "t"),
        ("request", "t", "x"),
    ],
)
def test_every_command_says_where_the_address_comes_from(
    command: tuple[str, ...], unused_port: Callable[[], int]
) -> None:
    environment = {"NAMESRV_ADDR": f"127.0.0.1:{unused_port()}", "COMETMQ_CONTEXT": ""}

    result = CliRunner().invoke(app, command, env=environment)

    assert result.exit_code == 4
    assert result.stderr.endswith(
        "  next: the address comes from NAMESRV_ADDR: is it right, and do they run?\n"
    )


@pytest.mark.slow
def test_a_broker_is_not_taken_for_a_name_server() -> None:
    with LocalCluster() as cluster:
        cluster.create_topic("t")
        address = cluster.broker.address
        results = {
            line: CliRunner().invoke(app, [*line.split(), "--namesrv", address])
            for line in (
                *(
                    "status",
                    "top --once",
                    "topic ls",
                    "group ls",
                    "dlq ls",
                    "nameserver config get",
                ),
                *("message get --topic t --key k", "consume t", "consume t --group g"),
                *("produce t x", "produce t x y", "request t x"),
            )
        }
        doctor = CliRunner().invoke(app, ["doctor", "--namesrv", address, "-o", "json"])

    advice = (
        f"error: {address} is no name server\n  next: the address comes from --namesrv: brokers "
        "listen at other ports than name servers, whose usual port is 9876\n"
    )
    assert {line: (result.exit_code, result.stderr) for line, result in results.items()} == (
        dict.fromkeys(results, (4, advice))
    )
    assert f"{address} is no name server" in doctor.stdout


def test_a_name_server_that_is_older_than_a_request_is_one() -> None:
    target = Target(namesrv="a:1", source="x")

    with pytest.raises(Unsupported, match="since 9"), explained(target):
        raise Unsupported("a feature", "a:1", "RocketMQ 4.8.0", "it is there since 9")
    with pytest.raises(Unsupported, match="lacks"), explained(target):
        raise Unsupported("a feature", "broker:1", "RocketMQ 4.8.0")


@pytest.mark.parametrize("command", [("topic", "ls"), ("produce", "t", "x"), ("doctor",)])
@pytest.mark.parametrize("address", ["localhost:abc", "not a host", "a:1;b", "a:1,b:2"])
def test_what_cannot_be_an_address_is_a_mistake_of_the_command_line(
    address: str, command: tuple[str, ...]
) -> None:
    result = CliRunner().invoke(app, [*command, "--namesrv", address])

    assert result.exit_code == 2
    assert result.stderr.startswith("error: setting 'namesrv': ")


@pytest.mark.parametrize(
    "command",
    [
        ("produce", "t", "x"),
        ("topic", "ls"),
        ("consume", "t"),
        ("consume", "t", "--group", "g", "--follow"),
        ("request", "t", "x", "--queue", "0"),
        ("dlq", "replay", "g"),
    ],
)
def test_a_server_that_keeps_silent_gets_the_time_that_was_given(command: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"

        result = CliRunner().invoke(app, [*command, "--namesrv", address, "--timeout", "120ms"])

    assert result.exit_code == 4
    found = re.search(r"no answer .*within (\d+) ms", result.stderr)
    assert found is not None, result.stderr
    assert int(found[1]) <= 120
