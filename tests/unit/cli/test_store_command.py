"""``cometmq store`` as a user meets it: what is printed, and the exit codes."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cometmq.cli.app import app
from cometmq.cli.commands.store import ROWS_AT_ONCE
from tests.unit.store.raw_store import RawStore


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["store", *map(str, arguments)], prog_name="cometmq")


def document(*arguments: str | Path) -> dict[str, object]:
    result = run(*arguments, "-o", "json")
    loaded = json.loads(result.stdout)
    assert isinstance(loaded, dict)
    return loaded


@pytest.fixture
def store(tmp_path: Path) -> RawStore:
    store = RawStore(tmp_path / "store")
    for number in range(30):
        store.put("AB"[number % 2], number % 3, f"body {number}".encode(), KEYS=f"k{number}")
    return store


@pytest.fixture
def far_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clocks here are five and a half hours ahead of UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "IST-5:30")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def root(store: RawStore) -> Path:
    return store.write()


# check


def test_a_consistent_store_is_summed_up(root: Path) -> None:
    result = run("check", root)

    assert (result.exit_code, result.stderr) == (0, "")
    assert "consistent     true\n" in result.stdout
    assert "messages       30\n" in result.stdout
    assert "SEVERITY" not in result.stdout


def test_a_store_with_errors_fails_the_check(store: RawStore) -> None:
    del store.queues["A", 0][1]

    result = run("check", store.write())

    assert result.exit_code == 1
    assert result.stdout.startswith("SEVERITY  KIND")
    assert "no-entry" in result.stdout
    assert "consistent     false\n" in result.stdout


def test_findings_are_one_document_with_the_summary(root: Path) -> None:
    (root / "commitlog/old").write_bytes(b"")
    (root / "notes").write_bytes(b"")

    found = document("check", root)

    assert found["consistent"] is False
    assert found["errors"] == found["notes"] == 1
    assert found["findings"] == [
        {
            "severity": "error",
            "kind": "file-name",
            "path": "commitlog/old",
            "position": None,
            "text": "files here are named by 20 digits",
        },
        {
            "severity": "note",
            "kind": "orphan",
            "path": "notes",
            "position": None,
            "text": "this is not part of a store",
        },
    ]


def test_plain_findings_are_one_per_line_and_nothing_else(root: Path) -> None:
    assert run("check", root, "-o", "plain").stdout == ""

    (root / "notes").write_bytes(b"")
    result = run("check", root, "-o", "plain")

    assert result.exit_code == 0
    assert result.stdout == "note\torphan\tnotes\t\tthis is not part of a store\n"


def test_what_a_kill_left_does_not_fail_the_check(store: RawStore) -> None:
    store.is_killed = True
    store.put("A", 0, is_dispatched=False)

    result = run("check", store.write())

    assert result.exit_code == 0
    assert "recoverable  no-entry" in result.stdout


def test_the_settings_of_the_broker_tell_the_delay_levels(store: RawStore, tmp_path: Path) -> None:
    delivery = store.timestamp + 7000
    store.put("SCHEDULE_TOPIC_XXXX", 0, tags_code=delivery, DELAY="1")
    root = store.write()
    right, wrong = tmp_path / "right.conf", tmp_path / "wrong.conf"
    right.write_text("brokerName=b\nmessageDelayLevel=7s 8s\n")
    wrong.write_text("messageDelayLevel=1s 5s\n")

    assert run("check", root).exit_code == 0
    assert run("check", root, "-c", right).exit_code == 0
    assert run("check", root, "-c", wrong).exit_code == 1


def test_the_settings_of_the_broker_tell_where_the_log_lies(root: Path, tmp_path: Path) -> None:
    (root / "commitlog").rename(tmp_path / "log")
    config = tmp_path / "broker.conf"
    config.write_text(f"storePathCommitLog={tmp_path / 'log'}\n")

    found = document("check", root, "-c", config)

    assert found["consistent"] is True
    assert found["messages"] == 30


@pytest.mark.parametrize("verb", ["check", "stat", "dump"])
def test_what_is_no_store_is_not_found(verb: str, root: Path) -> None:
    empty = root / "empty"
    empty.mkdir()

    missing = run(verb, root / "nothing")
    nothing = run(verb, empty)
    above = run(verb, root.parent)
    below = run(verb, root / "commitlog")

    assert [r.exit_code for r in (missing, nothing, above, below)] == [3, 3, 3, 3]
    assert f"no such directory: '{root / 'nothing'}'" in missing.stderr
    assert "next: give the directory that has commitlog in it" in nothing.stderr
    assert f"next: did you mean {root}?" in above.stderr
    assert f"next: did you mean {root}?" in below.stderr


def test_a_store_of_another_engine_is_refused(root: Path) -> None:
    (root / "rocksdbstore").mkdir()
    (root / "rocksdbstore/1.sst").write_bytes(b"data")

    result = run("check", root)

    assert result.exit_code == 1
    assert "RocksDB" in result.stderr


# stat


def test_the_parts_of_a_store_are_told(store: RawStore) -> None:
    root = store.write()

    found = document("stat", root)

    assert found["abort"] is False
    assert found["log"] == {
        "begin": 0,
        "end": store.end,
        "files": len(store.log) // 4096,
        "file_bytes": 4096,
        "bytes": len(store.log),
    }
    assert found["queue"] == {"count": 6, "files": 6, "file_bytes": 400, "bytes": 2400}
    assert found["index"] == {
        "entries": 30,
        "slots": 10,
        "entries_per_file": 39,
        "files": 1,
        "file_bytes": 880,
        "bytes": 880,
    }
    assert found["checkpoint"] == {
        "log": "2023-11-14T22:13:49.000Z",
        "queues": "2023-11-14T22:13:49.000Z",
        "index": None,
    }
    assert found["index_files"] == [
        {
            "name": "20231114221320000",
            "entries": 30,
            "slots_used": 10,
            "begin_time": "2023-11-14T22:13:20.000Z",
            "end_time": "2023-11-14T22:13:49.000Z",
            "begin_offset": 0,
            "end_offset": store.queues["B", 2][-1].physical_offset,
        }
    ]


def test_queues_are_listed_with_their_bounds(root: Path) -> None:
    result = run("stat", root, "-o", "plain")

    lines = [line.split("\t") for line in result.stdout.splitlines()]
    assert lines == [[topic, str(n), "0", "5", "5", "1"] for topic in "AB" for n in range(3)]


def test_a_table_has_the_parts_and_then_the_queues(root: Path, far_east: None) -> None:
    result = run("stat", root)

    parts, queues = result.stdout.split("\n\n")
    assert "log.file_bytes          4096" in parts
    assert "checkpoint.log          2023-11-15 03:43:49" in parts
    assert queues.startswith("TOPIC  QUEUE ID  MIN OFFSET  MAX OFFSET  MESSAGES  FILES\n")
    assert len(queues.splitlines()) == 7


def test_a_damaged_time_is_shown_as_it_is(root: Path) -> None:
    (root / "checkpoint").write_bytes(b"\x7f".ljust(8, b"\xff").ljust(4096, b"\0"))

    assert document("stat", root)["checkpoint"] == {
        "log": f"{2**63 - 1} ms",
        "queues": None,
        "index": None,
    }
    assert f"{2**63 - 1} ms" in run("stat", root).stdout


# dump


def test_messages_are_listed_as_they_lie_in_the_log(root: Path, far_east: None) -> None:
    result = run("dump", root, "--count", "2")

    assert result.exit_code == 0
    head, first, second = result.stdout.splitlines()
    assert head.split()[:2] == ["PHYSICAL", "OFFSET"]
    assert first.split() == ["0", "A", "0", "0", "106", "2023-11-15", "03:43:20", "k0"]
    assert second.split()[:4] == ["106", "B", "1", "0"]


def test_programs_get_times_with_their_zone(root: Path, far_east: None) -> None:
    result = run("dump", root, "--count", "1", "-o", "json")

    assert json.loads(result.stdout)["store_time"] == "2023-11-14T22:13:20.000Z"


def test_who_does_not_see_all_messages_of_a_log_is_told(root: Path) -> None:
    some = run("dump", root, "--count", "1")
    every = run("dump", root, "--count", "0")
    none = run("dump", root, "--topic", "nosuch")
    as_json = run("dump", root, "--count", "1", "-o", "json")

    assert some.stderr == "there are more: --count 0 shows all\n"
    assert every.stderr == ""
    assert none.stderr == "no such messages in the log\n"
    assert as_json.stderr == ""


def test_messages_are_objects_on_lines_of_their_own(root: Path) -> None:
    result = run("dump", root, "--count", "0", "-o", "json")

    messages = [json.loads(line) for line in result.stdout.splitlines()]
    assert [message["body"] for message in messages] == [f"body {n}" for n in range(30)]
    assert messages[3]["keys"] == "k3"
    assert messages[3]["properties"] == {"KEYS": "k3"}


def test_messages_are_chosen_by_topic_queue_and_position(store: RawStore) -> None:
    root = store.write()
    begin = store.queues["A", 1][2].physical_offset

    chosen = run("dump", root, "--topic", "A", "--queue", "1", "--offset", str(begin), "-o", "json")

    messages = [json.loads(line) for line in chosen.stdout.splitlines()]
    assert [(m["topic"], m["queue_id"], m["queue_offset"]) for m in messages] == [
        ("A", 1, number) for number in (2, 3, 4)
    ]


def test_bodies_are_shown_as_text_or_hex(tmp_path: Path) -> None:
    store = RawStore(tmp_path)
    store.put(body=b"ja\xff")
    store.put(body=b"x" * 300)
    root = store.write()

    text, hexadecimal = (run("dump", root, "--body", form).stdout for form in ("text", "hex"))
    as_json = json.loads(run("dump", root, "--body", "hex", "--count", "1", "-o", "json").stdout)

    assert "ja\ufffd" in text
    assert "x" * 200 + "… (100 more characters with -o json)" in text
    assert "6a61ff" in hexadecimal
    assert (as_json["body"], as_json["body_encoding"]) == ("6a61ff", "hex")
    assert "BODY" not in run("dump", root).stdout


def test_a_position_that_the_log_does_not_have_is_not_found(root: Path) -> None:
    result = run("dump", root, "--offset", "1000000")

    assert result.exit_code == 3
    assert "no such position in the log: '1000000'" in result.stderr


def test_a_position_where_no_message_begins_is_an_error(root: Path) -> None:
    result = run("dump", root, "--offset", "5")

    assert result.exit_code == 1
    assert "no message at 5" in result.stderr


def test_a_log_without_messages_is_an_empty_list(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()

    result = run("dump", tmp_path, "-o", "json")

    assert (result.exit_code, result.stdout) == (0, "")


@pytest.mark.slow
def test_many_messages_are_printed_in_parts(tmp_path: Path) -> None:
    store = RawStore(tmp_path, log_file_bytes=65536)
    for _ in range(ROWS_AT_ONCE + 1):
        store.put()

    result = run("dump", store.write(), "--count", "0")

    assert result.stdout.count("PHYSICAL OFFSET") == 2
    assert len(result.stdout.splitlines()) == ROWS_AT_ONCE + 1 + 2
