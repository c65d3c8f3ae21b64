"""Plain pulls are answered as the plain code answers them, whichever core is active."""

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from cometmq.codec import command as commands
from cometmq.codec import core, pulls, queue_entry
from cometmq.codec.codes import RequestCode
from cometmq.codec.command import Command, CommandFlag
from cometmq.codec.headers.pull import PullMessage, PullMessageResponse
from cometmq.codec.pulls import COMMIT_OFFSET, JOINED_BYTES_MAX, SUBSCRIPTION, SUSPEND

FILE_BYTES = 4096
RECORD_BYTES = 100
LIMITS = (32, 10_000, 8, 2_000, 100)
RED, BLUE = 7, 9


class Queue:
    """A queue in one file, whose n-th record lies at ``offsets[n]``."""

    def __init__(self, offsets: list[int], size: int = RECORD_BYTES, min_offset: int = 0) -> None:
        tags = [RED if number % 3 else BLUE for number in range(len(offsets))]
        entries = (
            queue_entry.pack(*entry)
            for entry in zip(offsets, [size] * len(tags), tags, strict=True)
        )
        self.data = b"".join(entries)
        self.min_offset = min_offset
        self.max_offset = len(offsets)
        self.file_bytes = 100 * queue_entry.ENTRY_BYTES
        self.extension: object | None = None
        self.has_file = True

    def bytes_at(self, position: int) -> tuple[bytes, int]:
        if not self.has_file:
            raise FileNotFoundError
        return self.data.ljust(self.file_bytes, b"\0"), 0


class Log:
    """Files of one size from ``begin`` on, filled with bytes that tell where they are."""

    def __init__(self, begin: int, count: int) -> None:
        self.begin = begin
        self.end = begin + count * FILE_BYTES

    def holds(self, data: bytes) -> None:
        """From here on there is one file, with this in it."""
        file = log_file(self.begin, data)
        self.find = lambda _: file  # type: ignore[method-assign, assignment]

    def find(self, offset: int) -> Any:
        begin = offset - offset % FILE_BYTES
        if not self.begin <= begin < self.end:
            return None
        return log_file(begin, log_bytes(begin, begin + FILE_BYTES))


class Place:
    """A topic with three queues, and a group that may pull from two of them."""

    def __init__(self, kind: Any, plan_kind: Any) -> None:
        self.log = Log(2 * FILE_BYTES, 4)
        base = self.log.begin
        scattered = [base + 250 * number for number in range(40)]
        self.queues = {"orders": {number: Queue(scattered) for number in range(3)}}
        self.online: dict[str, Any] = {}
        self.committed: list[tuple[str, str, int, int]] = []
        self.taken = [0, 0]
        self.pulled: dict[int, int] = {}
        self.tail = kind(self.log, self.queues, self.online, core.read, answer, self.commit)
        self.plan_kind = plan_kind

    def plan(self, header: PullMessage, *, tags: frozenset[int] | None = None) -> None:
        online = None if header.sys_flag & SUBSCRIPTION else self.online[header.consumer_group]
        self.tail.plans[header.consumer_group, header.topic] = self.plan_kind(
            header, 2, tags, LIMITS, self.taken, self.pulled, online
        )

    def commit(self, *facts: Any) -> None:
        self.committed.append(facts)

    def take(self, *asked: Command) -> tuple[int, list[bytes]]:
        frames: list[bytes] = []
        end = self.tail.take(asked, 0, PullMessage, 0, self.log.end, frames)
        return end, frames


def active() -> Place:
    return Place(core.PullTail, core.PullPlan)


def plain() -> Place:
    return Place(pulls.PullTail, pulls.PullPlan)


def log_file(begin: int, data: bytes) -> Any:
    return SimpleNamespace(begin=begin, view=memoryview(data))


def log_bytes(begin: int, end: int) -> bytes:
    return bytes((position * 7 + position // 251) % 256 for position in range(begin, end))


def answer(form: int, opaque: int, offset: int, low: int, high: int, size: int) -> bytes:
    header = PullMessageResponse(0, offset, low, high, 0, 0)
    return core.encode_head(form, 0, opaque, 1, "FOUND", header, size)


def wanted(**changes: Any) -> PullMessage:
    fields: dict[str, Any] = {
        "consumer_group": "g", "topic": "orders", "queue_id": 0, "queue_offset": 0,
        "max_msg_nums": 32, "sys_flag": SUBSCRIPTION | SUSPEND, "commit_offset": 0,
        "suspend_timeout_millis": 15_000, "subscription": "*", "sub_version": 5, **changes,
    }  # fmt: skip
    return PullMessage(**fields)


def pull(
    *,
    opaque: int = 1,
    form: int = 0,
    oneway: bool = False,
    decode: Callable[[bytes], tuple[list[Command], int]] = core.decode_frames,
    **changes: Any,
) -> Command:
    """A pull as it comes from the wire."""
    wire = commands.encode(
        Command(
            RequestCode.PULL_MESSAGE,
            opaque=opaque,
            flag=CommandFlag.ONEWAY if oneway else 0,
            serialization=form,
            ext=wanted(**changes).to_ext(),
        )
    )
    ((command,), _) = decode(wire)
    return command


@pytest.mark.parametrize("form", [0, 1])
@pytest.mark.parametrize("opaque", [0, 7, -1, 2**31 - 1])
def test_a_planned_pull_is_answered_with_the_records_of_its_file(form: int, opaque: int) -> None:
    place = active()
    place.plan(wanted())

    end, frames = place.take(pull(form=form, opaque=opaque, queue_offset=3))

    # Records are 250 bytes apart; the seventeenth would end in the next file.
    begins = [place.log.begin + 250 * number for number in range(3, 16)]
    body = b"".join(log_bytes(begin, begin + RECORD_BYTES) for begin in begins)
    # It is left to the long way, which can read from two files.
    assert (end, frames) == (0, [])
    place.queues["orders"][0].max_offset = 16
    assert place.take(pull(form=form, opaque=opaque, queue_offset=3)) == (
        1,
        [answer(form, opaque, 16, 0, 16, len(body)) + body],
    )
    assert place.taken == [13, 1300]
    assert place.pulled == {0: 16}


def test_as_many_records_come_as_the_limits_allow() -> None:
    place = active()
    place.queues["orders"][0] = Queue([place.log.begin + 100 * n for n in range(40)])
    place.plan(wanted())

    _, (frame,) = place.take(pull())

    body = log_bytes(place.log.begin, place.log.begin + 32 * RECORD_BYTES)
    assert frame == answer(0, 1, 32, 0, 40, len(body)) + body


def test_only_records_with_a_wanted_tag_come() -> None:
    place = active()
    place.queues["orders"][0].max_offset = 5
    place.plan(wanted(), tags=frozenset({BLUE}))

    _, (frame,) = place.take(pull())

    begins = place.log.begin, place.log.begin + 750
    body = b"".join(log_bytes(begin, begin + RECORD_BYTES) for begin in begins)
    assert frame == answer(0, 1, 5, 0, 5, len(body)) + body


def test_a_commit_that_comes_with_a_pull_is_noted() -> None:
    place = active()
    place.queues["orders"][1].max_offset = 5
    place.plan(wanted())

    place.take(pull(queue_id=1, sys_flag=SUBSCRIPTION | COMMIT_OFFSET, commit_offset=4))

    assert place.committed == [("g", "orders", 1, 4)]


def test_a_commit_beyond_the_end_of_the_queue_is_not_noted() -> None:
    place = active()
    place.queues["orders"][1].max_offset = 5
    place.plan(wanted())

    for offset in (6, 5):
        place.take(pull(queue_id=1, sys_flag=SUBSCRIPTION | COMMIT_OFFSET, commit_offset=offset))

    assert place.committed == [("g", "orders", 1, 5)]


@pytest.mark.parametrize(
    "changes",
    [
        {"consumer_group": "other"},
        {"topic": "other"},
        {"queue_id": 2},
        {"queue_id": -1},
        {"queue_offset": 5},
        {"queue_offset": -1},
        {"max_msg_nums": 31},
        {"max_msg_bytes": 100},
        {"sys_flag": SUBSCRIPTION | 8},
        {"sys_flag": SUSPEND},
        {"subscription": "red"},
        {"expression_type": "SQL92"},
        {"request_source": 1},
        {"oneway": True},
    ],
)
def test_whatever_is_different_is_left_to_the_caller(changes: dict[str, Any]) -> None:
    place = active()
    place.queues["orders"][0].max_offset = 5
    place.plan(wanted())

    end, frames = place.take(pull(), pull(**changes), pull())

    assert (end, len(frames)) == (1, 1)
    assert place.committed == []


def test_what_does_not_matter_may_be_different() -> None:
    place = active()
    place.queues["orders"][0].max_offset = 5
    place.plan(wanted())

    same = pull(sys_flag=SUBSCRIPTION, suspend_timeout_millis=1, sub_version=99, queue_offset=2)

    assert place.take(same, same)[0] == 2


def test_a_header_that_cannot_be_read_is_left_to_the_caller() -> None:
    place = active()
    place.plan(wanted())

    broken = Command(RequestCode.PULL_MESSAGE, ext={"topic": "orders"})

    assert place.take(broken) == (0, [])


@pytest.mark.parametrize("fault", ["extension", "no file", "deleted", "no queue"])
def test_queues_that_are_not_simple_are_left_to_the_caller(fault: str) -> None:
    place = active()
    queue = place.queues["orders"][0]
    queue.max_offset = 5
    place.plan(wanted())
    if fault == "extension":
        queue.extension = object()
    elif fault == "no file":
        queue.has_file = False
    elif fault == "deleted":
        place.log.begin += FILE_BYTES
    else:
        del place.queues["orders"][0]

    assert place.take(pull()) == (0, [])


@pytest.mark.parametrize("kind", [active, plain])
def test_an_entry_that_reaches_beyond_its_file_is_left_to_the_caller(
    kind: Callable[[], Place],
) -> None:
    """The file would end it early, and the frame be shorter than it says."""
    place = kind()
    near_the_end = place.log.begin + FILE_BYTES - 200
    queue = Queue([near_the_end, near_the_end + 50])
    too_long = queue_entry.pack(near_the_end, 500, BLUE)
    queue.data = too_long + queue.data[queue_entry.ENTRY_BYTES :]
    place.queues["orders"][0] = queue
    place.plan(wanted())

    assert place.take(pull()) == (0, [])


def test_many_bytes_are_left_to_the_caller() -> None:
    place = active()
    size = JOINED_BYTES_MAX + 1
    place.queues["orders"][0] = Queue([place.log.begin], size)
    place.log.holds(bytes(size))
    place.log.end += size
    place.plan(wanted())

    assert place.take(pull()) == (0, [])


def test_large_answers_end_it_early() -> None:
    place = active()
    place.queues["orders"][0] = Queue([place.log.begin], 60_000)
    place.log.holds(bytes(60_000))
    place.log.end += 60_000
    place.plan(wanted())

    end, frames = place.take(*[pull()] * 30)

    assert end == len(frames) == pulls.GATHERED_BYTES_MAX // 60_000 + 1


class TestASubscriptionByHeartbeat:
    """The plan holds as long as the group says the same."""

    @pytest.fixture
    def place(self) -> Place:
        place = active()
        place.queues["orders"][0].max_offset = 5
        subscription = SimpleNamespace(version=5)
        place.online["g"] = SimpleNamespace(
            subscriptions={"orders": subscription}, message_model="CLUSTERING"
        )
        place.plan(wanted(sys_flag=0, subscription=None))
        return place

    def test_pulls_are_answered(self, place: Place) -> None:
        assert place.take(pull(sys_flag=SUSPEND, subscription="is not read"))[0] == 1

    def test_a_member_that_knows_a_later_subscription_is_left_to_the_caller(
        self, place: Place
    ) -> None:
        assert place.take(pull(sys_flag=0, sub_version=6))[0] == 0

    def test_a_changed_subscription_ends_the_plan(self, place: Place) -> None:
        place.online["g"].subscriptions = {"orders": SimpleNamespace(version=5)}

        assert place.take(pull(sys_flag=0))[0] == 0

    def test_a_topic_that_is_no_longer_subscribed_ends_the_plan(self, place: Place) -> None:
        place.online["g"].subscriptions = {}

        assert place.take(pull(sys_flag=0))[0] == 0

    def test_another_model_ends_the_plan(self, place: Place) -> None:
        place.online["g"].message_model = "BROADCASTING"

        assert place.take(pull(sys_flag=0))[0] == 0

    def test_a_group_that_went_and_came_again_ends_the_plan(self, place: Place) -> None:
        place.online["g"] = SimpleNamespace(**vars(place.online["g"]))

        assert place.take(pull(sys_flag=0))[0] == 0

    def test_a_group_that_is_gone_ends_the_plan(self, place: Place) -> None:
        place.online.clear()

        assert place.take(pull(sys_flag=0))[0] == 0


class TestAPullLikeTheLastOne:
    """The plain core does not read again what it has found to fit."""

    @pytest.fixture
    def place(self) -> Place:
        place = plain()
        for queue in place.queues["orders"].values():
            queue.max_offset = 5
        place.plan(wanted())
        return place

    @pytest.fixture
    def read(self, place: Place) -> list[Command]:
        """Headers that were read."""
        commands_read: list[Command] = []

        def noting(command: Command, header_type: Any) -> Any:
            commands_read.append(command)
            return core.read(command, header_type)

        place.tail._read = noting
        return commands_read

    def test_only_the_first_is_read(self, place: Place, read: list[Command]) -> None:
        flags = SUBSCRIPTION | COMMIT_OFFSET
        asked = [
            usual_pull(sys_flag=flags, queue_id=number % 2, queue_offset=number, commit_offset=2)
            for number in range(4)
        ]

        end, frames = place.take(*asked)

        assert (end, len(frames), len(read)) == (4, 4, 1)
        assert [one[2:] for one in place.committed] == [(0, 2), (1, 2), (0, 2), (1, 2)]

    @pytest.mark.parametrize(
        "changes",
        [
            {"sys_flag": SUBSCRIPTION},
            {"suspend_timeout_millis": 1},
            {"sub_version": 99},
            {"queue_offset": 10**18},
            {"queue_id": 2},
            {"max_msg_nums": 31},
            {"subscription": "red"},
            {"form": 1},
            {"request_source": 1},
        ],
    )
    def test_whatever_else_it_says_is_read(
        self, place: Place, read: list[Command], changes: dict[str, Any]
    ) -> None:
        place.take(usual_pull(), usual_pull(**changes))

        assert len(read) == 2

    def test_a_plan_that_holds_no_more_does_not_serve_it(self, place: Place) -> None:
        subscription = SimpleNamespace(version=5)
        place.online["g"] = SimpleNamespace(
            subscriptions={"orders": subscription}, message_model="CLUSTERING"
        )
        place.plan(wanted(sys_flag=0, subscription=None))
        said = {"sys_flag": 0, "subscription": None}
        assert place.take(usual_pull(**said), usual_pull(**said))[0] == 2

        place.online.clear()

        assert place.take(usual_pull(**said))[0] == 0


def usual_pull(**changes: Any) -> Command:
    return pull(decode=commands.decode_frames, **changes)


@pytest.mark.parametrize("seed", range(20))
def test_both_cores_answer_alike(seed: int) -> None:
    chance = random.Random(seed)
    both = active(), plain()
    offsets = sorted(chance.sample(range(2 * FILE_BYTES, 6 * FILE_BYTES - 600), 40))
    tags = chance.choice([None, frozenset({RED}), frozenset({RED, BLUE}), frozenset({1})])
    size = chance.choice([1, 90, 500])
    for place in both:
        place.queues["orders"][0] = Queue(offsets, size, min_offset=3)
        place.plan(wanted(), tags=tags)
    asked = [
        pull(
            queue_offset=chance.randrange(-1, 42),
            opaque=number,
            form=chance.randrange(2),
            queue_id=chance.choice([0, 0, 0, 1, 2]),
            sys_flag=SUBSCRIPTION | chance.choice([0, 0, 0, COMMIT_OFFSET, 8]),
            commit_offset=chance.choice([0, 5, 100]),
            sub_version=chance.choice([5, 5, 5, 6]),
            decode=chance.choice([core.decode_frames, commands.decode_frames]),
        )
        for number in range(100)
    ]

    for command in asked:
        assert both[0].take(command) == both[1].take(command), seed
    assert both[0].taken == both[1].taken, seed
    assert both[0].pulled == both[1].pulled, seed
    assert both[0].committed == both[1].committed, seed
