"""The main job of ``make run``: what CometMQ can do today, done before your eyes.

There is no broker yet, so a message goes as far as the codecs carry it: into a request frame, out
of it again, into a commit-log record with its queue entry. Then a store directory that Apache
RocketMQ wrote is read the same way.
"""

import argparse
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator

from cometmq import __version__
from cometmq.codec import core, message_id, properties, queue_entry, record
from cometmq.codec.codes import RequestCode
from cometmq.codec.command import Serialization
from cometmq.codec.headers.send import SendMessageV2
from cometmq.errors import RemoteProtocolError
from scripts import tree

STORE = tree.ROOT / "tests" / "data" / "store" / "5.5.0-clean.tar.gz"
BODY = b'{"order": 4711, "total": 12.50}'
HOST = record.pack_host("127.0.0.1", 10911)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make run", description=__doc__)
    parser.add_argument("--once", action="store_true", help="accepted; nothing stays up yet")
    parser.parse_args()
    print(f"CometMQ {__version__}, {core.active()} core\n")
    show_a_message()
    show_a_store()
    print("Try next:")
    print("  .venv/bin/cometmq doctor")
    print("  .venv/bin/cometmq decode id 7F00000100002A9F0000000000001000")
    print("  make bench")
    return 0


def show_a_message() -> None:
    written = properties.encode({"TAGS": "new", "KEYS": "order-4711"})
    header = SendMessageV2("demo", "orders", "TBW102", 4, 3, 0, 1_700_000_000_000, 0, written)
    print("One order as a send request")
    for form in Serialization:
        frame = core.encode_head(form, RequestCode.SEND_MESSAGE_V2, 1, 0, None, header, len(BODY))
        (command,), _ = core.decode_frames(frame + BODY)
        assert core.read(command, SendMessageV2) == header
        print(f"  {form.name + ' header':<17} {len(frame) + len(BODY)} bytes, read back unchanged")

    log = bytearray(512)
    size = core.encode_record_into(
        log, 0, b"orders", BODY, written.encode(), 3, 0, 0, 1_700_000_000_001, 1_700_000_000_000,
        HOST, HOST, 0, 0, 0, 0,
    )  # fmt: skip
    entries = queue_entry.pack(0, size, queue_entry.tags_code("new"))
    hits, _ = core.scan_entries(
        entries, 0, len(entries), frozenset({queue_entry.tags_code("new")}), 32
    )
    print(f"  {'log record':<17} {size} bytes, message id {message_id.encode_offset_id(HOST, 0)}")
    print(f"  {'queue entry':<17} {len(entries)} bytes, found by tag 'new': {len(hits)} of 1\n")


def show_a_store() -> None:
    topics = Counter(found.topic for found in stored_records())
    print(f"A store directory written by Apache RocketMQ 5.5.0: {topics.total()} messages")
    for topic, count in topics.most_common(5):
        shown = topic if len(topic) <= 40 else topic[:37] + "..."
        print(f"  {count:>6}  {shown}")
    print(f"  {'...':>6}  and {len(topics) - 5} topics more\n")


def stored_records() -> Iterator[record.Record]:
    """Every record of the commit log, checked; a file ends with a filler or with zeros."""
    with tarfile.open(STORE) as archive:
        for member in sorted(archive.getnames()):
            file = archive.extractfile(member) if "/commitlog/" in member else None
            if file is not None:
                yield from records_of(file.read())


def records_of(segment: bytes) -> Iterator[record.Record]:
    position = 0
    while position < len(segment):
        try:
            found = record.parse(segment, position, check_crc=True)
        except RemoteProtocolError:
            return
        if isinstance(found, record.Blank):
            return
        yield found
        position += found.size


if __name__ == "__main__":
    sys.exit(main())
