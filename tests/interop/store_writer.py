"""A process of ours that writes to a store until it is killed: ``python -m`` with settings as JSON.

It prints a line for each message after the store took it, past all buffers of its own.
"""

import base64
import itertools
import json
import os
import sys
from collections.abc import Mapping, Sequence

from cometmq import settings
from cometmq.codec import record
from cometmq.store import MessageStore, StoreSettings
from tests.interop.clients import Event
from tests.interop.ports import LOOPBACK
from tests.interop.processes import Process
from tests.interop.store_kit import QUEUES_OF_TOPICS, Appender, Ground

QUEUES = QUEUES_OF_TOPICS["Storm"]
BATCH_EVERY = 10
BATCH_SIZE = 5
MARK_EVERY = 1000


def start(ground: Ground) -> Process:
    """The process, on the directory of ``ground``."""
    argv = [sys.executable, "-m", "tests.interop.store_writer", json.dumps(ground.settings)]
    env = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return Process("our-writer", argv, folder=ground.root.parent, env=env)


def acknowledged(process: Process) -> list[Event]:
    """What the writer said was stored; the line it was killed in does not count."""
    *lines, _ = process.log_path.read_text().split("\n")
    return [json.loads(line) for line in lines if line.startswith("{")]


def write_for_ever(broker_settings: Mapping[str, str]) -> None:
    """Put messages and say so, one line each, after the put returned."""
    loaded = settings.load(StoreSettings, file=broker_settings).settings
    host = record.pack_host(LOOPBACK, int(broker_settings["listenPort"]))
    with MessageStore.open(loaded.root, loaded) as store:
        appender = Appender(store, host)
        for number in itertools.count():
            queue_id = number % QUEUES
            if number % BATCH_EVERY == 0:
                bodies = [b"batch %d %d" % (number, place) for place in range(BATCH_SIZE)]
                result = appender.put_batch("Storm", queue_id, bodies, keys=f"writer-{number}")
                offsets: Sequence[int] = result.offsets
            else:
                bodies = [(b"single %d " % number).ljust(400, b".")]
                keys = f"writer-{number}"
                result = appender.put("Storm", queue_id, bodies[0], keys=keys, tag="writer")
                offsets = [result.physical_offset]
            for place, offset in enumerate(offsets):
                _say(queue_id, result.queue_offset + place, offset, bodies[place])
            store.dispatch()
            if number % MARK_EVERY == 0:
                os.write(1, b"%d puts\n" % number)


def _say(queue_id: int, queue_offset: int, physical_offset: int, body: bytes) -> None:
    event = {
        "queueId": queue_id,
        "queueOffset": queue_offset,
        "commitLogOffset": physical_offset,
        "body": base64.b64encode(body).decode(),
    }
    os.write(1, json.dumps(event).encode() + b"\n")


if __name__ == "__main__":
    write_for_ever(json.loads(sys.argv[1]))
