"""Sends ten orders. The address of the name servers is in NAMESRV_ADDR.

export NAMESRV_ADDR=127.0.0.1:9876
python examples/send_orders.py
"""

from dataclasses import dataclass
from decimal import Decimal

from cometmq import Client, CometError

TOPIC = "example-orders"


@dataclass(frozen=True)
class Order:
    id: str
    customer: str
    total: Decimal


def main() -> int:
    orders = [Order(f"order-{n}", f"customer-{n % 3}", Decimal(n) / 2) for n in range(1, 11)]
    with Client() as mq:
        producer = mq.producer("example-shop", codec=Order)
        try:
            for order in orders:
                # The key finds the order again; orders of a customer stay in order.
                result = producer.send(
                    TOPIC, order, tag="new", keys=order.id, ordering_key=order.customer
                )
                print(order.id, result.message_id, "queue", result.queue.queue_id)
        except CometError as error:
            print("not sent:", error)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
