"""The main job of ``make run``: a day at a shop, done before your eyes.

``cometmq up`` runs a name server and a broker in one process. A producer sends orders: plain, in
the order of their customers, for later, and two that billing cannot handle, which are retried and
end as dead letters. Spark, where there is Java for it, reads the topic as a table. Everything is
checked against a plain sum; then the cluster stays up, unless ``--once`` says otherwise.
"""

import argparse
import logging
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping

import msgspec

from cometmq import Client, Message, NoRoute, __version__
from cometmq.codec import core
from scripts import demo_spark
from scripts.demo_server import DATA, Server, run

TOPIC = "orders"
BILLING, SHIPPING = "billing", "shipping"
TAGS = ("books", "games", "tools")
ORDER_COUNT = 60
CUSTOMERS = 5
BROKEN = (13, 42)
"""Orders with a total that billing refuses."""
DELAYED, DELAY_S = ORDER_COUNT, 2
RETRIES = 2
SECONDS_MAX = 30


class Order(msgspec.Struct):
    number: int
    customer: str
    total: float


ORDERS = [
    Order(n, f"customer-{n % CUSTOMERS}", -1.0 if n in BROKEN else n + 0.5)
    for n in range(1, ORDER_COUNT + 1)
]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make run", description=__doc__)
    parser.add_argument("--once", action="store_true", help="end when it is done")
    is_once = parser.parse_args().once
    logging.getLogger("cometmq").setLevel(logging.CRITICAL)  # orders fail on purpose
    print(f"CometMQ {__version__}, {core.active()} core")

    def day(server: Server) -> None:
        print(f"cometmq up: name server {server.namesrv}, broker {server.broker}\n")
        with Client(server.namesrv) as mq:
            trade(mq)
        show("spark", revenue_by_spark(server))
        print(ending(server, is_once=is_once), flush=True)

    return run(day, Server(), is_once=is_once)


def trade(mq: Client) -> None:
    """Send the orders, have them billed and shipped, and say what became of them."""
    began = time.monotonic()
    billed, shipped = Inbox(BILLING), Inbox(SHIPPING)
    billing = mq.consumer(BILLING, codec=Order, start="first", reconsume_max=RETRIES)
    shipping = mq.consumer(SHIPPING, codec=Order, start="first", is_orderly=True)
    for consumer, handler in ((billing, billed.take_good), (shipping, shipped.take)):
        consumer.subscribe(TOPIC)
        consumer.start(handler)
    show("sent", send_orders(mq))
    billed.wait_for(ORDER_COUNT - len(BROKEN))
    shipped.wait_for(ORDER_COUNT)

    tags = Counter(message.tag for message in billed.messages)
    show("billed", f"{len(billed.messages)} orders: {', '.join(f'{tags[t]} {t}' for t in TAGS)}")
    show("shipped", in_order(shipped))
    late = next(m for m in shipped.messages if m.value.number == DELAYED)
    waited_s = (late.stored_ms - late.born_ms) / 1000
    show("delayed", f"order {DELAYED} was to wait {DELAY_S} s, and came after {waited_s:.1f} s")
    dead = dead_letters(mq)
    numbers = " and ".join(str(message.value.number) for message in dead)
    tries = RETRIES + 1
    show("dead letters", f"orders {numbers}: tried {tries} times each, kept for a closer look")
    show("took", f"{time.monotonic() - began:.1f} s")


def send_orders(mq: Client) -> str:
    producer = mq.producer()
    for order in ORDERS:
        producer.send(
            TOPIC,
            order,
            tag=tag_of(order),
            keys=f"order-{order.number}",
            ordering_key=order.customer,
            delay=DELAY_S if order.number == DELAYED else None,
        )
    return f"{ORDER_COUNT} orders of {CUSTOMERS} customers, each customer's in order"


def tag_of(order: Order) -> str:
    return TAGS[order.number % len(TAGS)]


class Inbox:
    """What the handlers of a group took."""

    def __init__(self, group: str) -> None:
        self.messages: list[Message[Order]] = []
        self._group = group
        self._changed = threading.Condition()

    def take(self, message: Message[Order]) -> None:
        with self._changed:
            self.messages.append(message)
            self._changed.notify_all()

    def take_good(self, message: Message[Order]) -> None:
        if message.value.total < 0:
            raise ValueError(f"order {message.value.number} has a negative total")
        self.take(message)

    def wait_for(self, count: int) -> None:
        with self._changed:
            is_complete = self._changed.wait_for(lambda: len(self.messages) >= count, SECONDS_MAX)
        assert is_complete, f"{self._group}: {len(self.messages)} of {count} orders came"


def in_order(shipped: Inbox) -> str:
    """Claims that each customer's orders came as they were sent; the delayed one comes last."""
    numbers: dict[str | None, list[int]] = defaultdict(list)
    for message in shipped.messages:
        numbers[message.ordering_key].append(message.value.number)
    assert all(found == sorted(found) for found in numbers.values()), numbers
    return f"{len(shipped.messages)} orders, each customer's one after the other"


def dead_letters(mq: Client) -> list[Message[Order]]:
    """The orders that could not be billed, once their retries are over."""
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            found = list(mq.browse(f"%DLQ%{BILLING}", codec=Order))
        except NoRoute:  # the first dead letter makes the topic
            found = []
        if len(found) == len(BROKEN):
            return sorted(found, key=lambda message: message.value.number)
        time.sleep(0.2)
    raise TimeoutError(f"dead letters of {BILLING} did not come within {SECONDS_MAX} s")


def revenue_by_spark(server: Server) -> str:
    """Revenue by tag as Spark finds it, held against a plain sum."""
    if (reason := demo_spark.lack()) is not None:
        return f"left out: {reason}"
    print("  (Spark starts, which takes some seconds)", flush=True)
    found = demo_spark.revenue(server.namesrv, TOPIC, server.folder / "spark.log")
    wanted: dict[str, float] = defaultdict(float)
    for order in ORDERS:
        if order.total > 0:
            wanted[tag_of(order)] += order.total
    assert found == wanted, (found, wanted)
    return f"revenue {told(found)}, as a plain sum has it"


def told(revenue: Mapping[str, float]) -> str:
    return ", ".join(f"{tag} {revenue[tag]:.2f}" for tag in TAGS)


def ending(server: Server, *, is_once: bool) -> str:
    flags = "" if server.is_at_home else f" --namesrv {server.namesrv}"
    commands = {
        f".venv/bin/cometmq topic describe {TOPIC}{flags}": "queues and who reads them",
        f".venv/bin/cometmq consume {TOPIC} --count 3{flags}": "some of its messages",
        f".venv/bin/cometmq dlq peek {BILLING}{flags}": "what could not be billed",
    }
    lines = [f"  {command:<58} {purpose}" for command, purpose in commands.items()]
    first = f" (after .venv/bin/cometmq up --data {DATA} in another terminal)" if is_once else ""
    kept = f"Everything is in {DATA}/, and made anew by the next run."
    return "\n".join(["", kept, f"Try next{first}:", *lines])


def show(what: str, said: str) -> None:
    print(f"  {what:<14} {said}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
