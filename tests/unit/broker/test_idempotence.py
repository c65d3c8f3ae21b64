"""Idempotent sends: a repeat is answered as the first time, and nothing is stored twice."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.idempotence import BATCH_COUNT_MAX
from cometmq.broker.idempotence_marks import PROPERTY
from cometmq.codec import batch, properties
from cometmq.codec.batch import BatchItem
from cometmq.codec.codes import ResponseCode
from cometmq.codec.headers.send import SendMessage
from cometmq.codec.queue_entry import ENTRY_BYTES
from cometmq.model.system_names import TIMER_TOPIC
from cometmq.model.topic import SCHEDULE_TOPIC
from cometmq.store.config import FlushMode
from tests.unit.broker.data_path import TOPIC, DataPath, sending
from tests.unit.broker.fake_channel import Reply

EPOCH = 1 << 32
ALL_HOURS = tuple(f"{hour:02d}" for hour in range(24))
HOUR_SECONDS = 3600
MINUTE_SECONDS = 60


@pytest.fixture
def path(tmp_path: Path) -> Iterator[DataPath]:
    with opened(tmp_path) as path:
        yield path


def opened(folder: Path, **changes: Any) -> DataPath:
    return DataPath(folder, has_idempotence=True, **changes)


def send(
    path: DataPath, sequence: int | str, body: bytes = b"hello", *, who: str = "p", **changes: Any
) -> Reply:
    return path.send(body, producer_id=who, sequence=str(sequence), **changes)


def send_batch(path: DataPath, first: int, *texts: bytes, who: str = "p", **changes: Any) -> Reply:
    body = batch.encode(BatchItem(0, text, b"TAGS\x01red") for text in texts)
    return send(path, first, body, who=who, batch=True, **changes)


def bodies(path: DataPath, topic: str = TOPIC, queue_id: int = 0) -> list[bytes]:
    return [item.body for item in path.stored(topic, queue_id)]


def watched_reads(path: DataPath, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Log positions from which records are read from now on."""
    read: list[int] = []
    record_at = path.store.record_at

    def watched(offset: int) -> memoryview | None:
        read.append(offset)
        return record_at(offset)

    monkeypatch.setattr(path.store, "record_at", watched)
    return read


class TestRepeats:
    @pytest.mark.parametrize("kind", ["short", "long"])
    def test_a_repeat_is_answered_as_the_first_time(self, path: DataPath, kind: str) -> None:
        names: dict[str, Any] = {"kind": SendMessage} if kind == "long" else {}
        path.send(b"somebody else's")

        first = send(path, 0, b"a", **names)
        again = send(path, 0, b"a", **names)

        assert first.code == ResponseCode.SUCCESS
        assert (again.code, again.ext) == (first.code, first.ext)
        assert bodies(path) == [b"somebody else's", b"a"]

    def test_the_first_result_counts_not_what_the_repeat_asks_for(self, path: DataPath) -> None:
        first = send(path, 0, queue_id=2)

        again = send(path, 0, queue_id=3, text=properties.encode({"UNIQ_KEY": "another"}))

        assert again.ext == first.ext
        assert bodies(path, queue_id=3) == []

    def test_a_key_that_the_broker_made_is_the_same_again(self, path: DataPath) -> None:
        first = send(path, 0, text="")

        assert send(path, 0, text="").ext == first.ext
        assert first.ext["transactionId"]

    def test_a_batch_is_answered_with_all_its_ids(self, path: DataPath) -> None:
        send(path, 0, b"before")
        first = send_batch(path, 1, b"a", b"b", b"c")
        path.send(b"between")

        again = send_batch(path, 1, b"a", b"b", b"c")

        assert again.ext == first.ext
        assert first.ext["msgId"].count(",") == 2
        assert bodies(path) == [b"before", b"a", b"b", b"c", b"between"]

    def test_messages_may_be_grouped_otherwise_when_they_are_repeated(self, path: DataPath) -> None:
        ids = [
            send_batch(path, 0, b"a", b"b").ext["msgId"],
            send_batch(path, 2, b"c", b"d", queue_id=1).ext["msgId"],
        ]

        again = send_batch(path, 1, b"b", b"c", b"d")

        wanted = ",".join(ids).split(",")[1:]
        assert again.ext["msgId"] == ",".join(wanted)
        assert (again.ext["queueId"], again.ext["queueOffset"]) == ("0", "1")
        assert bodies(path) + bodies(path, queue_id=1) == [b"a", b"b", b"c", b"d"]

    def test_producers_and_topics_count_for_themselves(self, path: DataPath) -> None:
        send(path, 0, b"a")
        send(path, 0, b"b", who="q")
        send(path, 0, b"c", topic="other")

        assert bodies(path) == [b"a", b"b"]
        assert bodies(path, "other") == [b"c"]

    def test_sends_without_a_sequence_are_stored_as_often_as_they_come(
        self, path: DataPath
    ) -> None:
        path.send(b"a")
        path.send(b"a")

        assert bodies(path) == [b"a", b"a"]

    def test_of_one_read_too(self, path: DataPath) -> None:
        frames = [sending(b"a", producer_id="p", sequence="0") for _ in range(3)]

        replies = path.send_frames(sending(b"plain"), *frames, sending(b"plain"))

        assert len({tuple(reply.ext.items()) for reply in replies[1:4]}) == 1
        assert bodies(path) == [b"plain", b"a", b"plain"]

    def test_a_delayed_message_is_put_aside_once(self, path: DataPath) -> None:
        first = send(path, 0, asked={"DELAY": "3"}, queue_id=1)

        assert send(path, 0, asked={"DELAY": "3"}, queue_id=1).ext == first.ext
        assert len(path.stored(SCHEDULE_TOPIC, 2)) == 1

    def test_so_is_one_with_a_time_of_its_own(self, path: DataPath) -> None:
        first = send(path, 0, asked={"TIMER_DELAY_MS": "60000"}, queue_id=1)
        path.clock.advance(5)

        again = send(path, 0, asked={"TIMER_DELAY_MS": "60000"}, queue_id=1)

        assert first.ext["recallHandle"]
        assert again.ext == first.ext
        assert len(path.stored(TIMER_TOPIC)) == 1

    def test_a_repeat_waits_for_the_disk_as_the_first_did(self, tmp_path: Path) -> None:
        with opened(tmp_path, store={"flush_mode": FlushMode.SYNC_FLUSH}) as path:
            frames = [sending(b"a", producer_id="p", sequence="0") for _ in range(2)]
            assert path.send_frames(*frames) == []

            path.store.flush()
            path.loop.turn()

            first, again = path.later()
            assert first.ext == again.ext

    def test_a_repeat_is_answered_when_no_message_is_taken_any_more(self, path: DataPath) -> None:
        first = send(path, 0)

        path.store.watermarks.fail("the disk is broken")
        path.store.flush_step()

        assert send(path, 0).ext == first.ext
        assert send(path, 1).code == ResponseCode.SERVICE_NOT_AVAILABLE


class TestLookingUp:
    """Where the messages of a run are is said by their queue, not by walking over them."""

    def test_a_repeat_reads_one_record_wherever_in_a_run_it_is(
        self, path: DataPath, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = [send(path, number).ext for number in range(100)]
        read = watched_reads(path, monkeypatch)

        again = [send(path, number).ext for number in range(100)]

        assert again == first
        assert len(read) == 100

    def test_so_does_a_repeated_batch(
        self, path: DataPath, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        texts = [b"%d" % number for number in range(50)]
        first = send_batch(path, 0, *texts).ext
        read = watched_reads(path, monkeypatch)

        assert send_batch(path, 0, *texts).ext == first
        assert send_batch(path, 30, *texts[30:]).ext["queueOffset"] == "30"
        assert len(read) == 2

    def test_what_is_not_in_its_queue_yet_is_put_there_first(self, path: DataPath) -> None:
        frames = [sending(b"a", producer_id="p", sequence=str(number)) for number in range(20)]

        replies = path.send_frames(*frames, *frames)

        assert [reply.ext for reply in replies[20:]] == [reply.ext for reply in replies[:20]]
        assert len(bodies(path)) == 20

    def test_if_it_cannot_be_the_producer_is_told_to_ask_again(
        self, path: DataPath, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        frames = [sending(b"a", producer_id="p", sequence=str(number)) for number in (0, 1, 1)]
        with monkeypatch.context() as stuck:
            stuck.setattr(path.store, "dispatch", lambda: 0)
            replies = path.send_frames(*frames)

        path.store.dispatch()

        codes = [reply.code for reply in replies]
        assert codes == [ResponseCode.SUCCESS] * 2 + [ResponseCode.SYSTEM_BUSY]
        assert send(path, 1).ext == replies[1].ext

    def test_messages_in_several_files_of_a_queue_are_found(self, tmp_path: Path) -> None:
        with opened(tmp_path, store={"queue_file_bytes": 8 * ENTRY_BYTES}) as path:
            texts = [b"%d" % number for number in range(30)]
            first = send_batch(path, 0, *texts).ext

            assert send_batch(path, 0, *texts).ext == first
            assert send(path, 29).ext["queueOffset"] == "29"

    def test_delayed_messages_are_looked_up_where_they_wait(self, tmp_path: Path) -> None:
        asked: list[dict[str, str]] = [{"DELAY": "3"}] * 3 + [{}] * 3 + [{"DELAY": "4"}] * 3
        with opened(tmp_path) as path:
            for _ in range(3):
                path.send()
            first = [send(path, number, asked=item).ext for number, item in enumerate(asked)]

            again = [send(path, number, asked=item).ext for number, item in enumerate(asked)]

        with opened(tmp_path) as path:
            later = [send(path, number, asked=item).ext for number, item in enumerate(asked)]
        assert again == first
        assert later == first

    def test_a_queue_that_is_gone_or_another_one_says_nothing(self, path: DataPath) -> None:
        for number in range(3):
            send(path, number)

        path.store.delete_topic(TOPIC)
        gone = send(path, 2).code
        for _ in range(3):
            path.send(b"another")

        assert gone == ResponseCode.SEQUENCE_ALREADY_STORED
        assert send(path, 2).code == ResponseCode.SEQUENCE_ALREADY_STORED


class TestOrder:
    def test_a_gap_is_refused_until_what_is_missing_came(self, path: DataPath) -> None:
        send(path, 0, b"a")

        early = send(path, 2, b"c")

        assert early.code == ResponseCode.SEQUENCE_OUT_OF_ORDER
        assert send(path, 1, b"b").code == send(path, 2, b"c").code == ResponseCode.SUCCESS
        assert bodies(path) == [b"a", b"b", b"c"]

    def test_a_producer_that_is_not_known_begins_with_number_0(self, path: DataPath) -> None:
        assert send(path, 1).code == ResponseCode.PRODUCER_UNKNOWN
        assert send(path, 5 * EPOCH + 1).code == ResponseCode.PRODUCER_UNKNOWN
        assert send(path, 5 * EPOCH).code == ResponseCode.SUCCESS

    def test_a_higher_epoch_begins_at_any_time_and_ends_the_one_before(
        self, path: DataPath
    ) -> None:
        send(path, 0, b"a")
        send(path, 3 * EPOCH, b"b")
        send(path, 3 * EPOCH + 1, b"c")

        assert send(path, 4 * EPOCH + 1).code == ResponseCode.SEQUENCE_OUT_OF_ORDER
        assert send(path, 1).code == ResponseCode.SEQUENCE_TOO_OLD
        assert send(path, 0).code == ResponseCode.SUCCESS, "still remembered"
        assert bodies(path) == [b"a", b"b", b"c"]

    @pytest.mark.parametrize(
        ("who", "sequence"),
        [
            (None, "0"),
            ("p", None),
            ("p", "-1"),
            ("p", "one"),
            ("p", str(1 << 63)),
            ("p", "1" * 5000),
            ("a b", "0"),
            ("ä", "0"),
            ("p" * 201, "0"),
            ("p", str(EPOCH - 1)),
        ],
    )
    def test_what_makes_no_sense_is_refused(
        self, path: DataPath, who: str | None, sequence: str | None
    ) -> None:
        path.send()

        reply = path.send(producer_id=who, sequence=sequence)

        assert reply.code == ResponseCode.INVALID_PARAMETER
        assert len(path.stored()) == 1

    def test_a_batch_that_is_none_is_refused(self, path: DataPath) -> None:
        assert send(path, 0, b"none", batch=True).code == ResponseCode.MESSAGE_ILLEGAL
        assert send_batch(path, 0, b"a").code == ResponseCode.SUCCESS

    def test_a_batch_that_gets_too_large_by_its_marks_is_refused(self, path: DataPath) -> None:
        body = batch.encode([BatchItem(0, b"a", b"K\x01" + b"v" * 32_760)])

        assert send(path, 0, body, batch=True).code == ResponseCode.MESSAGE_ILLEGAL
        assert bodies(path) == []

    def test_a_batch_of_too_many_messages_is_refused_before_it_is_looked_at(
        self, path: DataPath
    ) -> None:
        broken = b"\0\0\0\x16" + b"\xff" * 18

        most = send(path, 0, broken * BATCH_COUNT_MAX, batch=True)
        more = send(path, 0, broken * (BATCH_COUNT_MAX + 1), batch=True)

        assert most.code == more.code == ResponseCode.MESSAGE_ILLEGAL
        assert "at most 10000 messages" not in str(most.remark)
        assert "at most 10000 messages" in str(more.remark)

    def test_so_is_one_that_does_not_fit_with_its_marks(self, tmp_path: Path) -> None:
        broken = b"\0\0\0\x16" + b"\xff" * 18
        with opened(tmp_path, store={"message_bytes_max": 1000}) as path:
            reply = send(path, 0, broken * 40, batch=True)

        assert reply.code == ResponseCode.MESSAGE_ILLEGAL
        assert "batch of 880 bytes and its marks, the most is 1000" in str(reply.remark)

    @pytest.mark.parametrize(
        "body", [b"", b"\0", b"\0\0\0\0", b"\0\0\0\x17" + b"\0" * 18, b"\0\0\0\x01" * 4]
    )
    def test_so_is_one_whose_sizes_do_not_add_up(self, path: DataPath, body: bytes) -> None:
        assert send(path, 0, body, batch=True).code == ResponseCode.MESSAGE_ILLEGAL
        assert bodies(path) == []


class TestWindow:
    def test_what_is_not_remembered_is_refused_and_not_stored(self, tmp_path: Path) -> None:
        with opened(tmp_path, idempotent_sends_remembered=2) as path:
            for number in range(4):
                send(path, number, queue_id=number % 2)

            codes = [send(path, number).code for number in range(4)]

            assert codes == [ResponseCode.SEQUENCE_ALREADY_STORED] * 2 + [ResponseCode.SUCCESS] * 2
            assert len(bodies(path) + bodies(path, queue_id=1)) == 4

    def test_of_what_a_lone_producer_sends_more_is_remembered(self, tmp_path: Path) -> None:
        with opened(tmp_path, idempotent_sends_remembered=1) as path:
            first = [send(path, number).ext for number in range(20)]

            assert [send(path, number).ext for number in range(20)] == first

    def test_a_result_goes_with_its_log_file(self, tmp_path: Path) -> None:
        store = {"retention_hours": 0, "deletion_hours": ALL_HOURS}
        with opened(tmp_path, store=store) as path:
            send(path, 0, b"a")
            for number in range(1, 5):
                send(path, number, b"x" * 500_000)
            path.store.flush()
            path.clock.advance(10**6 * HOUR_SECONDS)
            path.store.clean()

            assert send(path, 0, b"a").code == ResponseCode.SEQUENCE_ALREADY_STORED
            assert send(path, 4, b"x" * 500_000).code == ResponseCode.SUCCESS

    def test_producers_are_counted_and_no_more_taken_than_fit(self, tmp_path: Path) -> None:
        with opened(tmp_path, idempotent_producers_max=2) as path:
            send(path, 0, who="a")
            path.clock.advance(1)
            send(path, 0, who="b")

            assert send(path, 0, who="c").code == ResponseCode.PRODUCERS_FULL
            assert send(path, 1, who="a").code == ResponseCode.SUCCESS

    def test_who_has_been_silent_for_minutes_makes_room(self, tmp_path: Path) -> None:
        with opened(tmp_path, idempotent_producers_max=2) as path:
            send(path, 0, who="a")
            send(path, 0, who="b")
            path.clock.advance(10 * MINUTE_SECONDS)
            send(path, 0, who="a")
            send(path, 1, who="a")

            assert send(path, 0, who="c").code == ResponseCode.SUCCESS
            assert send(path, 1, who="b").code == ResponseCode.PRODUCER_UNKNOWN
            assert send(path, 2, who="a").code == ResponseCode.SUCCESS

    def test_a_repeat_counts_as_a_sign_of_life(self, tmp_path: Path) -> None:
        with opened(tmp_path, idempotent_producers_max=2) as path:
            send(path, 0, who="a")
            send(path, 0, who="b")
            path.clock.advance(9 * MINUTE_SECONDS)
            send(path, 0, who="a")
            path.clock.advance(MINUTE_SECONDS)
            send(path, 0, who="c")

            assert send(path, 1, who="a").code == ResponseCode.SUCCESS
            assert send(path, 1, who="b").code == ResponseCode.PRODUCER_UNKNOWN

    def test_one_that_is_not_used_is_kept_for_a_week_while_there_is_room(
        self, path: DataPath
    ) -> None:
        assert path.idempotent is not None
        send(path, 0, who="a")
        path.clock.advance(167 * HOUR_SECONDS)
        send(path, 0, who="b")
        assert path.idempotent.producer_count == 2
        path.clock.advance(HOUR_SECONDS)

        send(path, 0, who="c")

        assert send(path, 1, who="a").code == ResponseCode.PRODUCER_UNKNOWN
        assert send(path, 1, who="b").code == ResponseCode.SUCCESS

    def test_a_deleted_topic_is_forgotten(self, path: DataPath) -> None:
        assert path.idempotent is not None
        send(path, 0)

        path.idempotent.forget_topic(TOPIC)

        assert path.idempotent.producer_count == 0
        assert send(path, 0).ext["queueOffset"] == "1"


class TestProperty:
    def test_every_message_carries_its_own_sequence(self, path: DataPath) -> None:
        send_batch(path, 0, b"a", b"b")
        send(path, 2, b"c")

        values = [properties.decode(item.properties)[PROPERTY] for item in path.stored()]

        assert [value.rpartition(":")[0] for value in values] == ["p:0", "p:1", "p:2"]

    def test_other_properties_stay_as_they_were(self, path: DataPath) -> None:
        path.send()
        send(path, 0)

        plain, marked = (properties.decode(item.properties) for item in path.stored())
        del marked[PROPERTY]
        assert marked == plain
