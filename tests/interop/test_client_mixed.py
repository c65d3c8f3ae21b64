"""Our Python client and Java's together: in one group, and reading what the other has sent.

Each pair of a broker and a release of Java's client runs through all of it. All members run in
processes of their own, so that any of them can be killed.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from cometmq.client.core.outgoing import COMPRESSIONS
from cometmq.codec.sysflag import compression_type
from cometmq.testing.history import Rules
from tests.interop import client_clusters
from tests.interop.cache import Cache
from tests.interop.client_clusters import NEW, OLD, OURS, QUEUES, Cluster, Clusters, params_of
from tests.interop.client_kit import (
    java_program,
    our_program,
    queues_of,
    share_queues,
    wait_for_all,
)
from tests.interop.clients import Event
from tests.interop.feature_kit import (
    AT_LEAST_ONCE,
    Message,
    Trial,
    bodies,
    handled,
    in_file,
    numbered,
)
from tests.interop.feature_shell import Consumer, FeatureProgram

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(150)]

PAIRS = ((OURS, "4.9.8"), (OURS, "5.5.0"), (OLD, "4.9.8"), (NEW, "5.5.0"))
ALL_QUEUES = set(range(QUEUES))
# Small enough to be told in an event, large enough to be compressed.
COMPRESS_OVER = 1000

NewProgram = Callable[[str], FeatureProgram]


@dataclass(frozen=True, slots=True)
class Pair:
    """A cluster, and both clients at work on it."""

    cluster: Cluster
    ours: FeatureProgram
    java: FeatureProgram
    java_version: str

    def __str__(self) -> str:
        return f"{self.cluster.release}-java-{self.java_version}"


@pytest.fixture(scope="module")
def clusters(
    request: pytest.FixtureRequest, cache: Cache, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Clusters]:
    with client_clusters.shared(request, cache, tmp_path_factory) as started:
        started.want(release for release, _ in params_of(request, "pair"))
        yield started


@pytest.fixture(scope="module")
def new_member(cache: Cache, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewProgram]:
    """``new_member("ours")`` or ``new_member("4.9.8")``: a program of that client."""
    with ExitStack() as stack:

        def start(name: str) -> FeatureProgram:
            folder = tmp_path_factory.mktemp(f"member-{name}")
            is_ours = name == OURS
            program = our_program(folder) if is_ours else java_program(cache, name, folder)
            return stack.enter_context(program)

        yield start


@pytest.fixture(scope="module")
def shared_member(new_member: NewProgram) -> NewProgram:
    """The one program of a client that all tests share."""
    started: dict[str, FeatureProgram] = {}

    def get(name: str) -> FeatureProgram:
        if name not in started:
            started[name] = new_member(name)
        return started[name]

    return get


@pytest.fixture(scope="module", params=PAIRS, ids=lambda pair: "-with-java-".join(pair))
def pair(request: pytest.FixtureRequest, clusters: Clusters, shared_member: NewProgram) -> Pair:
    release, version = request.param
    return Pair(clusters.get(release), shared_member(OURS), shared_member(version), version)


@pytest.fixture
def trial(pair: Pair, topic: str) -> Iterator[Trial]:
    """Our client at work on a topic of its own, with four queues."""
    started = Trial(pair.cluster, pair.ours, topic)
    started.create_topic(queues=QUEUES)
    yield started
    started.close()


# --- what the other has sent


def test_java_reads_what_we_send(pair: Pair, trial: Trial, tmp_path: Path) -> None:
    consumer = trial.consume("java", program=pair.java)

    sent = exchange(trial, pair, tmp_path)

    claim_exchanged(trial, consumer, sent)


def test_we_read_what_java_sends(pair: Pair, trial: Trial, tmp_path: Path) -> None:
    by_java = replace(trial, program=pair.java)
    consumer = trial.consume("ours")

    sent = exchange(by_java, pair, tmp_path)

    claim_exchanged(by_java, consumer, sent)


def test_both_choose_the_same_queue_for_an_ordering_key(pair: Pair, trial: Trial) -> None:
    by_java = replace(trial, program=pair.java)
    # The hash of the last is the least of all numbers, which has no absolute value in Java.
    keys = ["a", "order-17", "Größe", "🚚", "polygenelubricants"]

    ours = trial.send([{"hashKey": key, "body": f"ours-{key}"} for key in keys])
    theirs = by_java.send([{"hashKey": key, "body": f"java-{key}"} for key in keys])

    assert [event["queueId"] for event in ours] == [event["queueId"] for event in theirs]


# --- one group


def test_we_take_over_the_queues_of_a_killed_java_member(
    pair: Pair, trial: Trial, new_member: NewProgram
) -> None:
    with new_member(pair.java_version) as doomed:
        take_over(trial, pair.ours, doomed)


def test_java_takes_over_the_queues_of_a_killed_member_of_ours(
    pair: Pair, trial: Trial, new_member: NewProgram
) -> None:
    with new_member(OURS) as doomed:
        take_over(trial, pair.java, doomed)


# --- what the tests use


def exchange(sender: Trial, pair: Pair, folder: Path) -> dict[str, Event]:
    """Send in every way, and give what was acknowledged of the single messages, by body."""
    facts: Message = {"tags": "TagA", "keys": "key-1", "properties": {"colour": "blue", "é": "ü"}}
    single = numbered(8, "sync", **facts)
    events = sender.send(single)
    sender.send(numbered(8, "async"), mode="async")
    sender.send(numbered(8, "oneway"), mode="oneway")
    sender.send([{**message, **facts} for message in numbered(8, "batch")], mode="batch")
    kinds = ("zlib", "lz4", "zstd") if pair.java_version == "5.5.0" else ("zlib",)
    for kind in kinds:
        packed = [
            {**message, "body": message["body"] + " blank" * 500}
            for message in numbered(2, f"packed-{kind}")
        ]
        sender.send(packed, compressOver=COMPRESS_OVER, compression=kind.upper())
    sender.send([in_file(folder / "big", big())], compressOver=8 << 20)
    return dict(zip(bodies(single), events, strict=True))


def big() -> bytes:
    """Near the limit."""
    return bytes(range(256)) * 16_380


def claim_exchanged(sender: Trial, consumer: Consumer, sent: dict[str, Event]) -> None:
    consumer.wait_for([one.key for one in sender.sent])
    sha256 = hashlib.sha256(big()).hexdigest()
    received = consumer.wait(
        lambda events: any(event["sha256"] == sha256 for event in events), "the big one"
    )
    for body, event in sent.items():
        (arrived,) = handled(received, body)
        assert arrived["msgId"] == event["msgId"]
    for event in received:
        if event.get("body", "").startswith(("sync", "batch")):
            assert (event["tags"], event["keys"]) == ("TagA", "key-1")
            assert event["properties"].items() >= {"colour": "blue", "é": "ü"}.items()
        if event.get("body", "").startswith("packed"):
            assert event["storeSize"] < event["size"] // 2, event
            # Our program tells how it came.
            flag = event.get("sysFlag")
            assert (
                flag is None
                or compression_type(flag) == COMPRESSIONS[event["body"][7:].split("-")[0]]
            )
    known = [event for event in received if "body" in event]
    assert len({event["queueId"] for event in known if event["body"].startswith("batch")}) == 1
    assert len(known) == len(sender.sent)


class Group:
    """A member that stays and one that is going to be killed while it is at work."""

    def __init__(self, trial: Trial, staying: FeatureProgram, doomed: FeatureProgram) -> None:
        self._trial = trial
        self._programs = {"staying": staying, "doomed": doomed}

    def join(self, name: str, **options: Any) -> tuple[Consumer, Consumer]:
        """Return once they share the queues."""
        group = f"{name}_{self._trial.topic}"
        staying, doomed = (
            self._trial.consume(f"{name}_{role}", program=program, group=group, **options)
            for role, program in self._programs.items()
        )
        share_queues(self._trial, name, staying, doomed)
        return staying, doomed


def take_over(trial: Trial, staying: FeatureProgram, doomed: FeatureProgram) -> None:
    """Two groups share the queues; the members of one program are killed at work.

    Who consumes in order has locked the queue at the broker, in either client.
    """
    group = Group(trial, staying, doomed)
    concurrent = group.join("concurrent", holdMs=10, threads=1)
    orderly = group.join("orderly", orderly=True, holdMs=2)
    steady = keyed(8, "steady")
    trial.send(steady, mode="sync")
    for members in (concurrent, orderly):
        wait_for_all(members, bodies(steady))
        shares = [queues_of(member, bodies(steady)) for member in members]
        assert not shares[0] & shares[1]
        assert shares[0] | shares[1] == ALL_QUEUES

    interrupted = keyed(8, "interrupted")
    trial.send(interrupted, mode="sync")
    doomed.stop()
    after = keyed(4, "after")
    trial.send(after, mode="sync")

    for members in (concurrent, orderly):
        wait_for_all(members, [sent.key for sent in trial.sent])
        assert queues_of(members[0], bodies(after)) == ALL_QUEUES
    trial.claim(AT_LEAST_ONCE, *concurrent)
    trial.claim(Rules(may_repeat=True), *orderly)


def keyed(count: int, prefix: str) -> list[Message]:
    """So many for each of several keys, which together have all queues."""
    return [
        {"body": f"{prefix}-{key}-{number}", "hashKey": key}
        for number in range(count)
        for key in "abcdefgh"
    ]
