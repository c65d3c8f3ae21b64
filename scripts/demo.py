"""The main job of ``make run``: what CometMQ can do today, done before your eyes.

A name server and a broker are started in this process, orders are sent to them, some of them for
later, and looked at again. There is no Python client yet, so they are sent as plain requests, and
looked at with ``cometmq.admin``. Then a store directory that Apache RocketMQ wrote is read.
"""

import argparse
import asyncio
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator

from cometmq import __version__
from cometmq.admin import Admin
from cometmq.codec import core, properties, record
from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.send import SendMessageResponse, SendMessageV2
from cometmq.errors import RemoteProtocolError
from cometmq.remoting.channel import Channel
from cometmq.remoting.client import connect
from cometmq.testing import LocalCluster
from scripts import tree

STORE = tree.ROOT / "tests" / "data" / "store" / "5.5.0-clean.tar.gz"
TOPIC = "orders"
QUEUES = 4
TAGS = ("books", "games", "tools")
TIMEOUT_MS = 5000
LATER_SECONDS_MAX = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="make run", description=__doc__)
    parser.add_argument("--once", action="store_true", help="accepted; nothing stays up yet")
    parser.parse_args()
    print(f"CometMQ {__version__}, {core.active()} core\n")
    with LocalCluster() as cluster:
        asyncio.run(show_a_cluster(cluster.namesrv, cluster.broker.address))
    show_a_store()
    print("Try next:")
    print("  .venv/bin/cometmq up        a broker that stays, for any RocketMQ client")
    print("  .venv/bin/cometmq doctor")
    print("  make bench")
    return 0


async def show_a_cluster(namesrv: str, broker: str) -> None:
    print(f"A cluster in this process: name server {namesrv}, broker {broker}")
    async with Admin(namesrv) as admin:
        await admin.topics.create(TOPIC, queues=QUEUES)
        first = await send_orders(broker)
        found = [message async for message in admin.messages.browse(TOPIC)]
        tags = Counter(message.tags for message in found)
        print(f"  stored          {len(found)} orders, first message id {first}")
        print(f"  by tag          {', '.join(f'{count} {tag}' for tag, count in tags.items())}")
        (match,) = await admin.messages.by_key(TOPIC, "order-7")
        print(f"  by key order-7  {match.body.decode()} in queue {match.queue_id}")
        begun = time.monotonic()
        while len(found) == sum(tags.values()):
            assert time.monotonic() - begun < LATER_SECONDS_MAX, "the delayed order did not come"
            await asyncio.sleep(0.05)
            found = [message async for message in admin.messages.browse(TOPIC)]
        print(f"  delayed         {found[-1].body.decode()} came when its time had come\n")


async def send_orders(broker: str) -> str:
    """Send nine orders and one for a second later; the id of the first."""
    channel = await connect(broker)
    try:
        ids = [await send_order(channel, number) for number in range(1, 10)]
        await send_order(channel, 10, TIMER_DELAY_SEC="1")
    finally:
        channel.close()
    return ids[0]


async def send_order(channel: Channel, number: int, **asked: str) -> str:
    key = f"DEMO{number:012d}"
    named = {"UNIQ_KEY": key, "TAGS": TAGS[number % 3], "KEYS": f"order-{number}", **asked}
    header = SendMessageV2(
        "demo", TOPIC, "TBW102", QUEUES, number % QUEUES, 0, time.time_ns() // 1_000_000, 0,
        properties.encode(named),
    )  # fmt: skip
    body = f'{{"order": {number}, "total": {number}.50}}'.encode()
    answer = await channel.request(RequestCode.SEND_MESSAGE_V2, header, body, timeout_ms=TIMEOUT_MS)
    assert answer.code == 0, answer.remark
    return core.read(answer, SendMessageResponse).msg_id


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
