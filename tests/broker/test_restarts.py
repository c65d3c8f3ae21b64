"""What was acknowledged is there after the broker was stopped or killed while it was sent to."""

import threading
import time
from collections.abc import Callable

import pytest

from cometmq.codec.codes import ResponseCode
from cometmq.testing import History, LocalCluster, Received, Sent
from cometmq.testing.local_cluster import BlockingBroker
from tests.broker.kit import bodies_of, connected, stored_at

pytestmark = pytest.mark.slow

TOPIC = "orders"
SENDERS = 3
SENT_BEFORE_MIN = 300


def now_ms() -> float:
    return time.monotonic() * 1000


def send_until_broken(address: str, sender: int, history: History) -> None:
    """Send to a queue of one's own until the connection breaks; the last one is in doubt."""
    with connected(address) as peer:
        for number in range(1_000_000):
            key, begun = f"{sender}-{number}", now_ms()
            try:
                offset = stored_at(peer.send(TOPIC, key.encode(), e=str(sender)))
            except (AssertionError, OSError):  # refused while stopping, closed or reset
                history.add(Sent(key, TOPIC, is_acknowledged=False))
                return
            done = Sent(key, TOPIC, sender, offset, begin_ms=begun, end_ms=now_ms())
            history.add(done)


def receive_all(address: str, history: History) -> None:
    with connected(address) as peer:
        for queue_id in range(SENDERS):
            offset = 0
            while True:
                pulled = peer.pull(TOPIC, queueId=str(queue_id), queueOffset=str(offset))
                if pulled.code == ResponseCode.PULL_NOT_FOUND:
                    break
                assert pulled.code == ResponseCode.SUCCESS, pulled.remark
                for body in bodies_of(pulled):
                    history.add(Received(body.decode(), TOPIC, queue_id, offset, member="only"))
                    offset += 1


@pytest.mark.parametrize("end", [BlockingBroker.stop, BlockingBroker.kill], ids=["stop", "kill"])
def test_nothing_that_was_acknowledged_is_lost_doubled_or_out_of_order(
    end: Callable[[BlockingBroker], None],
) -> None:
    history = History()
    with LocalCluster() as cluster:
        cluster.create_topic(TOPIC, queues=SENDERS)
        address = cluster.broker.address
        threads = [
            threading.Thread(target=send_until_broken, args=(address, sender, history))
            for sender in range(SENDERS)
        ]
        for thread in threads:
            thread.start()
        while len(history.sends) < SENT_BEFORE_MIN:
            time.sleep(0.001)

        end(cluster.broker)
        for thread in threads:
            thread.join()
        cluster.broker.start()
        receive_all(address, history)

    history.claim()
    assert len(history.receipts) >= SENT_BEFORE_MIN
