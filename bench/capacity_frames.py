"""What the capacity generator sends: requests encoded before the clock runs, as Java clients do.

A load is described by a few numbers; from them come the requests, in a ring that is walked for as
long as the load lasts. Requests after each other lie after each other in memory, so that any run
of them is sent with one call.
"""

import json
import random
import string
import struct
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cometmq.codec import batch, command
from cometmq.codec.codes import LanguageCode, RequestCode
from cometmq.codec.command import Command, Serialization
from cometmq.codec.headers.base import Header
from cometmq.codec.headers.pull import PullMessage
from cometmq.codec.headers.send import SendMessageV2

QUEUES = 8
PULL_COUNT = 32
GROUP = "bench-capacity"

JAVA_VERSION = 513
"""What the newest client we know says; the older brokers take it as well."""

_RING_BYTES = 2 << 20
_RING_FRAMES_MAX = 4096
_SUBSCRIPTION_FLAG = 4
_PREFIX = struct.Struct(">I")


class Load(NamedTuple):
    """What is asked: of how many connections, how many requests at a time, and of which kind.

    ``send`` with a ``batch`` above 1 sends batches; ``pull`` asks for 32 messages of ``backlog``
    per queue. With several ``topics``, sends go round them and the topic's name gets a number.
    """

    kind: str
    header: str
    connections: int
    in_flight: int
    body: int
    batch: int = 1
    topics: int = 1
    backlog: int = 0

    @property
    def messages_per_answer(self) -> int:
        return PULL_COUNT if self.kind == "pull" else self.batch

    @property
    def serialization(self) -> Serialization:
        return Serialization.JSON if self.header == "json" else Serialization.ROCKETMQ


class Ring(NamedTuple):
    """Encoded requests, the first ones again at the end: ``run`` may begin at any of ``length``."""

    data: memoryview
    starts: list[int]
    length: int

    def run(self, position: int, count: int) -> memoryview:
        """``count`` requests from ``position`` on; at most as many as the load has in flight."""
        return self.data[self.starts[position] : self.starts[position + count]]


def ring_of(frames: Iterable[bytes], run_max: int) -> Ring:
    """A ring from which up to ``run_max`` requests can be taken at once."""
    every = list(frames)
    length = len(every)
    laps = -(-run_max // length)
    every += (every * laps)[:run_max]
    starts = [0]
    for frame in every:
        starts.append(starts[-1] + len(frame))
    return Ring(memoryview(b"".join(every)), starts, length)


def requests(load: Load, topic: str, salt: int = 0) -> Ring:
    """The ring of a load; another ``salt`` gives the messages other unique keys."""
    frames = pulls(load, topic) if load.kind == "pull" else sends(load, topic, salt)
    return ring_of(frames, load.in_flight)


def sends(load: Load, topic: str, salt: int) -> Iterator[bytes]:
    body = "".join(random.Random(1).choices(string.ascii_letters, k=load.body)).encode()
    message_bytes = load.batch * (load.body + 350)
    wanted = max(load.in_flight, min(_RING_FRAMES_MAX, _RING_BYTES // message_bytes))
    round_trip = load.topics * QUEUES
    now_ms = int(time.time() * 1000)
    for number in range(-(-wanted // round_trip) * round_trip):
        keys = range(number * load.batch, (number + 1) * load.batch)
        name = topic if load.topics == 1 else f"{topic}-{number % load.topics:04}"
        properties = [_properties(salt, key) for key in keys]
        header = _send_header(name, number // load.topics % QUEUES, now_ms, load, properties[0])
        code, data = RequestCode.SEND_MESSAGE_V2, body
        if load.batch > 1:
            code = RequestCode.SEND_BATCH_MESSAGE
            data = batch.encode(batch.BatchItem(0, body, text.encode()) for text in properties)
        yield encoded(code, header, number, load.serialization, data)


def pulls(load: Load, topic: str) -> Iterator[bytes]:
    """Every queue in turn, each from its begin to the end of the backlog."""
    assert load.backlog >= PULL_COUNT, load
    number = 0
    for offset in range(0, load.backlog - PULL_COUNT + 1, PULL_COUNT):
        for queue_id in range(QUEUES):
            header = pull_header(topic, queue_id, offset)
            yield encoded(RequestCode.PULL_MESSAGE, header, number, load.serialization)
            number += 1


def pull_header(topic: str, queue_id: int, offset: int) -> PullMessage:
    return PullMessage(
        GROUP, topic, queue_id, offset, PULL_COUNT, _SUBSCRIPTION_FLAG, 0, 15_000, "*", 0, "TAG"
    )


def encoded(
    code: RequestCode, header: Header, opaque: int, serialization: Serialization, body: bytes = b""
) -> bytes:
    """A request as a Java client writes it: JSON with its fields in that order and its escapes."""
    fields = header.to_ext()
    if serialization == Serialization.ROCKETMQ:
        request = Command(
            code, LanguageCode.JAVA, JAVA_VERSION, opaque, 0, None, serialization, fields, body
        )
        return command.encode(request)
    written = {
        "code": int(code),
        "extFields": fields,
        "flag": 0,
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": JAVA_VERSION,
    }
    text = json.dumps(written, separators=(",", ":")).encode()
    sizes = _PREFIX.pack(4 + len(text) + len(body)) + _PREFIX.pack(len(text))
    return sizes + text + body


def _send_header(
    topic: str, queue_id: int, born_ms: int, load: Load, properties: str
) -> SendMessageV2:
    is_batch = load.batch > 1
    return SendMessageV2(
        GROUP, topic, "TBW102", QUEUES, queue_id, 0, born_ms, 0, properties, 0, False,
        batch=is_batch, broker_name="broker-a",
    )  # fmt: skip


def _properties(salt: int, number: int) -> str:
    key = f"0A00000510F330946E09{salt:04X}{number:08X}"
    return f"UNIQ_KEY\x01{key}\x02WAIT\x01true\x02TAGS\x01TagA\x02"


class AnswerCounter:
    """Counts the frames in a stream of bytes that comes in pieces, looking at nothing but lengths.

    Before bytes are received, ``held`` (up to three bytes of a length) belong before them.
    """

    __slots__ = ("held", "remaining")

    def __init__(self) -> None:
        self.held = b""
        self.remaining = 0  # bytes that the frame being received still lacks

    def count(self, data: bytes | bytearray, size: int) -> int:
        """How many frames end in ``data[:size]``, which begins with what was held."""
        end = self.remaining
        if end > size:
            self.remaining = end - size
            return 0
        answered = 1 if end else 0
        unpack = _PREFIX.unpack_from
        last = size - 4
        while end <= last:
            following: int = end + 4 + unpack(data, end)[0]
            if following > size:
                self.remaining = following - size
                self.held = b""
                return answered
            end = following
            answered += 1
        self.remaining = 0
        self.held = bytes(data[end:size])
        return answered
