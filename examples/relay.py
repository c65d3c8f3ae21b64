"""Reads one topic and writes another, with asyncio, until Ctrl-C. The address is in NAMESRV_ADDR.

A message is acknowledged after its successor has been stored: none is lost, and some are sent twice
when this is killed. They keep their key.
"""

import asyncio
import contextlib
from typing import Any

from cometmq import Message
from cometmq.aio import Client

SOURCE = "example-orders"
TARGET = "example-invoices"


async def relay() -> None:
    async with Client() as mq:
        producer = mq.producer("example-relay")

        async def pass_on(message: Message[dict[str, Any]]) -> None:
            invoice = {"order": message.value["id"], "amount": message.value["total"]}
            await producer.send(TARGET, invoice, keys=message.keys)
            print("invoice for", message.value["id"], flush=True)

        consumer = mq.consumer("example-relay", codec=dict, start="first", concurrency=64)
        consumer.subscribe(SOURCE)
        await consumer.run(pass_on)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(relay())
    print("ended")
