"""The admin asks Apache's servers as they were recorded, and understands what they said."""

import functools
import itertools
from collections.abc import Mapping

import msgspec
import pytest

from cometmq.admin import Admin
from cometmq.codec import command
from cometmq.codec.codes import RequestCode
from cometmq.codec.command import Command
from cometmq.codec.headers.base import BASE_FIELDS, Header
from tests.golden import wire_frames

RELEASES = ("4.9.7", "5.5.0")
NOT_COMPARED = BASE_FIELDS | {"AccessKey", "Signature", "ReqT"}


class RecordedServers:
    """Answers with what was recorded for the same code and ext fields.

    Where there is no such recording, with the first of that code; fields that say in which way a
    thing is asked for may differ between mqadmin and us.
    """

    def __init__(self, release: str) -> None:
        self._exchanges = exchanges(release)

    async def ask(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int,
        is_repeatable: bool = True,
    ) -> Command:
        wanted = header.to_ext() if header else {}
        recorded = [(ext, answer) for asked, ext, answer in self._exchanges if asked == code]
        assert recorded, f"{RequestCode(code)!r} was not recorded"
        return max(recorded, key=lambda one: likeness(one[0], wanted))[1]


def likeness(recorded: Mapping[str, str], wanted: Mapping[str, str]) -> int:
    return sum(recorded.get(name) == value for name, value in wanted.items())


@functools.cache
def exchanges(release: str) -> list[tuple[int, dict[str, str], Command]]:
    found = []
    frames = list(wire_frames.frames(f"mqadmin-{release}"))
    for asked, answered in itertools.pairwise(frames):
        if (asked.kind, answered.kind) == ("request", "response") and asked.sender == "client":
            (question,), _ = command.decode_frames(asked.raw)
            (answer,), _ = command.decode_frames(answered.raw)
            ext = {k: v for k, v in question.ext_fields.items() if k not in NOT_COMPARED}
            found.append((asked.code, ext, answer))
    return found


@pytest.fixture(params=RELEASES)
def admin(request: pytest.FixtureRequest) -> Admin:
    return Admin("127.0.0.1:9876", connections=RecordedServers(request.param))


async def test_the_cluster_and_its_topics_are_read(admin: Admin) -> None:
    cluster = await admin.cluster()
    topics = {topic.name: topic.kind.value for topic in await admin.topics.list()}

    (broker,) = cluster.brokers
    assert (broker.broker_name, broker.cluster) == ("broker-a", "DefaultCluster")
    assert broker.version in RELEASES
    assert broker.put_tps is not None
    assert (topics["Wire"], topics["broker-a"]) == ("normal", "system")
    assert (topics["%RETRY%GID_bg"], topics["%DLQ%GID_push"]) == ("retry", "dlq")


async def test_a_topic_is_read_with_its_queues(admin: Admin) -> None:
    route, stats = await admin.topics.route("Wire"), await admin.topics.stats("Wire")

    assert [(one.broker_name, one.read_queues) for one in route.brokers] == [("broker-a", 4)]
    assert [queue.queue_id for queue in stats.queues] == [0, 1, 2, 3]
    assert stats.message_count > 100


async def test_a_group_is_read_with_members_and_lag(admin: Admin) -> None:
    membership = await admin.groups.members("GID_bg")
    lag = await admin.groups.lag("GID_bg")

    (member,) = membership.members
    assert (member.client_id, member.language) == ("10.0.0.5@bgc", "JAVA")
    assert member.version in RELEASES
    assert [one.topic for one in membership.subscriptions] == ["%RETRY%GID_bg", "Wire"]
    assert {queue.topic for queue in lag.queues} == {"%RETRY%GID_bg", "Wire"}
    assert lag.lag == sum(queue.max_offset - queue.offset for queue in lag.queues)


async def test_a_consumer_is_read_as_it_spoke(admin: Admin) -> None:
    info = await admin.clients.running_info("GID_bg", "10.0.0.5@bgc")

    assert {queue.topic for queue in info.queues} == {"%RETRY%GID_bg", "Wire"}
    assert {rate.topic for rate in info.rates} <= {"%RETRY%GID_bg", "Wire"}
    assert "PROP_CLIENT_VERSION" in info.properties


async def test_messages_are_found_by_key_and_by_place(admin: Admin) -> None:
    (by_key,) = await admin.messages.by_key("Wire", "bg0")
    by_unique_key = await admin.messages.by_unique_key("Wire", by_key.message_id)
    offset = by_key.queue_offset
    by_offset = await admin.messages.at("Wire", "broker-a", by_key.queue_id, offset)

    assert (by_key.body, by_key.tags) == (b"bg 0", "TagA")
    assert by_unique_key == (by_key,)
    assert by_offset == by_key


async def test_producers_statistics_and_settings_are_read(admin: Admin) -> None:
    producers = await admin.clients.all_producers()
    statistic = await admin.brokers.statistic("TOPIC_PUT_NUMS", "Wire", "broker-a")
    config = await admin.brokers.config("broker-a")
    (name_server,) = await admin.name_servers.config()

    assert [one.address for one in producers["PG_bg"]] == [producers["PG_bg"][0].address]
    assert producers["PG_bg"][0].address.startswith("127.0.0.1:")
    assert statistic.hour.sum >= 0
    assert config.values["brokerName"] == "broker-a"
    assert name_server.values["productEnvName"] == "center"


async def test_every_result_can_be_written_as_json(admin: Admin) -> None:
    results = [
        await admin.cluster(),
        await admin.topics.list(),
        await admin.topics.route("Wire"),
        await admin.groups.members("GID_bg"),
        await admin.groups.lag("GID_bg"),
        await admin.clients.running_info("GID_bg", "10.0.0.5@bgc"),
        await admin.messages.by_key("Wire", "bg0"),
        await admin.brokers.backlog("broker-a"),
    ]

    for result in results:
        names = field_names(msgspec.json.decode(msgspec.json.encode(result)))
        assert names, "a result without fields"
        assert {name for name in names if name != name.lower()} == set()


def field_names(value: object) -> set[str]:
    """Names of fields, without the tables whose keys are RocketMQ's or a user's."""
    if isinstance(value, list):
        return set().union(*map(field_names, value))
    if not isinstance(value, dict):
        return set()
    tables = ("values", "properties")
    inner = [field_names(item) for name, item in value.items() if name not in tables]
    return set(value).union(*inner)
