"""The steps of the guide "Migrating from Apache RocketMQ", with a directory and a broker.conf.

A broker of Apache's stops, ours goes on with its directory under the same name and port, and hands
it back. Groups go on where they were each time, whoever has the directory.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from cometmq import Client
from tests.interop.apache import ApacheBroker
from tests.interop.broker import OurBroker
from tests.interop.cache import Cache
from tests.interop.nameserver import OurNameServer

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC, GROUP = "migrated", "billing"
SENT_EACH_TIME = 10
HANDLED_EACH_TIME = 6


def send(namesrv: str, whose: str) -> list[str]:
    bodies = [f"{whose} {number}" for number in range(SENT_EACH_TIME)]
    with Client(namesrv) as mq:
        producer = mq.producer()
        for body in bodies:
            producer.send(TOPIC, body, ordering_key="one queue", tag="paid", keys=body.split())
    return bodies


def handle(namesrv: str, count: int) -> list[str]:
    """What the group gets next; it says how far it is."""
    taken: list[str] = []
    with (
        Client(namesrv) as mq,
        mq.lite_consumer(GROUP, codec=str, start="first", pull_count=1) as lite,
    ):
        lite.subscribe(TOPIC)
        while len(taken) < count:
            got = lite.poll(timeout_ms=30_000)
            assert got, taken
            taken += [message.value for message in got]
        lite.commit()
    return taken


def complaints_about(root: Path, conf: Path) -> tuple[int, str]:
    """What ``cometmq store check`` says, with the broker's own settings."""
    done = subprocess.run(
        [sys.executable, "-m", "cometmq", "store", "check", str(root), "-c", str(conf)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("release", ["4.9.7", "5.5.0"])
def test_a_broker_changes_hands_with_its_directory_and_its_groups_go_on(
    release: str, cache: Cache, tmp_path: Path
) -> None:
    with OurNameServer(tmp_path / "namesrv") as server:
        namesrv = server.address
        apache = ApacheBroker(cache, release, tmp_path / "apache", namesrv=namesrv)
        try:
            sent = send(namesrv, "apache")
            handled = handle(namesrv, HANDLED_EACH_TIME)
            assert apache.process.stop(timeout_s=60) in (0, 143)
        finally:
            apache.kill()
        conf = tmp_path / "broker.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in apache.settings.items()))
        assert complaints_about(apache.store_path, conf) == (0, "")

        ours = OurBroker(tmp_path / "ours", namesrv=namesrv, settings=apache.settings)
        try:
            sent += send(namesrv, "ours")
            handled += handle(namesrv, HANDLED_EACH_TIME)
            assert ours.stop() == 0
        finally:
            ours.kill()
        assert complaints_about(apache.store_path, conf) == (0, "")

        again = ApacheBroker(
            cache, release, tmp_path / "again", namesrv=namesrv, settings=apache.settings
        )
        try:
            sent += send(namesrv, "again")
            handled += handle(namesrv, len(sent) - len(handled))
        finally:
            again.kill()

    assert handled == sent
