"""A service that bills each order once, until Ctrl-C. The address is in NAMESRV_ADDR.

Orders may come more than once; what was billed is noted together with the bill, in one transaction.
"""

import logging
import sqlite3
import sys
import threading
from dataclasses import dataclass
from decimal import Decimal

from cometmq import Client, DecodeError, Message

log = logging.getLogger("billing")  # handlers run on threads, where print() mixes lines

TOPIC = "example-orders"
GROUP = "example-billing"


@dataclass(frozen=True)
class Order:
    id: str
    customer: str
    total: Decimal


class Bills:
    """Bills by order, in a database; may be used by many threads."""

    def __init__(self, path: str) -> None:
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, check_same_thread=False)
        self._database.execute(
            "create table if not exists bills (order_id text primary key, total text not null)"
        )

    def add(self, order: Order) -> bool:
        """Whether there was no bill for this order yet."""
        with self._lock, self._database:
            added = self._database.execute(
                "insert or ignore into bills values (?, ?)", [order.id, str(order.total)]
            )
        return added.rowcount == 1


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    bills = Bills(sys.argv[1] if len(sys.argv) > 1 else "bills.db")

    def bill(message: Message[Order]) -> None:
        try:
            order = message.value
        except DecodeError as error:
            log.error("no order: %s", error)
            message.dead_letter()  # it will not get better by being delivered again
            return
        is_new = bills.add(order)
        log.info("%s %s %s", "billed" if is_new else "known", order.id, order.total)

    with Client() as mq:
        consumer = mq.consumer(GROUP, codec=Order, start="first", concurrency=8)
        consumer.subscribe(TOPIC, tags="new")
        try:
            consumer.run(bill)
        except KeyboardInterrupt:
            log.info("ended")


if __name__ == "__main__":
    main()
