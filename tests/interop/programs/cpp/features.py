"""The C++ client (through its Python binding) kept running for many commands.

A JSON object per line on standard input, events as JSON objects, one per line, on standard output.
Commands run one after the other; consumers that were started tell what they receive at any time.

Runs by itself with the binding on ``PYTHONPATH``; nothing here may be imported from elsewhere.
Where the binding leaves out, or gets wrong, what the library can do, the library is called.
"""

import ctypes
import hashlib
import importlib
import json
import os
import queue
import sys
import threading
import time
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

Options = dict[str, Any]

# A send that is tried again on a busy machine would be stored twice.
SEND_TIMEOUT_MS = 20_000
CALLBACKS_TIMEOUT_S = 30
# As Java's; the library's own is 128 KiB.
MESSAGE_BYTES_MAX = 4 << 20
# Longer bodies are told by their size and hash only.
SHOWN_BODY_BYTES = 4096

CONSUME_SUCCESS, RECONSUME_LATER = 0, 1
FROM_LAST, FROM_FIRST = 0, 4

# The C functions leave these out, so they are called by their C++ names.
SET_RETRY_TIMES = "_ZN8rocketmq17DefaultMQProducer13setRetryTimesEi"
SET_FROM_WHERE = "_ZN8rocketmq21DefaultMQPushConsumer19setConsumeFromWhereENS_16ConsumeFromWhereE"

# The library's texts are those of the old C++ ABI: length, capacity and count, then the bytes.
TEXT_HEADER_BYTES = 24

# The client can say a property's value but not which properties there are.
TOLD_PROPERTIES = ("UNIQ_KEY", "ORIGIN_MESSAGE_ID", "RETRY_TOPIC", "DELAY", "colour", "é")

output_lock = threading.Lock()
# Whatever the library prints by itself is not an event.
output = os.fdopen(os.dup(sys.stdout.fileno()), "w")
os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


class Library:
    """The binding's classes and the library's functions below them."""

    def __init__(self) -> None:
        self.binding: Any = importlib.import_module("rocketmq.client")
        ffi: Any = importlib.import_module("rocketmq.ffi")
        exceptions: Any = importlib.import_module("rocketmq.exceptions")
        self.ffi = ffi
        self.check: Callable[[int], None] = exceptions.ffi_check
        pointer, number = ctypes.c_void_p, ctypes.c_int
        # The binding declares the result as a pointer; the library passes it by value.
        self.on_success: Any = ctypes.CFUNCTYPE(None, ffi._CSendResult)
        self.on_exception: Any = ffi.SEND_EXCEPTION_CALLBACK
        callbacks = (self.on_success, self.on_exception)
        selector = ffi.QUEUE_SELECTOR_CALLBACK
        self.send_async = self._function("SendMessageAsync", pointer, pointer, *callbacks)
        self.send_orderly_async = self._function(
            "SendMessageOrderlyAsync", pointer, pointer, selector, pointer, *callbacks
        )
        self.set_compress_over = self._function(
            "SetProducerCompressMsgBodyOverHowmuch", pointer, number
        )
        self.set_retry_times = self._function(SET_RETRY_TIMES, pointer, number)
        self.set_from_where = self._function(SET_FROM_WHERE, pointer, number)
        self._body = ctypes.CFUNCTYPE(pointer, pointer)(("GetMessageBody", ffi.dll))

    def _function(self, name: str, *types: Any) -> Any:
        return ctypes.CFUNCTYPE(ctypes.c_int, *types)((name, self.ffi.dll))

    def body(self, handle: int) -> bytes:
        """A received body, with the zeros at which the binding's own would end."""
        address: int = self._body(handle)
        count = ctypes.c_size_t.from_address(address - TEXT_HEADER_BYTES).value
        return ctypes.string_at(address, count)


class Post(NamedTuple):
    """A message to send, and the number that chooses its queue if it has one."""

    place: int
    message: Any
    selector_number: int | None


class Producers:
    """Sends in every way the client has; producers are kept for the next command."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._started: dict[tuple[Any, ...], Any] = {}

    def send(self, command_id: int, options: Options) -> None:
        refuse_vip(options)
        producer = self._producer(options)
        posts = [
            self._made(index, options["topic"], described)
            for index, described in enumerate(options["messages"])
        ]
        mode = options.get("mode") or "sync"
        if mode == "batch":
            self._send_batch(producer, posts, command_id)
        elif mode == "async":
            self._send_async(producer, posts, command_id)
        else:
            send = {"sync": self._send_one, "oneway": self._send_oneway}[mode]
            for post in posts:
                try:
                    send(producer, post, command_id)
                except Exception as error:
                    emit_refused(command_id, post.place, error)

    def stop(self, name: str) -> None:
        for key in [key for key in self._started if key[0] == name]:
            self._started.pop(key).shutdown()

    def _send_one(self, producer: Any, post: Post, command_id: int) -> None:
        if post.selector_number is None:
            result = producer.send_sync(post.message)
        else:
            result = producer.send_orderly(post.message, post.selector_number, retry_times=0)
        emit_sent(command_id, post.place, result)

    def _send_oneway(self, producer: Any, post: Post, command_id: int) -> None:
        if post.selector_number is None:
            producer.send_oneway(post.message)
        else:
            producer.send_oneway_orderly(post.message, post.selector_number)
        emit(command_id, event="sent", index=post.place, status="ONEWAY")

    def _send_batch(self, producer: Any, posts: list[Post], command_id: int) -> None:
        try:
            result = producer.send_batch([post.message for post in posts])
        except Exception as error:
            emit_refused(command_id, 0, error)
        else:
            emit_sent(command_id, 0, result, count=len(posts))

    def _send_async(self, producer: Any, posts: list[Post], command_id: int) -> None:
        answers: queue.SimpleQueue[None] = queue.SimpleQueue()
        # The library calls them later, so they must stay.
        kept = [self._send_one_async(producer, post, command_id, answers) for post in posts]
        for _ in kept:
            answers.get(timeout=CALLBACKS_TIMEOUT_S)

    def _send_one_async(
        self, producer: Any, post: Post, command_id: int, answers: "queue.SimpleQueue[None]"
    ) -> tuple[Any, ...]:
        def succeed(result: Any) -> None:
            client = self._library.binding
            status = client.SendStatus(result.sendStatus)
            told = client.SendResult(status, result.msgId.decode(), result.offset)
            emit_sent(command_id, post.place, told)
            answers.put(None)

        def fail(exception: Any) -> None:
            # The library mostly has no text for what went wrong.
            error = exception.msg.decode(errors="replace") or f"error {exception.error}"
            emit(command_id, event="refused", index=post.place, error=error, code=None)
            answers.put(None)

        on_success, on_exception = (
            self._library.on_success(succeed),
            self._library.on_exception(fail),
        )
        handle, message = producer._handle, post.message._handle
        if post.selector_number is None:
            status = self._library.send_async(handle, message, on_success, on_exception)
            kept: tuple[Any, ...] = (on_success, on_exception)
        else:
            selector = self._library.ffi.QUEUE_SELECTOR_CALLBACK(
                self._library.binding.hashing_queue_selector
            )
            number = ctypes.c_int(post.selector_number)
            status = self._library.send_orderly_async(
                handle, message, selector, ctypes.addressof(number), on_success, on_exception
            )
            kept = (on_success, on_exception, selector, number)
        if status != 0:
            emit_refused(command_id, post.place, RuntimeError(f"status {status}"))
            answers.put(None)
        return kept

    def _producer(self, options: Options) -> Any:
        own = ("namesrv", "group", "maxMessageSize", "compressOver", "retries")
        key = (options.get("producer") or "main", *(options.get(name) for name in own))
        if key not in self._started:
            self._started[key] = self._start(options)
        return self._started[key]

    def _start(self, options: Options) -> Any:
        producer = self._library.binding.Producer(
            options.get("group") or "PG_features",
            timeout=options.get("timeoutMs") or SEND_TIMEOUT_MS,
            max_message_size=options.get("maxMessageSize") or MESSAGE_BYTES_MAX,
        )
        producer.set_namesrv_addr(options["namesrv"])
        instance = f"producer-{len(self._started)}-{time.monotonic_ns()}"
        self._library.check(
            self._library.ffi.dll.SetProducerInstanceName(producer._handle, instance.encode())
        )
        if options.get("compressOver"):
            self._library.set_compress_over(producer._handle, options["compressOver"])
        # The library counts attempts.
        self._library.set_retry_times(producer._handle, 1 + (options.get("retries") or 0))
        producer.start()
        return producer

    def _made(self, index: int, topic: str, described: Options) -> Post:
        message = self._library.binding.Message(topic)
        body = (
            Path(described["bodyFile"]).read_bytes()
            if described.get("bodyFile")
            else described["body"].encode()
        )
        self._library.check(
            self._library.ffi.dll.SetByteMessageBody(message._handle, body, len(body))
        )
        if described.get("tags"):
            message.set_tags(described["tags"])
        if described.get("keys"):
            message.set_keys(described["keys"])
        for name, value in (described.get("properties") or {}).items():
            message.set_property(name, value)
        if described.get("delayLevel"):
            message.set_delay_time_level(described["delayLevel"])
        number = described.get("queueId")
        if described.get("hashKey"):
            number = zlib.crc32(described["hashKey"].encode()) & 0x7FFFFFFF
        return Post(index, message, number)


class Consumers:
    """Push consumers by name, each telling what it receives until it is stopped."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._started: dict[str, Any] = {}

    def start(self, command_id: int, options: Options) -> None:
        refuse_vip(options)
        if options.get("maxReconsumeTimes") is not None:
            raise ValueError("the client leaves the number of attempts to the broker")
        handler = Handler(self._library, command_id, options)
        self._started[options["name"]] = self._start(options, handler)

    def stop(self, name: str) -> None:
        if name in self._started:
            self._started.pop(name).shutdown()

    def _start(self, options: Options, handle: Callable[[int, int], int]) -> Any:
        model = (options.get("model") or "clustering").upper()
        consumer = self._library.binding.PushConsumer(
            options["group"],
            orderly=bool(options.get("orderly")),
            message_model=self._library.ffi.MessageModel[model],
        )
        consumer.set_namesrv_addr(options["namesrv"])
        consumer.set_instance_name(options["name"])
        consumer.set_thread_count(options.get("threads") or 4)
        consumer.set_message_batch_max_size(1)
        first = (options.get("from") or "first") == "first"
        self._library.set_from_where(consumer._handle, FROM_FIRST if first else FROM_LAST)
        expression = options.get("expression") or "*"
        self._library.check(
            self._library.ffi.dll.Subscribe(
                consumer._handle, options["topic"].encode(), expression.encode()
            )
        )
        # The binding's own wrapper answers "consumed" when the callback raises.
        consumer._register_callback(handle)
        consumer.start()
        return consumer


class Handler:
    """What a consumer does with a message: tell of it, and fail as often as it was asked to."""

    def __init__(self, library: Library, command_id: int, options: Options) -> None:
        self._library = library
        self._command_id = command_id
        self._name = options["name"]
        self._hold_s = (options.get("holdMs") or 0) / 1000
        self._rule: Options | None = options.get("fail")
        self._seen: dict[str, int] = {}
        self._lock = threading.Lock()

    def __call__(self, _consumer: int, handle: int) -> int:
        try:
            begin_us = now_us()
            message = self._library.binding.RecvMessage(handle)
            body = self._library.body(handle)
            time.sleep(self._hold_s)
            is_done = not self._is_to_fail(message, body)
            outcome = "ok" if is_done else "later"
            emit_received(self._command_id, self._name, outcome, message, body, begin_us)
        except Exception:
            # Whatever is raised here is lost in the library, and the message counts as consumed.
            traceback.print_exc()
            return RECONSUME_LATER
        return CONSUME_SUCCESS if is_done else RECONSUME_LATER

    def _is_to_fail(self, message: Any, body: bytes) -> bool:
        rule = self._rule
        if rule is None:
            return False
        if rule.get("body") is not None and rule["body"].encode() != body:
            return False
        name = text(message["UNIQ_KEY"]) or text(message["ORIGIN_MESSAGE_ID"]) or message.id
        with self._lock:
            before = self._seen.get(name, 0)
            self._seen[name] = before + 1
        times: int = rule.get("times") or 0
        return times < 0 or before < times


class Shell:
    """Answers commands, one after the other."""

    def __init__(self, library: Library) -> None:
        self._producers = Producers(library)
        self._consumers = Consumers(library)

    def answer(self, command: Options) -> None:
        try:
            self._run(command["id"], command["verb"], command.get("options") or {})
        except Exception:
            emit(command["id"], event="failed", error=traceback.format_exc())
        else:
            emit(command["id"], event="done")

    def _run(self, command_id: int, verb: str, options: Options) -> None:
        if verb == "send":
            self._producers.send(command_id, options)
        elif verb == "consume":
            self._consumers.start(command_id, options)
        elif verb == "stop":
            self._producers.stop(options["name"])
            self._consumers.stop(options["name"])
        elif verb != "exit":
            raise ValueError(f"the client cannot: {verb}")


def refuse_vip(options: Options) -> None:
    if options.get("vip"):
        raise ValueError("the client has no VIP channel")


def text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")


def now_us() -> int:
    return time.time_ns() // 1000


def emit_sent(command_id: int, index: int, result: Any, **more: Any) -> None:
    name = result.status.name
    status = "SEND_OK" if name == "OK" else name
    facts = {"status": status, "msgId": result.msg_id, "queueOffset": result.offset}
    emit(command_id, event="sent", index=index, **facts, **more)


def emit_refused(command_id: int, index: int, error: Exception) -> None:
    emit(command_id, event="refused", index=index, error=repr(error), code=None)


def emit_received(
    command_id: int, name: str, outcome: str, message: Any, body: bytes, begin_us: int
) -> None:
    properties = {key: text(message[key]) for key in TOLD_PROPERTIES}
    facts = {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "size": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
        "storeSize": message.store_size,
        "tags": text(message.tags),
        "keys": text(message.keys),
        "reconsumeTimes": message.reconsume_times,
        "msgId": message.id,
        "properties": {key: value for key, value in properties.items() if value},
        "bornMs": message.born_timestamp,
        "storeMs": message.store_timestamp,
        "beginUs": begin_us,
    }
    if len(body) <= SHOWN_BODY_BYTES:
        facts["body"] = body.decode(errors="replace")
    emit(command_id, event="received", name=name, outcome=outcome, **facts, endUs=now_us())


def emit(command_id: int, **event: Any) -> None:
    """Write one line with the command's id as its first member."""
    line = json.dumps({"id": command_id, **event})
    with output_lock:
        output.write(line + "\n")
        output.flush()


def main() -> None:
    shell = Shell(Library())
    emit(0, event="ready")
    for line in sys.stdin:
        command = json.loads(line)
        shell.answer(command)
        if command["verb"] == "exit":
            break
    # The library's own threads and the binding's destructors do not get on at exit.
    os._exit(0)


if __name__ == "__main__":
    main()
