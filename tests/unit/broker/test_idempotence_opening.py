"""What is known of idempotent sends after the store was opened again, whatever happened to it."""

import logging
import shutil
from pathlib import Path

import pytest

from cometmq.broker.idempotence import IdempotentSends, KeptProducers
from cometmq.broker.idempotence_marks import CHUNK_BYTES, PROPERTY, mark_of, marks_since
from cometmq.broker.idempotence_snapshot import NAME, SnapshotFile
from cometmq.broker.idempotence_table import Snapshot
from cometmq.codec import properties
from cometmq.codec.codes import ResponseCode
from cometmq.codec.record import Record
from cometmq.model.system_names import TIMER_TOPIC
from cometmq.model.topic import SCHEDULE_TOPIC
from cometmq.store.documents import FOLDER
from cometmq.store.results import NewMessage
from tests.unit.broker.data_path import TOPIC, DataPath, sending
from tests.unit.broker.test_idempotence import EPOCH, bodies, opened, send, send_batch


def save(path: DataPath) -> Snapshot:
    """Save what is known, as the broker does every few seconds."""
    assert path.idempotent is not None
    file = SnapshotFile(path.store.root)
    file.load()
    snapshot = path.idempotent.snapshot()
    KeptProducers(path.store, file).save(snapshot)
    return snapshot


def saved(folder: Path) -> Snapshot:
    snapshot = SnapshotFile(folder).load()
    assert snapshot is not None
    return snapshot


class TestReading:
    def test_the_log_alone_is_enough(self, tmp_path: Path) -> None:
        with opened(tmp_path) as path:
            first = [
                send(path, 0, b"a").ext,
                send_batch(path, 1, b"b", b"c").ext,
                send(path, 0, b"d", who="q", queue_id=3).ext,
            ]

        with opened(tmp_path) as path:
            again = [
                send(path, 0, b"a").ext,
                send_batch(path, 1, b"b", b"c").ext,
                send(path, 0, b"d", who="q", queue_id=3).ext,
            ]

            assert again == first
            assert bodies(path) == [b"a", b"b", b"c"]
            assert send(path, 3, b"e").code == ResponseCode.SUCCESS
        assert saved(tmp_path).entries == []

    def test_it_is_read_from_where_the_saved_table_ends(self, tmp_path: Path) -> None:
        with opened(tmp_path) as path:
            first = [send(path, number).ext for number in range(3)]
            path.store.flush()
            snapshot = save(path)
            first += [send(path, number).ext for number in range(3, 6)]

        with opened(tmp_path) as path:
            read = [mark.sequence for mark in marks_since(path.store, snapshot.offset)]
            assert read == [3, 4, 5]
            assert [send(path, number).ext for number in range(6)] == first

    @pytest.mark.parametrize(
        ("asked", "aside", "queue_id"),
        [({"DELAY": "3"}, SCHEDULE_TOPIC, 2), ({"TIMER_DELAY_MS": "60000"}, TIMER_TOPIC, 0)],
        ids=["level", "time"],
    )
    def test_a_delayed_message_is_found_under_the_topic_it_was_sent_to(
        self, tmp_path: Path, asked: dict[str, str], aside: str, queue_id: int
    ) -> None:
        with opened(tmp_path) as path:
            first = send(path, 0, asked=asked, queue_id=1)

        with opened(tmp_path) as path:
            assert send(path, 0, asked=asked, queue_id=1).ext == first.ext
            assert len(path.stored(aside, queue_id)) == 1

    def test_records_are_found_across_files_and_pieces(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("cometmq.broker.idempotence_marks.CHUNK_BYTES", 1000)
        with opened(tmp_path) as path:
            for number in range(8):
                send(path, number, b"x" * 300_000)
                path.send(b"plain" * number * 100)

        with opened(tmp_path) as path:
            assert [mark.sequence for mark in marks_since(path.store, 0)] == list(range(8))
        assert CHUNK_BYTES > 1000

    def test_a_new_epoch_is_found(self, tmp_path: Path) -> None:
        with opened(tmp_path) as path:
            send(path, 0)
            send(path, 7 * EPOCH)

        with opened(tmp_path) as path:
            assert send(path, 7 * EPOCH + 1).code == ResponseCode.SUCCESS
            assert send(path, 1).code == ResponseCode.SEQUENCE_TOO_OLD

    def test_who_was_forgotten_and_began_again_is_where_he_began_again(
        self, tmp_path: Path
    ) -> None:
        with opened(tmp_path) as path:
            assert path.idempotent is not None
            send(path, 0)
            send(path, 1)
            path.idempotent.forget_topic(TOPIC)
            send(path, 0)

        with opened(tmp_path) as path:
            assert send(path, 1).ext["queueOffset"] == "3"


class TestCopies:
    """A mark counts only where it was made."""

    def test_a_plain_send_with_a_copied_mark_is_nobodys(self, tmp_path: Path) -> None:
        with opened(tmp_path) as path:
            send(path, 0, b"a")
            (item,) = path.stored()
            path.send(b"a", text=item.properties.decode())
            path.send(b"a", text=item.properties.decode(), topic="copies")

        with opened(tmp_path) as path:
            assert [mark.sequence for mark in marks_since(path.store, 0)] == [0]
            assert send(path, 0, topic="copies").ext["queueOffset"] == "1"

    def test_a_message_that_is_handed_on_gets_a_mark_of_its_own(self, tmp_path: Path) -> None:
        with opened(tmp_path) as path:
            send(path, 0, b"a")
            (item,) = path.stored()
            send(path, 0, b"a", text=item.properties.decode(), topic="copies", who="q")
            (copy,) = path.stored("copies")

            mark = mark_of(copy)

            assert mark is not None
            assert (mark.producer_id, mark.topic) == ("q", "copies")

    @pytest.mark.parametrize(
        "value", ["p:0:00000000", "p:0", "p:x:00000000", ":0:00000000", "p:0:0000000g", "p"]
    )
    def test_what_only_looks_like_a_mark_is_none(self, tmp_path: Path, value: str) -> None:
        with opened(tmp_path) as path:
            path.send(asked={PROPERTY: value})

            (item,) = path.stored()

            assert isinstance(item, Record)
            assert mark_of(item) is None
            assert list(marks_since(path.store, 0)) == []


class TestCutBatch:
    @pytest.mark.parametrize("kept", range(1, 4))
    def test_a_batch_of_which_a_crash_left_the_begin_is_completed(
        self, tmp_path: Path, kept: int
    ) -> None:
        texts = [b"a", b"b", b"c", b"d"]
        with opened(tmp_path / "whole") as path:
            send_batch(path, 0, *texts, queue_id=2)
            offsets = [item.physical_offset for item in path.stored(queue_id=2)]
            log = bytes(path.store.read_raw(0, offsets[kept]))
        with opened(tmp_path / "cut") as path:
            path.store.append_raw(0, log)
        with opened(tmp_path / "cut") as path:
            # The table was made before these bytes came; as if the crash had been just now.
            SnapshotFile(tmp_path / "cut").save(Snapshot(0, []))
        with opened(tmp_path / "cut") as path:
            path.send(b"somebody else's", queue_id=2)

            first = send_batch(path, 0, *texts, queue_id=3)
            again = send_batch(path, 0, *texts, queue_id=3)

            found = bodies(path, queue_id=2)
            assert found == [*texts[:kept], b"somebody else's", *texts[kept:]]
            assert bodies(path, queue_id=3) == []
            assert first.ext == again.ext
            assert (first.ext["queueId"], first.ext["queueOffset"]) == ("2", "0")
            assert first.ext["msgId"].count(",") == 3
            assert [mark.sequence for mark in marks_since(path.store, 0)] == [0, 1, 2, 3]


class TestSaved:
    def test_there_is_a_file_from_the_first_start_on(self, tmp_path: Path) -> None:
        with DataPath(tmp_path) as path:
            path.send()
            end = path.store.log_end

        with opened(tmp_path):
            assert saved(tmp_path) == Snapshot(end, [])

    @pytest.mark.parametrize(
        ("deleted", "code"),
        [
            ([NAME], ResponseCode.SUCCESS),
            ([NAME, f"{NAME}.bak"], ResponseCode.PRODUCER_UNKNOWN),
        ],
        ids=["the file alone", "the file and its backup"],
    )
    def test_who_deletes_file_and_backup_forgets_all_producers(
        self, tmp_path: Path, deleted: list[str], code: ResponseCode
    ) -> None:
        with opened(tmp_path) as path:
            send(path, 0)
            path.store.flush()
            save(path)
            save(path)
        for name in deleted:
            (tmp_path / FOLDER / name).unlink()

        with opened(tmp_path) as path:
            assert send(path, 1).code == code

    def test_what_a_power_cut_took_is_stored_again(self, tmp_path: Path) -> None:
        with opened(tmp_path / "log") as path:
            send(path, 0, b"a")
            path.send(b"between")
            path.store.flush()
            on_disk = bytes(path.store.read_raw(0, 1 << 20))
            send(path, 1, b"b")
            save(path)
        with opened(tmp_path / "after") as path:
            path.store.append_raw(0, on_disk)
        shutil.copytree(
            tmp_path / "log" / "config", tmp_path / "after" / "config", dirs_exist_ok=True
        )

        with opened(tmp_path / "after") as path:
            assert send(path, 0, b"a").ext["queueOffset"] == "0"
            assert send(path, 1, b"b").ext["queueOffset"] == "2"
            assert bodies(path) == [b"a", b"between", b"b"]

    def test_of_a_log_that_was_cut_only_what_is_there_counts(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with opened(tmp_path) as path:
            send(path, 0)
            path.send()
            send(path, 1)
            path.store.flush()
            save(path)
        shutil.rmtree(tmp_path / "commitlog")
        shutil.rmtree(tmp_path / "consumequeue")
        shutil.rmtree(tmp_path / "index")

        with caplog.at_level(logging.WARNING), opened(tmp_path) as path:
            assert send(path, 0).ext["queueOffset"] == "0"
            assert saved(tmp_path).offset == 0
        assert any("idempotent sends are known to" in line for line in caplog.messages)

    def test_the_table_is_saved_with_every_send_and_when_a_topic_goes(self, tmp_path: Path) -> None:
        calls = []
        with opened(tmp_path) as path:
            assert path.idempotent is not None
            path.idempotent.on_dirty = lambda: calls.append(1)
            send(path, 0)
            send(path, 0)
            assert len(calls) == 1

            path.idempotent.forget_topic(TOPIC)
            path.idempotent.forget_topic("unknown")

            assert len(calls) == 2


def test_a_mark_is_read_with_record_checksums_too(tmp_path: Path) -> None:
    with opened(tmp_path, store={"is_record_crc_appended": True}) as path:
        first = send(path, 0).ext, send_batch(path, 1, b"a", b"b").ext

    with opened(tmp_path, store={"is_record_crc_appended": True}) as path:
        assert (send(path, 0).ext, send_batch(path, 1, b"a", b"b").ext) == first


def test_plain_messages_are_not_read_one_by_one(tmp_path: Path) -> None:
    with opened(tmp_path) as path:
        path.send_frames(*(sending(b"x" * 50) for _ in range(2000)))
        path.store.put(NewMessage(TOPIC, 0, b"last"))

        assert list(marks_since(path.store, 0)) == []
        assert isinstance(path.idempotent, IdempotentSends)
        assert properties.decode(path.stored()[0].properties).get(PROPERTY) is None


def test_the_table_is_saved_when_what_it_calls_stored_is_on_disk(tmp_path: Path) -> None:
    with opened(tmp_path) as path:
        send(path, 0)
        path.store.flush()
        for number in range(1, 43):  # more than are remembered, others between them
            send(path, number)
            path.send(b"plain")
        assert path.store.watermarks.flushed < path.store.log_end

        snapshot = save(path)

        assert path.store.watermarks.flushed >= snapshot.offset
        assert [entry.last for entry in snapshot.entries] == [42]
