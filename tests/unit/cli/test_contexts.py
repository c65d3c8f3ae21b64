import stat
from pathlib import Path

import pytest

from cometmq.cli.contexts import (
    ContextEntry,
    Contexts,
    contexts_path,
    read_contexts,
    write_contexts,
)
from cometmq.errors import NotFound, SettingsError

FULL = ContextEntry(
    namesrv="10.0.0.5:9876;10.0.0.6:9876",
    access_key='me "and" \\ you\x7f',
    secret_key_file="/secrets/ünïcode",
    tls=False,
    tls_ca="/ca.pem",
    tls_cert="/cert.pem",
    tls_key="/key.pem",
    timeout_ms=700,
)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "contexts.toml"
    entries = {"a.b c": FULL, "small": ContextEntry(namesrv="h:1"), "empty": ContextEntry()}
    contexts = Contexts(current="small", entries=entries)

    write_contexts(path, contexts)

    assert read_contexts(path) == contexts


def test_the_file_is_its_owners_only_also_when_it_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "contexts.toml"

    for current in (None, "x"):
        write_contexts(path, Contexts(current=current, entries={"x": FULL}))

        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert [one.name for one in tmp_path.iterdir()] == ["contexts.toml"]


def test_no_file_means_no_contexts(tmp_path: Path) -> None:
    assert read_contexts(tmp_path / "none.toml") == Contexts()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"current = ", "not a TOML file"),
        (b"\xff", "not a TOML file"),
        (b"contexts = 3", "no table of tables"),
        (b"[contexts]\na = 3", "no table of tables"),
        (b"current = 3", "'current' is no name"),
        (b"[contexts.a]\nhost = 'x'", "context 'a' has an unknown 'host'"),
        (b"[contexts.a]\ntls = 'yes'", "'tls' of context 'a' is no bool"),
        (b"[contexts.a]\ntimeout_ms = true", "'timeout_ms' of context 'a' is no int"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error_that_names_it(
    content: bytes, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "contexts.toml"
    path.write_bytes(content)

    with pytest.raises(SettingsError) as caught:
        read_contexts(path)

    assert problem in caught.value.fact
    assert str(path) in caught.value.fact


def test_a_context_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(NotFound, match="known are: a, b"):
        Contexts(entries={"a": FULL, "b": FULL}).using("c")
    with pytest.raises(NotFound, match="make one with 'cometmq context set'"):
        Contexts().entry("c")


def test_without_the_current_one_there_is_none() -> None:
    contexts = Contexts(current="a", entries={"a": FULL, "b": FULL})

    assert contexts.without("a") == Contexts(entries={"b": FULL})
    assert contexts.without("b") == Contexts(current="a", entries={"a": FULL})


def test_the_file_is_in_the_folder_for_settings() -> None:
    assert contexts_path({"HOME": "/h"}) == Path("/h/.config/cometmq/contexts.toml")
    assert contexts_path({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}) == Path(
        "/c/cometmq/contexts.toml"
    )
