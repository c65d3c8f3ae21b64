"""Apache's broker and our store on one directory in turn: each reads what the other wrote."""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from cometmq.codec import message_id, properties
from cometmq.codec.java import string_hash
from cometmq.codec.properties import Property
from cometmq.codec.record import Record
from cometmq.store import MessageStore
from cometmq.store.check import Severity, check
from tests.interop import asking, store_writer
from tests.interop.apache import VERSIONS
from tests.interop.cache import Cache
from tests.interop.clients import Event
from tests.interop.store_kit import (
    DEFAULT,
    LATER_LEVEL,
    LATER_S,
    QUEUES_OF_TOPICS,
    SMALL,
    SMALL_REBUILT,
    Facts,
    Ground,
    Queue,
    Scenario,
    append_some,
    facts,
    find,
    read_all,
    read_at,
    read_queue,
)
from tests.interop.store_shell import StoreShell

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(600)]

SCENARIOS = [
    *(Scenario(release, "small") for release in VERSIONS),
    *(Scenario(release, "default", DEFAULT) for release in VERSIONS),
    Scenario(
        "5.5.0",
        "two-log-folders-and-extended-queues",
        {**SMALL, "enableConsumeQueueExt": "true"},
        log_folders=("log-a", "log-b"),
    ),
]

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
QUEUES = [(topic, queue) for topic, count in QUEUES_OF_TOPICS.items() for queue in range(count)]
QUESTIONS = [
    ("Keys", "group-3"),
    ("Keys", "key-17"),
    ("Batch", "batch-10-4"),
    ("Tran", "tran-COMMIT_MESSAGE-0"),
    ("Tran", "tran-ROLLBACK_MESSAGE-0"),
    ("Delay", "delay-1-1"),
    ("Big", "packed-2"),
]
DELIVERED = 2
ACKNOWLEDGED_BEFORE_KILL = 1500
STORM_THREADS = 4


@dataclass(frozen=True, slots=True)
class Filled:
    """A store full of messages of every kind, and what the client learned before the broker ended.

    ``sent`` are its sends, ``pulled`` what it then got from the topics, ``found`` the offsets of
    each key, ``times`` its searches by time.
    """

    ground: Ground
    sent: list[Event]
    pulled: dict[Queue, list[Facts]]
    found: dict[tuple[str, str], list[int]]
    times: list[Event]


@pytest.fixture(scope="module")
def shell(
    cache: Cache, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], StoreShell]]:
    """``shell("4.9.7")``: the client for brokers of a release, one JVM for all tests."""
    started: dict[str, StoreShell] = {}
    with ExitStack() as stack:

        def get(release: str) -> StoreShell:
            if release not in started:
                folder = tmp_path_factory.mktemp(f"store-shell-{release}")
                started[release] = stack.enter_context(StoreShell(cache, release, folder))
            return started[release]

        yield get


@pytest.fixture(scope="module")
def filled(
    request: pytest.FixtureRequest,
    cache: Cache,
    tmp_path_factory: pytest.TempPathFactory,
    shell: Callable[[str], StoreShell],
) -> Iterator[Mapping[str, Filled]]:
    """The stores of all scenarios that will be tested, by name; their brokers were asked to stop.

    They end side by side: a polite end takes up to twenty seconds, most of it waiting.
    """
    with ExitStack() as stack:
        stores = {}
        for scenario in chosen_scenarios(request.session.items):
            folder = tmp_path_factory.mktemp(str(scenario))
            ground = stack.enter_context(Ground(cache, scenario, folder))
            stores[str(scenario)] = fill(ground, shell(scenario.release))
        yield stores


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_a_store_goes_from_apache_to_ours_and_back(
    scenario: Scenario, filled: Mapping[str, Filled], shell: Callable[[str], StoreShell]
) -> None:
    """Ours reads all of it in every way and appends; Apache's serves old and new and goes on."""
    store_of_apache = filled[str(scenario)]
    ground = store_of_apache.ground
    ground.wait_stopped()
    claim_laid_out(ground)
    claim_consistent(ground)

    with ground.open_store() as store:
        claim_read_by_offset(store, store_of_apache)
        claim_sent_are_there(store, store_of_apache.sent)
        claim_read_by_tag(store)
        claim_found_by_key(store, store_of_apache)
        claim_found_by_time(store, store_of_apache)
        append_some(store, ground.host)
        expected, log_end = described(read_all(store)), store.log_end
    claim_consistent(ground)

    ground.start_broker()
    later = claim_goes_on(ground, shell(scenario.release), log_end)
    expected["Delay", 0].append(later)
    claim_served(ground, shell(scenario.release), expected)
    claim_nothing_was_cut(ground, log_end)
    ground.broker.kill()

    claim_still_there(ground, expected)


@pytest.mark.parametrize("release", VERSIONS)
def test_what_apache_acknowledged_before_it_was_killed_is_in_our_store(
    release: str, cache: Cache, tmp_path: Path, shell: Callable[[str], StoreShell]
) -> None:
    """Killed in mid-write, mended by ours, appended to, and handed back."""
    with Ground(cache, Scenario(release, "killed", SMALL_REBUILT), tmp_path) as ground:
        ground.start_broker()
        acknowledged = send_until_killed(ground, shell(release))
        assert (ground.root / "abort").exists()

        with ground.open_store() as store:
            claim_acknowledged(store, acknowledged)
            append_some(store, ground.host)
            expected, log_end = described(read_all(store)), store.log_end
        claim_consistent(ground)

        ground.start_broker()
        claim_served(ground, shell(release), expected)
        claim_nothing_was_cut(ground, log_end)
        ground.broker.kill()
        claim_still_there(ground, expected)


@pytest.mark.parametrize("release", VERSIONS)
def test_apache_serves_what_our_store_took_before_it_was_killed(
    release: str, cache: Cache, tmp_path: Path, shell: Callable[[str], StoreShell]
) -> None:
    """A killed process loses nothing it took, and Apache's recovery finds all of it."""
    with Ground(cache, Scenario(release, "ours-killed", SMALL_REBUILT), tmp_path) as ground:
        with store_writer.start(ground) as writer:
            writer.wait_until_printed("2000 puts")
            writer.kill()
        taken = store_writer.acknowledged(writer)

        ground.start_broker()
        queues = [("Storm", queue_id) for queue_id in range(QUEUES_OF_TOPICS["Storm"])]
        served = by_queue(shell(release).pull(ground, queues))
        ground.broker.kill()

        unsaid = {
            (message["queueId"], message["queueOffset"]): message
            for message in itertools.chain.from_iterable(served.values())
        }
        for event in taken:
            message = unsaid.pop((event["queueId"], event["queueOffset"]))
            assert {name: message[name] for name in event} == event
        # Only of the put that was under way it had no time to tell.
        assert len(unsaid) <= store_writer.BATCH_SIZE, unsaid
        with ground.open_store() as store:
            claim_same(described(read_all(store)), served)
        claim_consistent(ground)


def chosen_scenarios(items: Iterable[pytest.Item]) -> list[Scenario]:
    """The scenarios of the tests in this session that want a filled store."""
    chosen = {}
    for item in items:
        wants = {"filled", "scenario"}  # other modules have something of the first name, too
        if isinstance(item, pytest.Function) and wants <= set(item.fixturenames):
            scenario = item.callspec.params["scenario"]
            assert isinstance(scenario, Scenario)
            chosen[str(scenario)] = scenario
    return list(chosen.values())


def fill(ground: Ground, shell: StoreShell) -> Filled:
    """Have everything sent and looked at; last comes a message for when the broker is back."""
    broker = ground.start_broker()
    sent = shell("fill", ground)
    asking.wait_until(
        lambda: asking.stored_count(broker.address, "Delay", queues=1) == DELIVERED, "delivery"
    )
    asking.wait_until(
        lambda: asking.stored_count(broker.address, "Tran", queues=2) == 2, "committed messages"
    )
    pulled = by_queue(shell.pull(ground, QUEUES))
    keys = ",".join(f"{topic}@{key}" for topic, key in QUESTIONS if "ROLLBACK" not in key)
    found: dict[tuple[str, str], list[int]] = {question: [] for question in QUESTIONS}
    for event in shell("query", ground, keys=keys):
        found[event["topic"], event["asked"]].append(event["commitLogOffset"])
    times = shell("search", ground, times=",".join(interesting_times(pulled)))
    shell("delay", ground, level=str(LATER_LEVEL))
    ground.ask_to_stop()
    return Filled(ground, sent, pulled, found, times)


def interesting_times(pulled: Mapping[Queue, list[Facts]]) -> Iterator[str]:
    for (topic, queue_id), messages in pulled.items():
        stored = [message["storeTimestamp"] for message in messages]
        some = {0, stored[0], stored[len(stored) // 2], stored[-1]}
        for time in sorted({*some, *(time + 1 for time in some), stored[-1] + 60_000}):
            yield f"{topic}@{queue_id}@{time}"


def send_until_killed(ground: Ground, shell: StoreShell) -> list[Event]:
    """Kill the broker while several threads send to it; what it had acknowledged by then."""
    acknowledged, ended = [], []
    for event in shell.events("storm", ground, topic="Storm", threads=str(STORM_THREADS)):
        if event["event"] == "sent":
            acknowledged.append(event)
        else:
            ended.append(event)
        if len(acknowledged) == ACKNOWLEDGED_BEFORE_KILL:
            ground.broker.kill()
    assert len(acknowledged) >= ACKNOWLEDGED_BEFORE_KILL, ended
    return acknowledged


def claim_laid_out(ground: Ground) -> None:
    assert all(any(folder.iterdir()) for folder in ground.log_folders)
    is_extended = (ground.root / "consumequeue_ext").exists()
    assert is_extended == ("enableConsumeQueueExt" in ground.settings)


def claim_consistent(ground: Ground) -> None:
    report = check(ground.root, ground.store_settings)

    assert report.count(Severity.ERROR) == 0, str(report)
    assert report.count(Severity.RECOVERABLE) == 0, str(report)


def claim_read_by_offset(store: MessageStore, apaches: Filled) -> None:
    read = described(read_all(store))

    claim_same({queue: read[queue] for queue in QUEUES if queue in read}, apaches.pulled)
    assert {(SCHEDULE_TOPIC, level - 1) for level in (1, LATER_LEVEL, 3)} <= read.keys()
    assert len(read[HALF_TOPIC, 0]) == 4


def claim_sent_are_there(store: MessageStore, sent: Iterable[Event]) -> None:
    for event in sent:
        kind, unique_id = event["kind"], event["uniqueId"]
        if kind.startswith("transaction"):
            claim_transaction(store, event)
            continue
        offset = message_id.decode_offset_id(event["offsetId"]).physical_offset
        item = read_at(store, offset)
        assert item.physical_offset == offset
        assert body_of(item) == event["body"]
        assert property_of(item, Property.KEYS) == event["keys"]
        assert property_of(item, Property.TAGS) == event["tags"]
        assert find(store, item.topic, unique_id) == [offset]
        if kind.startswith("delayed"):
            assert item.topic == SCHEDULE_TOPIC
        else:
            assert (item.topic, item.queue_id) == (event["topic"], event["queueId"])
            assert item.queue_offset == event["queueOffset"]


def claim_transaction(store: MessageStore, event: Event) -> None:
    """Both ends leave a half message; a commit makes a message of it."""
    (half,) = find(store, HALF_TOPIC, event["uniqueId"])
    found = [read_at(store, offset) for offset in find(store, "Tran", event["uniqueId"])]

    if event["kind"].endswith("COMMIT_MESSAGE"):
        assert [body_of(item) for item in found] == [event["body"]]
        assert [item.prepared_transaction_offset for item in found] == [half]
    else:
        assert found == []


def claim_read_by_tag(store: MessageStore) -> None:
    """Every tag of every topic; another tag with the same hash comes too."""
    for (topic, queue_id), items in read_all(store).items():
        # What waits for its time has that in place of the tag's hash.
        if topic == SCHEDULE_TOPIC:
            continue
        for code in {tag_hash(item) for item in items}:
            found = read_queue(store, topic, queue_id, tags=frozenset({code}))
            assert found == [item for item in items if tag_hash(item) == code], (topic, code)


def claim_found_by_key(store: MessageStore, apaches: Filled) -> None:
    found = {question: find(store, *question) for question in QUESTIONS}

    assert found == apaches.found
    assert len(found["Keys", "group-3"]) == 23


def claim_found_by_time(store: MessageStore, apaches: Filled) -> None:
    """What 4.9.7 answers lies nearby; see the tests of the golden directories."""
    for event in apaches.times:
        queue = event["topic"], event["queueId"]
        found = store.offset_at_time(*queue, event["timestamp"])

        times = [message["storeTimestamp"] for message in apaches.pulled[queue]]
        later = (number for number, time in enumerate(times) if time >= event["timestamp"])
        assert found == next(later, len(times)), event
        if apaches.ground.scenario.release.startswith("5."):
            assert found == event["offset"], event


def claim_acknowledged(store: MessageStore, acknowledged: Iterable[Event]) -> None:
    read = read_all(store)
    for event in acknowledged:
        item = read[event["topic"], event["queueId"]][event["queueOffset"]]
        offset = message_id.decode_offset_id(event["offsetId"]).physical_offset
        assert item.physical_offset == offset
        assert item.queue_offset == event["queueOffset"]
        assert property_of(item, Property.UNIQ_KEY) == event["uniqueId"]
        assert body_of(item) == event["body"]
        assert find(store, item.topic, event["uniqueId"]) == [offset]


def claim_goes_on(ground: Ground, shell: StoreShell, log_end: int) -> Facts:
    """The delayed message that was due meanwhile is delivered, as the next record of the log."""
    asking.wait_until(
        lambda: asking.stored_count(ground.broker.address, "Delay", queues=1) == DELIVERED + 1,
        "delivery after the restart",
        timeout_s=LATER_S + asking.EVENT_TIMEOUT_S,
    )
    *_, message = shell.pull(ground, [("Delay", 0)])

    size = int(ground.settings["mappedFileSizeCommitLog"])
    next_file = (log_end + size - 1) // size * size
    assert message["commitLogOffset"] in (log_end, next_file)
    assert message["properties"][Property.KEYS] == f"delay-{LATER_LEVEL}-0"
    return message


def claim_served(ground: Ground, shell: StoreShell, expected: Mapping[Queue, list[Facts]]) -> None:
    """A Java client gets every message of every queue, by offset, tag, key and id."""
    queues = ground.readable(expected)
    assert {topic for topic, _ in queues} >= {"Keys", "Batch", "Big", "Storm"}
    served = by_queue(shell.pull(ground, queues))
    claim_same(served, {queue: expected[queue] for queue in queues})

    for topic, tag in (("Tags", "Aa"), ("Keys", "tag2")):
        of_topic = [queue for queue in queues if queue[0] == topic]
        messages = itertools.chain.from_iterable(expected[queue] for queue in of_topic)
        with_tag = [item for item in messages if item["properties"].get(Property.TAGS) == tag]
        assert with_tag
        assert shell.pull(ground, of_topic, tag) == with_tag

    of_ours, of_apaches = expected["Keys", 0][-1], oldest_with_key(expected)
    for message in (of_ours, of_apaches):
        claim_found_by_client(ground, shell, message)


def oldest_with_key(expected: Mapping[Queue, list[Facts]]) -> Facts:
    of_topics = (message for queue in QUEUES for message in expected.get(queue, ()))
    with_key = (message for message in of_topics if Property.KEYS in message["properties"])
    return min(with_key, key=lambda message: int(message["commitLogOffset"]))


def claim_found_by_client(ground: Ground, shell: StoreShell, message: Facts) -> None:
    topic, offset = message["topic"], message["commitLogOffset"]
    key, *_ = message["properties"][Property.KEYS].split()
    unique_id = message["properties"][Property.UNIQ_KEY]
    offset_id = message_id.encode_offset_id(ground.host, offset)

    found = shell("query", ground, keys=f"{topic}@{key}")
    viewed = shell("view", ground, ids=f"{topic}@{unique_id},{topic}@{offset_id}")

    assert offset in [event["commitLogOffset"] for event in found]
    assert [event["commitLogOffset"] for event in viewed] == [offset, offset]


def claim_nothing_was_cut(ground: Ground, log_end: int) -> None:
    """The broker's log names the end it found; it says so although there is nothing to cut."""
    log = ground.store_log()
    ends = re.findall(r"maxPhyOffsetOfConsumeQueue\((\d+)\) >= processOffset\((\d+)\)", log)

    assert set(itertools.chain.from_iterable(ends)) <= {str(log_end)}
    assert ground.log_end() >= log_end
    assert " ERROR " not in log, log


def claim_still_there(ground: Ground, expected: Mapping[Queue, list[Facts]]) -> None:
    """Ours opens what Apache's left when it was killed and finds the same."""
    with ground.open_store() as store:
        found = described(read_all(store))
    claim_same(found, expected)
    claim_consistent(ground)


def claim_same(found: Mapping[Queue, list[Facts]], expected: Mapping[Queue, list[Facts]]) -> None:
    """Message by message, so that a failure shows the one that differs."""
    assert sizes(found) == sizes(expected)
    for queue, messages in expected.items():
        for message, same in zip(found[queue], messages, strict=True):
            assert message == same


def sizes(messages: Mapping[Queue, list[Facts]]) -> dict[Queue, int]:
    return {queue: len(of_queue) for queue, of_queue in messages.items()}


def by_queue(messages: Iterable[Facts]) -> dict[Queue, list[Facts]]:
    found: dict[Queue, list[Facts]] = {}
    for message in messages:
        found.setdefault((message["topic"], message["queueId"]), []).append(message)
    return found


def described(read: Mapping[Queue, list[Record]]) -> dict[Queue, list[Facts]]:
    return {queue: [facts(item) for item in items] for queue, items in read.items()}


def body_of(item: Record) -> str:
    body: str = facts(item)["body"]
    return body


def property_of(item: Record, name: str) -> str | None:
    return properties.get(item.properties, name.encode())


def tag_hash(item: Record) -> int:
    return string_hash(property_of(item, Property.TAGS) or "")
