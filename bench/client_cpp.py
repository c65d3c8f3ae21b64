"""The C++ client, through its Python binding, as ``bench.client`` drives it.

Of the binding's ways to send only the one that waits is of use: its declarations of callbacks are
not those of its library. The library waits without the interpreter's lock, so threads help.

    python -m bench.client_cpp        # with the binding on PYTHONPATH
"""

import ctypes
import importlib
import itertools
import os
import time
from collections.abc import Callable
from typing import Any

from bench.client_driver import (
    GROUP,
    SEND_TIMEOUT_MS,
    TAG,
    Answer,
    Options,
    Progress,
    pace_one_by_one,
    send_from_threads,
    serve,
    slept,
    window,
)

ATTEMPTS_MAX = 5
ATTEMPT_PAUSE_S = 0.005
FROM_FIRST = 4
# The C functions leave it out, so it is called by its C++ name.
SET_FROM_WHERE = "_ZN8rocketmq21DefaultMQPushConsumer19setConsumeFromWhereENS_16ConsumeFromWhereE"


class CppClient:
    """Its producer is kept: the library does not like to be shut down and started again."""

    def __init__(self) -> None:
        self._binding: Any = importlib.import_module("rocketmq.client")
        ffi: Any = importlib.import_module("rocketmq.ffi")
        exceptions: Any = importlib.import_module("rocketmq.exceptions")
        self._send_failed: type[Exception] = exceptions.ProducerSendSyncFailed
        place = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
        self._set_from_where: Any = place((SET_FROM_WHERE, ffi.dll))
        self._producer: Any = None
        self._consumers: list[Any] = []
        self._numbers = itertools.count()

    def send(self, options: Options) -> Answer:
        return send_from_threads(self._sender(options), options)

    def pace(self, options: Options) -> Answer:
        return pace_one_by_one(self._sender(options), options)

    def consume(self, options: Options) -> Answer:
        progress = Progress()

        def count(_: object) -> None:
            progress.count += 1

        consumer = self._binding.PushConsumer(options.text("group"))
        self._consumers.append(consumer)  # destroying one ends the process now and then
        consumer.set_namesrv_addr(options.text("namesrv"))
        consumer.set_instance_name(f"bench-{next(self._numbers)}")
        self._set_from_where(consumer._handle, FROM_FIRST)
        if "threads" in options.values:
            consumer.set_thread_count(options.number("threads"))
        consumer.subscribe(options.text("topic"), count)
        consumer.start()
        try:
            return slept(window(progress, options, count_max=options.number("backlog")))
        finally:
            consumer.shutdown()

    def _sender(self, options: Options) -> Callable[[], object]:
        if self._producer is None:
            self._producer = self._binding.Producer(GROUP, timeout=SEND_TIMEOUT_MS)
            self._producer.set_namesrv_addr(options.text("namesrv"))
            self._producer.start()
        producer, make = self._producer, self._binding.Message
        topic, body, failed = options.text("topic"), options.body, self._send_failed

        def send() -> None:
            message = make(topic)
            message.set_tags(TAG)
            message.set_body(body)
            for attempt in range(1, ATTEMPTS_MAX + 1):
                try:
                    producer.send_sync(message)
                except failed:
                    # With several threads it forgets its routes now and then.
                    if attempt == ATTEMPTS_MAX:
                        raise
                    time.sleep(ATTEMPT_PAUSE_S)
                else:
                    return

        return send


def main() -> None:
    client = CppClient()
    serve({"send": client.send, "pace": client.pace, "consume": client.consume})
    # The library's own threads and the binding's destructors do not get on at exit.
    os._exit(0)


if __name__ == "__main__":
    main()
