"""Our own client kept running for many commands, as the programs of the other clients.

A JSON object per line on standard input, events as JSON objects, one per line, on standard output.
Commands run one after the other; consumers that were started tell what they receive at any time.
"""

import asyncio
import hashlib
import json
import os
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from cometmq.aio import Client
from cometmq.client.batching import Item
from cometmq.client.core.message import Message
from cometmq.client.core.results import SendResult
from cometmq.client.core.settings import ClientOptions
from cometmq.client.producer import Producer
from cometmq.client.push_consumer import Consumer
from cometmq.errors import CometError, InvalidArgument

Options = dict[str, Any]

# Whatever a client does from time to time, it does soon.
IN_A_HURRY: ClientOptions = {
    "rebalance_gap_ms": 50,
    "rebalance_interval_ms": 2_000,
    "route_interval_ms": 500,
    "heartbeat_interval_ms": 1_000,
    "persist_interval_ms": 200,
    "lock_interval_ms": 300,
}
# A send that is tried again on a busy machine would be stored twice.
SEND_TIMEOUT_MS = 20_000
USUAL_THREADS = 4
USUAL_SUSPEND_MS = 100
PULL_PAUSE_MS = 200
# Longer bodies are told by their size and hash only.
SHOWN_BODY_BYTES = 4096
READY_ID = 0

# Whatever else is printed is not an event.
output = os.fdopen(os.dup(sys.stdout.fileno()), "w")
os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


def emit(command_id: int, event: str, **members: Any) -> None:
    output.write(json.dumps({"id": command_id, "event": event, **members}) + "\n")
    output.flush()


class HandlingFailed(Exception):
    """What a handler raises when it was told to."""


class Program:
    """Producers and consumers by name, each consumer with a client of its own."""

    def __init__(self) -> None:
        self._verbs: dict[str, Callable[[int, Options], Awaitable[None]]] = {
            "send": self._send,
            "consume": self._consume,
            "stop": self._stop,
        }
        self._senders: dict[tuple[Any, ...], tuple[Client, Producer]] = {}
        self._consumers: dict[str, Client] = {}

    async def run(self, commands: asyncio.StreamReader) -> None:
        emit(READY_ID, "ready")
        while line := await commands.readline():
            command = json.loads(line)
            try:
                await self._verbs[command["verb"]](command["id"], command.get("options") or {})
            except Exception:
                emit(command["id"], "failed", error=traceback.format_exc())
            else:
                emit(command["id"], "done")

    # --- sending

    async def _send(self, command_id: int, options: Options) -> None:
        producer = await self._producer(options)
        posts = list(enumerate(options["messages"]))
        mode = options.get("mode") or "sync"
        if mode == "batch":
            await self._send_batch(command_id, producer, options["topic"], options["messages"])
        elif mode == "async":
            sends = (self._send_one(command_id, producer, options, *post) for post in posts)
            await asyncio.gather(*sends)
        else:
            for post in posts:
                await self._send_one(command_id, producer, options, *post)

    async def _send_one(
        self, command_id: int, producer: Producer, options: Options, index: int, described: Options
    ) -> None:
        send: Callable[..., Awaitable[SendResult | None]] = producer.send
        if options.get("mode") == "oneway":
            send = producer.send_oneway
        try:
            result = await send(
                options["topic"],
                body_of(described),
                tag=described.get("tags"),
                keys=described.get("keys") or (),
                properties=described.get("properties"),
                delay_level=described.get("delayLevel"),
                ordering_key=described.get("hashKey"),
                selector=by_id(described["queueId"]) if "queueId" in described else None,
            )
        except (CometError, InvalidArgument) as error:
            code = getattr(error, "code", None)
            emit(command_id, "refused", index=index, error=str(error), code=code)
        else:
            emit(command_id, "sent", index=index, **facts_of_send(result))

    async def _send_batch(
        self, command_id: int, producer: Producer, topic: str, messages: list[Options]
    ) -> None:
        items = [
            Item(body_of(one), one.get("tags"), one.get("keys") or (), one.get("properties"))
            for one in messages
        ]
        (result,) = await producer.send_many(topic, items)
        emit(command_id, "sent", index=0, count=len(items), **facts_of_send(result))

    async def _producer(self, options: Options) -> Producer:
        settings: dict[str, Any] = {"send_timeout_ms": SEND_TIMEOUT_MS}
        for name, setting in (
            ("compressOver", "compress_over_bytes"),
            ("maxMessageSize", "body_bytes_max"),
        ):
            if options.get(name) is not None:
                settings[setting] = options[name]
        if "compression" in options:
            settings["compression"] = options["compression"].lower()
        key = (options.get("producer"), options["namesrv"], *settings.items())
        if key not in self._senders:
            client = Client(options["namesrv"], **IN_A_HURRY)
            await client.__aenter__()
            self._senders[key] = client, client.producer("PG_features", **settings)
        return self._senders[key][1]

    # --- consuming

    async def _consume(self, command_id: int, options: Options) -> None:
        settings: dict[str, Any] = {
            "is_orderly": bool(options.get("orderly")),
            "mode": "broadcast" if options.get("model") == "broadcasting" else "cluster",
            "start": options.get("from") or "first",
            "concurrency": options.get("threads") or USUAL_THREADS,
            "suspend_ms": options.get("suspendMs") or USUAL_SUSPEND_MS,
            "pull_pause_ms": PULL_PAUSE_MS,
            "reconsume_max": options.get("maxReconsumeTimes", -1),
        }
        settings_of_client: ClientOptions = {**IN_A_HURRY, "instance_name": options["name"]}
        client = Client(options["namesrv"], **settings_of_client)
        await client.__aenter__()
        consumer: Consumer[bytes] = client.consumer(options["group"], **settings)
        consumer.subscribe(options["topic"], tags=options.get("expression"))
        handler = Handler(command_id, client.client_id, options)
        await consumer.start(handler)
        self._consumers[options["name"]] = client

    async def _stop(self, command_id: int, options: Options) -> None:
        """What runs in the background elsewhere is soon done here."""
        name = options["name"]
        for key in [key for key in self._senders if key[0] == name]:
            await self._senders.pop(key)[0].close()
        client = self._consumers.pop(name, None)
        if client is not None:
            await client.close()


class Handler:
    """What a consumer does with a message: tell of it, and fail as often as it was asked to."""

    def __init__(self, command_id: int, client_id: str, options: Options) -> None:
        self._command_id = command_id
        self._members = {"name": options["name"], "clientId": client_id}
        self._hold_s = (options.get("holdMs") or 0) / 1000
        self._fail: Options = options.get("fail") or {"times": 0}
        self._failed: dict[str, int] = {}

    async def __call__(self, message: Message[bytes]) -> None:
        begin_us = time.time_ns() // 1000
        await asyncio.sleep(self._hold_s)
        is_failing = self._is_to_fail(message)
        emit(
            self._command_id,
            "received",
            **self._members,
            outcome="later" if is_failing else "ok",
            **facts_of(message),
            beginUs=begin_us,
            endUs=time.time_ns() // 1000,
        )
        if is_failing:
            raise HandlingFailed(message.message_id)

    def _is_to_fail(self, message: Message[bytes]) -> bool:
        wanted = self._fail.get("body")
        if wanted is not None and message.body != wanted.encode():
            return False
        before = self._failed.get(message.message_id, 0)
        self._failed[message.message_id] = before + 1
        times: int = self._fail["times"]
        return times < 0 or before < times


def facts_of(message: Message[bytes]) -> Options:
    body = message.body
    facts: Options = {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "size": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
        "storeSize": message.stored_bytes,
        "msgId": message.message_id,
        "tags": message.tag,
        "keys": " ".join(message.keys) or None,
        "reconsumeTimes": message.reconsume_times,
        "sysFlag": message.sys_flag,
        "properties": dict(message.properties),
    }
    if len(body) <= SHOWN_BODY_BYTES:
        facts["body"] = body.decode()
    return facts


def facts_of_send(result: SendResult | None) -> Options:
    if result is None:
        return {"status": "ONEWAY"}
    return {
        "status": result.status.value,
        "msgId": result.message_id,
        "offsetMsgId": result.offset_id,
        "queueId": result.queue.queue_id,
        "queueOffset": result.queue_offset,
    }


def body_of(described: Options) -> bytes:
    if "bodyFile" in described:
        return Path(described["bodyFile"]).read_bytes()
    body: str = described["body"]
    return body.encode()


def by_id(queue_id: int) -> Callable[..., int]:
    return lambda queues, _: [queue.queue_id for queue in queues].index(queue_id)


async def main() -> None:
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    await Program().run(commands)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
