"""The C++ client (through its Python binding) on a command line: one JSON event per line.

Runs by itself with the binding on ``PYTHONPATH``; nothing here may be imported from elsewhere.
"""

import argparse
import importlib
import json
import os
import sys
import threading
from typing import Any

# A send that is tried again on a busy machine would be stored twice.
SEND_TIMEOUT_MS = 20_000


def send(binding: Any, options: argparse.Namespace) -> bool:
    producer = binding.Producer(options.group, timeout=SEND_TIMEOUT_MS)
    producer.set_namesrv_addr(options.namesrv)
    producer.start()
    for number in range(options.count):
        body = f"{options.prefix}{number}"
        message = binding.Message(options.topic)
        message.set_keys(f"key-{number}")
        message.set_tags(options.tag)
        message.set_body(body)
        result = producer.send_sync(message)
        emit(
            event="sent",
            body=body,
            status=result.status.name,
            messageId=result.msg_id,
            queueOffset=result.offset,
        )
    producer.shutdown()
    return True


def consume(binding: Any, options: argparse.Namespace) -> bool:
    missing = threading.Semaphore(0)

    def receive(message: Any) -> None:
        emit(
            event="received",
            body=message.body.decode(),
            messageId=message.id,
            queueId=message.queue_id,
            queueOffset=message.queue_offset,
            tags=message.tags.decode(),
            keys=message.keys.decode(),
        )
        missing.release()

    consumer = binding.PushConsumer(options.group)
    consumer.set_namesrv_addr(options.namesrv)
    consumer.subscribe(options.topic, receive, options.tag)
    consumer.start()
    is_complete = all(missing.acquire(timeout=options.timeout) for _ in range(options.count))
    consumer.shutdown()
    return is_complete


def emit(**event: Any) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["send", "consume"])
    for name in ("namesrv", "topic", "group", "tag", "prefix"):
        parser.add_argument(f"--{name}", default="")
    for name in ("count", "timeout"):
        parser.add_argument(f"--{name}", type=int, default=1)
    options = parser.parse_args()
    binding = importlib.import_module("rocketmq.client")
    is_complete = {"send": send, "consume": consume}[options.verb](binding, options)
    # The library's own threads and the binding's destructors do not get on at exit.
    os._exit(0 if is_complete else 1)


if __name__ == "__main__":
    main()
