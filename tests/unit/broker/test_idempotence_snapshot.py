"""The file with what is remembered of idempotent sends."""

import logging
from pathlib import Path

import pytest

from cometmq.broker.idempotence_snapshot import SnapshotFile, decode, encode
from cometmq.broker.idempotence_table import Entry, Run, Snapshot
from cometmq.errors import RemoteProtocolError

RUNS = (Run(0, 10, 2, 5, 1024, 3072), Run(10, 8, 2, 15, 3072, 4096))
SNAPSHOT = Snapshot(4096, [Entry("orders", "job-1/0", 17, 1_700_000_000_000, RUNS)])
CONTENT = b"""{"format":"cometmq producers","version":1,"offset":4096,"count":1}
["orders","job-1/0",17,1700000000000,[[0,10,2,5,1024,3072,null],[10,8,2,15,3072,4096,null]]]
"""


def test_its_form_is_as_described() -> None:
    assert encode(SNAPSHOT) == CONTENT
    assert decode(CONTENT) == SNAPSHOT


def test_a_file_of_an_earlier_release_is_read() -> None:
    assert decode(CONTENT.replace(b",null]", b"]")) == SNAPSHOT


def test_where_delayed_messages_wait_is_kept() -> None:
    run = Run(0, 10, 2, 5, 1024, 3072, ("SCHEDULE_TOPIC_XXXX", 2))
    snapshot = Snapshot(4096, [Entry("orders", "p", 9, 1, (run,))])

    assert decode(encode(snapshot)) == snapshot


def test_without_a_file_there_is_nothing(tmp_path: Path) -> None:
    assert SnapshotFile(tmp_path).load() is None


def test_what_was_saved_is_there_again(tmp_path: Path) -> None:
    file = SnapshotFile(tmp_path)
    file.save(Snapshot(1, []))
    file.save(SNAPSHOT)

    assert SnapshotFile(tmp_path).load() == SNAPSHOT
    assert (tmp_path / "config" / "cometProducers.json").read_bytes() == CONTENT


def test_the_backup_helps_when_the_file_is_broken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = SnapshotFile(tmp_path)
    file.save(Snapshot(1, []))
    file.save(SNAPSHOT)
    (tmp_path / "config" / "cometProducers.json").write_bytes(CONTENT[:-20])

    with caplog.at_level(logging.WARNING):
        assert SnapshotFile(tmp_path).load() == Snapshot(1, [])
    assert "read from its backup" in caplog.text


@pytest.mark.parametrize(
    "content",
    [
        b"hello",
        b"{}",
        CONTENT.replace(b'"version":1', b'"version":2'),
        CONTENT.replace(b"cometmq producers", b"something else"),
        CONTENT.replace(b'"count":1', b'"count":2'),
        CONTENT.replace(b"[0,10,2,5,1024,3072,", b'[0,10,2,5,1024,"x",'),
        CONTENT[:-20],
    ],
)
def test_what_cannot_be_read_is_refused(content: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(content)
