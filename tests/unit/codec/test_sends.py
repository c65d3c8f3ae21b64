"""Plain sends are taken as the plain code takes them, whichever core is active."""

import mmap
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from cometmq.codec import command as commands
from cometmq.codec import core, digest, record, sends, tails
from cometmq.codec.codes import RequestCode
from cometmq.codec.command import Command, CommandFlag
from cometmq.codec.headers.send import SendMessage, SendMessageResponse, SendMessageV2

HOST = record.pack_host("10.0.0.5", 10911)
SENDER = record.pack_host("10.0.0.9", 40001)
SENDER_V6 = record.pack_host("2001:db8::1", 40001)
PREFIX = HOST.hex().upper()
ADDITION = b"CLUSTER\x01c\x02"
FILE_BYTES = 64 * 1024
USUAL = "UNIQ_KEY\x01A1\x02TAGS\x01red\x02"
CHOICES: dict[str, list[Any]] = {
    "oneway": [True],
    "topic": ["shrunk", "special"],
    "queue_id": [1, 2, 3, -1],
    "sys_flag": [1, 0x301, 4],
    "born_timestamp": [-1, 0, 1_794_780_011_177, 2**63 - 1],
    "flag": [-1, 3, 5000],
    "reconsume_times": [None, 3, 2000],
    "max_reconsume_times": [3],
    "batch": [False, True],
    "unit_mode": [False, True],
    "properties": [
        "",
        USUAL + "a\x01b",
        USUAL + "WAIT\x01false\x02",
        USUAL + "DELAY\x013\x02",
        "KEYS\x01a b\x02" + USUAL,
        "UNIQ_KEY\x01\x02" + USUAL,
        USUAL + "UNIQ_KEY\x01B2\x02",
        "UNIQ_KEY\x01\x7f\x02",
        "UNIQ_KEY\x01A1",
        "NOT_UNIQ_KEY\x01A1\x02",
        "x" * 200 + "\x02" + USUAL,
    ],
}
"""What may be unusual about a send."""


class Result(NamedTuple):
    """What the store makes of an append."""

    ok: str
    physical_offset: int
    end: int
    queue_offset: int
    time_ms: int


class Topic:
    """A topic without special rules."""

    def __init__(self, queue_count: int) -> None:
        self.queue_count = queue_count
        self.put_count = 0
        self.put_bytes = 0


class Place:
    """A log with two topics; the second has queues that it should no longer have."""

    def __init__(self, kind: Any, log_kind: Any, queue_kind: Any) -> None:
        self.log = log_kind(300, 6000, lambda: 7_000_999_999, Result, "ok")
        self.log.target = mmap.mmap(-1, FILE_BYTES)
        self.log.base = 3 * FILE_BYTES
        self.log.room_end = self.log.attention = FILE_BYTES - 8
        self.queues = {
            name: {number: queue_kind(name.encode()) for number in range(3)}
            for name in ("orders", "shrunk", "special")
        }
        self.topics = {"orders": Topic(3), "shrunk": Topic(1), "unused": Topic(4)}
        self.tail = kind(
            self.log, self.queues, self.topics, ADDITION, HOST, PREFIX, core.read, answer
        )

    def take(
        self, sent: Sequence[Command], begin: int = 0, *, born_host: bytes = SENDER
    ) -> tuple[int, list[bytes]]:
        heads: list[bytes] = []
        flags = 0x10 if len(born_host) == 20 else 0
        return self.tail.take(sent, begin, SendMessageV2, born_host, flags, heads), heads

    def facts(self) -> list[Any]:
        counts = [(topic.put_count, topic.put_bytes) for topic in self.topics.values()]
        ends = [queue.next_offset for ids in self.queues.values() for queue in ids.values()]
        log = self.log
        return [log.target[:], log.position, log.end, log.timestamp, counts, ends]

    def written(self) -> list[record.Record]:
        with memoryview(self.log.target) as view:
            return list(record.parse_all(view[: self.log.position]))


def active() -> Place:
    return Place(core.SendTail, core.LogTail, core.QueueTail)


def plain() -> Place:
    return Place(sends.SendTail, tails.LogTail, tails.QueueTail)


def answer(form: int, opaque: int, message_id: str, queue: int, offset: int, key: str) -> bytes:
    header = SendMessageResponse(message_id, queue, offset, key, "region", "true")
    return core.encode_head(form, 0, opaque, 1, None, header, 0)


def send(body: bytes = b"hello", **changes: Any) -> Command:
    """A send as it comes from the wire."""
    ((command,), _) = core.decode_frames(sent_frame(body, **changes))
    return command


def sent_frame(
    body: bytes, *, opaque: int = 1, form: int = 0, oneway: bool = False, **changes: Any
) -> bytes:
    fields: dict[str, Any] = {
        "producer_group": "g", "topic": "orders", "default_topic": "TBW102",
        "default_topic_queue_nums": 4, "queue_id": 0, "sys_flag": 0, "born_timestamp": 5,
        "flag": 0, "properties": USUAL, **changes,
    }  # fmt: skip
    return commands.encode(
        Command(
            RequestCode.SEND_MESSAGE_V2,
            opaque=opaque,
            flag=CommandFlag.ONEWAY if oneway else 0,
            serialization=form,
            ext=SendMessageV2(**fields).to_ext(),
            body=body,
        )
    )


@pytest.mark.parametrize("form", [0, 1])
def test_a_plain_send_is_stored_and_answered(form: int) -> None:
    place = active()

    end, heads = place.take([send(b"a", form=form, queue_id=2, flag=9, reconsume_times=3)])

    (item,) = place.written()
    ((said,), _) = core.decode_frames(b"".join(heads))
    assert end == 1
    assert (item.topic, item.queue_id, item.queue_offset, item.body) == ("orders", 2, 0, b"a")
    assert (item.flag, item.reconsume_times, item.born_timestamp) == (9, 3, 5)
    assert (item.born_host, item.store_host, item.store_timestamp) == (SENDER, HOST, 7000)
    assert item.properties == USUAL.encode() + ADDITION
    assert (said.code, said.opaque, said.flag, said.serialization) == (0, 1, 1, form)
    assert core.read(said, SendMessageResponse) == SendMessageResponse(
        f"{PREFIX}{3 * FILE_BYTES:016X}", 2, 0, "A1", "region", "true"
    )
    assert place.topics["orders"].put_count == 1
    assert place.topics["orders"].put_bytes == place.log.position


@pytest.mark.parametrize("form", [0, 1])
@pytest.mark.parametrize("opaque", [0, 7, -1, -(2**31), 2**31 - 1])
def test_answers_are_those_of_the_general_writer(form: int, opaque: int) -> None:
    place = active()
    place.queues["orders"][1].next_offset = 12_345_678_901

    _, heads = place.take([send(form=form, opaque=opaque, queue_id=1)])

    message_id = f"{PREFIX}{3 * FILE_BYTES:016X}"
    assert heads == [answer(form, opaque, message_id, 1, 12_345_678_901, "A1")]


def test_a_one_way_send_gets_no_answer() -> None:
    place = active()

    assert place.take([send(oneway=True)]) == (1, [])
    assert len(place.written()) == 1


def test_a_sender_may_have_an_ipv6_address() -> None:
    place = active()

    place.take([send()], born_host=SENDER_V6)

    (item,) = place.written()
    assert item.born_host == SENDER_V6


@pytest.mark.parametrize(
    "odd",
    [
        {"topic": "unknown"},
        {"topic": "special"},
        {"topic": "unused"},
        {"topic": "shrunk", "queue_id": 1},
        {"queue_id": 3},
        {"queue_id": -1},
        {"sys_flag": 4},
        {"sys_flag": 0x10},
        {"sys_flag": 0x80},
        {"batch": True},
        {"properties": None},
        {"properties": "TAGS\x01red\x02"},
        {"properties": USUAL + "DELAY\x011\x02"},
        {"properties": USUAL + "CLUSTER\x01x\x02"},
        {"properties": 'UNIQ_KEY\x01a"b\x02'},
        {"properties": "UNIQ_KEY\x01ключ\x02"},
        {"properties": f"UNIQ_KEY\x01{'k' * 2000}\x02"},
        {"body": b""},
        {"body": bytes(301)},
    ],
    ids=str,
)
def test_the_first_that_is_not_plain_ends_it(odd: dict[str, Any]) -> None:
    place = active()
    sent = [send(b"first"), send(**odd), send(b"last")]

    end, heads = place.take(sent)

    assert (end, len(heads)) == (1, 1)
    assert [item.body for item in place.written()] == [b"first"]
    assert place.take(sent, 2)[0] == 3


def test_it_ends_where_the_file_has_no_room() -> None:
    place = active()
    place.log.attention = 1

    end, heads = place.take([send(), send()])

    assert (end, len(heads)) == (1, 1)


def test_without_a_file_nothing_is_taken() -> None:
    place = active()
    place.log.target = None

    assert place.take([send()]) == (0, [])


def test_a_header_that_cannot_be_read_ends_it() -> None:
    broken = Command(RequestCode.SEND_MESSAGE_V2, ext={"b": "orders"}, body=b"x")

    assert active().take([broken]) == (0, [])


def random_frames(chance: random.Random) -> bytes:
    """Sends most of which have nothing unusual, and few more than one thing."""
    frames = []
    for _ in range(40):
        odd = chance.sample(sorted(CHOICES), chance.choice([0, 1, 1, 2]))
        fields = {
            "form": chance.choice([0, 0, 0, 1]),
            "opaque": chance.randrange(-(2**31), 2**31),
            "reconsume_times": 0,
            **{name: chance.choice(CHOICES[name]) for name in odd},
        }
        frames.append(sent_frame(chance.randbytes(chance.choice([1, 50, 300, 301])), **fields))
    return b"".join(frames)


@pytest.mark.parametrize("seed", range(60))
def test_both_cores_do_the_same_and_so_do_both_ways_of_the_plain_one(seed: int) -> None:
    """The quick way of the plain core is for headers in their texts, the other for all."""
    frames = random_frames(random.Random(seed))
    read_by_active, _ = core.decode_frames(frames)
    read_by_plain, _ = commands.decode_frames(frames)
    read_to_fields, _ = commands.decode_frames(frames)
    for command in read_to_fields:
        assert command.ext_fields
    one, other, third = active(), plain(), plain()

    for begin in range(len(read_by_active)):
        taken = one.take(read_by_active, begin)
        assert taken == other.take(read_by_plain, begin), f"seed {seed}"
        assert taken == third.take(read_to_fields, begin), f"seed {seed}"

    assert one.written()
    assert one.facts() == other.facts() == third.facts()


@pytest.mark.parametrize("seed", range(20))
def test_what_the_quick_way_notes_for_the_dispatch_is_what_the_log_says(seed: int) -> None:
    place = plain()
    sent, _ = commands.decode_frames(random_frames(random.Random(seed)))

    for begin in range(len(sent)):
        place.take(sent, begin)

    log = place.log
    walk = digest.walk(log.target, 0, log.position, log.base, 1 << 20, False)
    assert log.fresh
    assert set(log.fresh) <= set(walk.digests)
    assert sorted(log.fresh, key=lambda noted: noted[3]) == list(log.fresh)


def test_as_many_are_noted_for_the_dispatch_as_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sends, "FRESH_MAX", 2)
    place = plain()
    sent, _ = commands.decode_frames(sent_frame(b"x", reconsume_times=0) * 5)

    end, _ = place.take(sent)

    assert end == 5
    assert len(place.log.fresh) == 2


def test_messages_with_long_keys_are_not_noted_for_the_dispatch() -> None:
    place = plain()
    properties = f"UNIQ_KEY\x01A1\x02KEYS\x01{'k ' * 200}\x02"
    sent, _ = commands.decode_frames(sent_frame(b"x", reconsume_times=0, properties=properties))

    end, _ = place.take(sent)

    assert end == 1
    assert not place.log.fresh


def test_a_topic_too_long_for_the_usual_record_is_stored_in_the_other() -> None:
    name = "t" * 200
    place = plain()
    place.queues[name] = {0: tails.QueueTail(name.encode())}
    place.topics[name] = Topic(1)
    sent, _ = commands.decode_frames(sent_frame(b"x", topic=name, reconsume_times=0))

    end, _ = place.take(sent)

    assert end == 1
    assert [item.topic for item in place.written()] == [name]


def test_the_header_with_long_names_is_taken_too() -> None:
    place = active()
    fields = SendMessage("g", "orders", "TBW102", 4, 0, 0, 5, 0, USUAL)
    command = Command(RequestCode.SEND_MESSAGE, ext=fields.to_ext(), body=b"x")

    assert place.tail.take([command], 0, SendMessage, SENDER, 0, []) == 1
