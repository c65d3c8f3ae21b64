import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cometmq.cli.app import app

FIELDS = [
    *("name", "is_current", "namesrv", "access_key", "secret_key_file"),
    *("tls", "tls_ca", "tls_cert", "tls_key", "timeout_ms"),
]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["context", *arguments])


def found(*arguments: str) -> Any:
    result = run(*arguments, "-o", "json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_the_first_context_is_the_current_one_until_another_is_used() -> None:
    first = found("set", "test", "--namesrv", "test:9876")
    second = found("set", "prod", "--namesrv", "p1:9876;p2:9876", "--timeout", "2s", "--tls")
    assert list(first) == list(second) == FIELDS
    assert (first["is_current"], second["is_current"]) == (True, False)
    assert second["timeout_ms"] == 2000

    assert found("show")["source"] == "context 'test'"
    assert found("use", "prod")["is_current"]
    shown = found("show")

    assert (shown["namesrv"], shown["tls"]) == ("p1:9876;p2:9876", True)
    assert list(shown) == [
        *("namesrv", "source", "access_key", "has_secret_key", "tls", "timeout_ms", "file"),
    ]


def test_what_is_not_given_stays_as_it_is() -> None:
    found("set", "test", "--namesrv", "test:9876", "--access-key", "me")

    changed = found("set", "test", "--namesrv", "other:9876", "--use")

    assert (changed["namesrv"], changed["access_key"]) == ("other:9876", "me")


def test_the_list_has_every_context_and_marks_the_current_one() -> None:
    found("set", "a", "--namesrv", "a:1")
    found("set", "b", "--namesrv", "b:1", "--secret-key-file", "/s", "--access-key", "me")

    assert [list(row) for row in found("ls")] == [FIELDS, FIELDS]
    table = run("ls").stdout.splitlines()
    assert table[0].split() == ["NAME", "IS", "CURRENT", "NAMESRV", "ACCESS", "KEY", *_SECRET]
    assert table[1].split() == ["a", "true", "a:1", "-", "-"]
    assert table[2].split() == ["b", "-", "b:1", "me", "/s"]


_SECRET = ["SECRET", "KEY", "FILE"]


def test_a_context_that_is_deleted_is_gone() -> None:
    found("set", "a", "--namesrv", "a:1")

    assert found("delete", "a", "--yes")["is_deleted"]
    assert found("ls") == []
    assert run("ls").stderr.startswith("there is no context; ")
    assert run("delete", "a", "--yes").exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "exit_code", "fact"),
    [
        (["set", "x"], 2, "nothing is given for context 'x'"),
        (["set", "x", "--namesrv", "nowhere"], 2, "'nowhere' is no address"),
        (["use", "x"], 3, "no such context: 'x'"),
        (["show", "--context", "x"], 3, "no such context: 'x'"),
    ],
)
def test_a_mistake_changes_nothing(
    arguments: list[str], exit_code: int, fact: str, home: Path
) -> None:
    result = run(*arguments)

    assert result.exit_code == exit_code
    assert fact in result.stderr
    assert list(home.iterdir()) == []


def test_a_secret_is_kept_as_the_absolute_name_of_its_file(home: Path) -> None:
    found("set", "a", "--namesrv", "a:1", "--access-key", "me", "--secret-key-file", "key.txt")

    kept = (home / "cometmq" / "contexts.toml").read_text()

    assert f'secret_key_file = "{Path("key.txt").absolute()}"' in kept


def test_a_context_has_a_name_and_requests_have_time(tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    blank = CliRunner().invoke(app, ["context", "set", " ", "--namesrv", "a:1"], env=environment)
    hasty = CliRunner().invoke(app, ["context", "set", "dev", "--timeout", "0"], env=environment)

    assert (blank.exit_code, hasty.exit_code) == (2, 2)
    assert blank.stderr.startswith("error: the name of the context is blank\n")
    assert hasty.stderr.startswith("error: invalid value for '--timeout': '0' is less than 1ms\n")
    assert not list(tmp_path.iterdir())


def test_a_context_is_not_forgotten_by_mistake() -> None:
    found("set", "a", "--namesrv", "a:1")

    refused = run("delete", "a")
    planned = found("delete", "a", "--dry-run")

    assert refused.exit_code == 2
    assert refused.stderr == (
        "error: not sure whether to forget context 'a' of 'a:1': nobody is here to ask\n"
        "  next: add --yes to do it\n"
    )
    assert planned["is_deleted"] is False
    assert [row["name"] for row in found("ls")] == ["a"]
