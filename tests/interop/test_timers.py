"""Messages with a time of delivery: Apache's client with our broker, and a directory that Apache's
broker of 5.5.0 and ours have in turn while messages wait in it.
"""

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from cometmq.codec import properties
from cometmq.store import MessageStore, StoreSettings
from tests.interop import asking, java, requirements
from tests.interop.apache import ApacheBroker
from tests.interop.broker import OurBroker
from tests.interop.cache import Cache
from tests.interop.clients import Event
from tests.interop.commands import run
from tests.interop.feature_shell import FeatureProgram
from tests.interop.nameserver import OurNameServer
from tests.interop.ports import free_port_triple
from tests.interop.store_kit import STOP_TIMEOUT_S, read_queue

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(600)]

RELEASE = "5.5.0"
TOPIC = "Timed"
QUEUES = 2
MAIN = "cometmq.timers.TimedSends"
PROGRAM_TIMEOUT_S = 60.0
# A step of the wheel, and what a busy machine may add to it.
LATE_MS_MAX = 1000 + 1500
SETTINGS = {"recallMessageEnable": "true", "mappedFileSizeTimerLog": "4096"}

NewProgram = Callable[..., FeatureProgram]


class TimedSender:
    """Apache's producer of 5.5.0, started anew for each call."""

    def __init__(self, cache: Cache, namesrv: str, home: Path) -> None:
        requirements.need("java")
        self._class_path = java.compiled(cache, f"client-{RELEASE}", "support", "timers")
        self._namesrv = namesrv
        self._home = home

    def send(self, *said: str) -> dict[str, Event]:
        """Send ``BODY:WAY:MILLISECONDS[:recall]`` for each; what became of them by body."""
        argv = java.command(self._class_path, MAIN, [self._namesrv, TOPIC, *said], home=self._home)
        lines = run(argv, timeout_s=PROGRAM_TIMEOUT_S).splitlines()
        events = [json.loads(line) for line in lines if line.startswith('{"event"')]
        assert len(events) == len(said), lines
        return {event["body"]: event for event in events}


def test_apaches_client_has_messages_delivered_at_their_time_and_takes_some_back(
    cache: Cache, new_program: NewProgram, tmp_path: Path
) -> None:
    with (
        OurNameServer(tmp_path / "namesrv") as namesrv,
        OurBroker(tmp_path / "broker", namesrv=namesrv.address, settings=SETTINGS) as broker,
    ):
        asking.create_topic(broker.address, TOPIC, queues=QUEUES)
        asking.wait_until_known([namesrv.address], TOPIC)
        sender = TimedSender(cache, namesrv.address, tmp_path / "client")
        program = new_program(f"java-{RELEASE}")
        consumer = program.consume("timed", group="G_timed", namesrv=namesrv.address, topic=TOPIC)

        sent = sender.send(
            "past:deliver:-5000",
            "deliver:deliver:3500",
            "delay:delay:2500",
            "seconds:seconds:4000",
            "recalled:delay:4500:recall",
            "also-recalled:deliver:3000:recall",
            "last:delay:6000",
            "too-far:delay:300000000",
        )
        wanted = ["past", "deliver", "delay", "seconds", "last"]
        events = consumer.wait_for(wanted)

    assert {
        body: event["outcome"] for body, event in sent.items() if body != "too-far"
    } == dict.fromkeys((*wanted, "recalled", "also-recalled"), "SEND_OK")
    assert "timer message illegal" in sent["too-far"]["outcome"]
    for body in ("recalled", "also-recalled"):
        assert sent[body]["recalled"] == sent[body]["messageId"]
    assert Counter(event["body"] for event in events) == Counter(wanted)
    for event in events:
        if event["body"] != "past":
            told = sent[event["body"]]
            begin_ms = event["beginUs"] / 1000
            assert told["deliverMs"] - 20 <= begin_ms <= told["latestMs"] + LATE_MS_MAX, event


def test_a_recall_is_refused_where_it_is_not_allowed(cache: Cache, tmp_path: Path) -> None:
    """As with 5.5.0 it is not, unless the settings say so."""
    with (
        OurNameServer(tmp_path / "namesrv") as namesrv,
        OurBroker(tmp_path / "broker", namesrv=namesrv.address) as broker,
    ):
        asking.create_topic(broker.address, TOPIC, queues=QUEUES)
        asking.wait_until_known([namesrv.address], TOPIC)
        sender = TimedSender(cache, namesrv.address, tmp_path / "client")

        sent = sender.send("kept:delay:60000:recall")

    assert "operation is forbidden" in sent["kept"]["outcome"]


def test_a_directory_with_waiting_messages_goes_from_apache_to_ours_and_back(
    cache: Cache, tmp_path: Path
) -> None:
    """Each is delivered once: by whom it was left to, or by the next one if nobody ran then."""
    root = tmp_path / "store"
    settings = {
        **SETTINGS,
        "listenPort": str(free_port_triple()),
        "storePathRootDir": str(root),
        "storePathCommitLog": str(root / "commitlog"),
    }
    with OurNameServer(tmp_path / "namesrv") as server:
        namesrv = server.address
        sender = TimedSender(cache, namesrv, tmp_path / "client")

        with ApacheBroker(
            cache, RELEASE, tmp_path / "first", namesrv=namesrv, settings=settings
        ) as apaches:
            introduce(apaches.address, namesrv)
            begin = time.monotonic()
            first = sender.send(
                *(f"a-early-{number}:delay:{1500 + 100 * number}" for number in range(5)),
                *(f"a-away-{number}:delay:{6000 + 300 * number}" for number in range(60)),
                *(f"a-ours-{number}:delay:{35000 + 500 * number}" for number in range(20)),
                *(f"a-back-{number}:delay:{62000 + 500 * number}" for number in range(10)),
                "a-gone:delay:40000:recall",
                "a-far:seconds:250000000",
            )
            wait_until_stored(apaches.address, 5)
            apaches.process.stop(timeout_s=STOP_TIMEOUT_S)

        with OurBroker(tmp_path / "ours", namesrv=namesrv, settings=settings) as ours:
            introduce(ours.address, namesrv)
            second = sender.send(
                "o-early:delay:1500",
                *(f"o-back-{number}:deliver:{32000 + 200 * number}" for number in range(50)),
                "o-gone:delay:34000:recall",
                "o-far:seconds:250000000",
            )
            wait_until_stored(ours.address, 5 + 60 + 20 + 1)
            print(f"ours is done after {time.monotonic() - begin:.1f} s")
            assert ours.stop() == 0

        with ApacheBroker(
            cache, RELEASE, tmp_path / "second", namesrv=namesrv, settings=settings
        ) as apaches:
            introduce(apaches.address, namesrv)
            third = sender.send("b-early:delay:1500")
            wait_until_stored(apaches.address, 5 + 60 + 20 + 1 + 10 + 50 + 1)
            time.sleep(2)  # for what should not come
            apaches.kill()

    sent = {**first, **second, **third}
    wanted = {body for body in sent if not body.endswith(("-gone", "-far"))}
    assert {event["outcome"] for event in sent.values()} == {"SEND_OK"}
    claim_delivered_once(root, wanted, sent)


def introduce(address: str, namesrv: str) -> None:
    """A broker that has just come tells its name servers of a topic when that is made."""
    asking.create_topic(address, TOPIC, queues=QUEUES)
    asking.wait_until_known([namesrv], TOPIC)


def wait_until_stored(address: str, count: int) -> None:
    asking.wait_until(
        lambda: asking.stored_count(address, TOPIC, queues=QUEUES) >= count,
        f"{count} messages",
        timeout_s=120.0,
    )


def claim_delivered_once(root: Path, wanted: set[str], sent: dict[str, Event]) -> None:
    with MessageStore.open(root, StoreSettings(root=root)) as store:
        found = [item for queue_id in range(QUEUES) for item in read_queue(store, TOPIC, queue_id)]
    assert Counter(item.body.decode() for item in found) == Counter(wanted)
    for item in found:
        named = properties.decode(item.properties)
        event = sent[item.body.decode()]
        deliver_ms = event["deliverMs"]
        # Brokers round to the steps of their wheels.
        assert deliver_ms - 1001 <= int(named["TIMER_OUT_MS"]) <= event["latestMs"] + 1000, event
        assert item.store_timestamp >= deliver_ms - 20
