"""What ``cometmq up`` leaves behind, Apache's broker goes on with, and the other way round."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cometmq.codec import java_properties, record
from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.pull import PullMessage
from cometmq.codec.headers.send import SendMessageV2
from cometmq.store.check import check
from tests.interop import asking
from tests.interop.apache import ApacheBroker
from tests.interop.cache import Cache
from tests.interop.nameserver import OurNameServer
from tests.interop.ports import LOOPBACK, free_port, free_port_triple, is_free
from tests.interop.processes import Process

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC = "handed-over"
COUNT = 5
# A test machine's disk may be fuller than Apache's broker likes.
TOLERANT = {"diskMaxUsedSpaceRatio": "95"}


@pytest.mark.parametrize("release", ["4.9.7", "5.5.0"])
def test_apaches_broker_opens_the_store_of_up_with_its_broker_conf(
    release: str, cache: Cache, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with up(data) as broker:
        send(broker, b"ours")

    with OurNameServer(tmp_path / "namesrv") as namesrv:
        settings = {**java_properties.loads((data / "broker.conf").read_bytes()), **TOLERANT}
        settings["namesrvAddr"] = namesrv.address
        folder = tmp_path / "apache"
        apache = ApacheBroker(cache, release, folder, namesrv=namesrv.address, settings=settings)
        try:
            found = pulled(apache.address)
            send(apache.address, b"theirs")
            apache.process.stop(timeout_s=60)
        finally:
            apache.kill()

    with up(data) as broker:
        again = pulled(broker)
    ours, theirs = bodies_of(b"ours"), bodies_of(b"theirs")
    assert found == ours
    assert again == ours + theirs
    report = check(data / "store")
    assert report.is_consistent, report


@contextmanager
def up(data: Path) -> Iterator[str]:
    """``cometmq up`` on ``data``; the broker's address."""
    port, namesrv_port = free_port_triple(), free_port()
    argv = [sys.executable, "-m", "cometmq", "up", "--data", str(data)]
    argv += ["--port", str(port), "--namesrv-port", str(namesrv_port)]
    with Process("up", argv, folder=data.parent, env={"HOME": str(data.parent)}) as process:
        process.wait_until_printed(f"broker listens on {LOOPBACK}:{port}")
        asking.wait_until(lambda: not is_free(port), "the broker listens")
        yield f"{LOOPBACK}:{port}"


def bodies_of(whose: bytes) -> list[bytes]:
    return [b"%b %d" % (whose, number) for number in range(COUNT)]


def send(broker: str, whose: bytes) -> None:
    now_ms = time.time_ns() // 1_000_000
    for body in bodies_of(whose):
        key = f"UNIQ_KEY\x01{body.hex().upper()}\x02"
        header = SendMessageV2("writers", TOPIC, "TBW102", 4, 0, 0, now_ms, 0, key)
        asking.ask_well(broker, RequestCode.SEND_MESSAGE_V2, header, body)


def pulled(broker: str) -> list[bytes]:
    """Every message of the first queue."""
    header = PullMessage("readers", TOPIC, 0, 0, 32, 0x4, 0, 0, "*", 0)
    answer = asking.ask_well(broker, RequestCode.PULL_MESSAGE, header)
    return [item.body for item in record.parse_all(answer.body)]
