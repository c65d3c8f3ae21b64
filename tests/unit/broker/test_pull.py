"""Pulling: what comes back, what is held, and who may not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from cometmq.codec.bodies.clients import ConsumerData, HeartbeatData
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.send import SendMessage
from cometmq.codec.queue_entry import ENTRY_BYTES
from cometmq.model.group import MessageModel, SubscriptionData, SubscriptionGroupConfig
from tests.unit.broker import tables
from tests.unit.broker.data_path import GROUP, TOPIC, DataPath, bodies, pulling, sending
from tests.unit.broker.fake_channel import FakeChannel, request
from tests.unit.store.shut_disk import ShutDisk

NO_WAIT = 0x4
FROM_HEARTBEAT = 0x2
OFFSETS = ("nextBeginOffset", "minOffset", "maxOffset", "suggestWhichBrokerId")


@pytest.fixture
def path(tmp_path: Path) -> Iterator[DataPath]:
    with DataPath(tmp_path) as path:
        yield path


def subscribe(
    path: DataPath, *, model: MessageModel = MessageModel.CLUSTERING, **wish: Any
) -> None:
    """Have the channel's client send a heartbeat."""
    wanted = SubscriptionData(TOPIC, **{"sub_version": 5, **wish})
    consumer = ConsumerData(GROUP, message_model=model, subscription_data_set=(wanted,))
    data = HeartbeatData("client", consumer_data_set=(consumer,))
    path.clients.heartbeat(path.channel, data, language=0, version=407)


def watched_gets(path: DataPath, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Topics of pulls that are looked at closely from now on."""
    topics: list[str] = []
    get = path.store.get

    def watched(topic: str, *wanted: Any, **limits: Any) -> Any:
        topics.append(topic)
        return get(topic, *wanted, **limits)

    monkeypatch.setattr(path.store, "get", watched)
    return topics


def many(count: int) -> list[tuple[SendMessage, bytes]]:
    """So many messages that nobody wants who wants blue ones."""
    return [sending(b"red")] * count


def found_at_once(path: DataPath) -> list[bytes]:
    """What a consumer of blue ones has got that asks again whenever it is told to."""
    for _ in range(10):
        (reply,) = path.later()
        if reply.code != ResponseCode.PULL_RETRY_IMMEDIATELY:
            return bodies(reply)
        path.channel.replies += path.pull(int(reply.ext["nextBeginOffset"]), subscription="blue")
    return []


class TestAgain:
    """The second pull of a group is answered by what was found out about the first."""

    def test_it_goes_on_where_the_first_ended(self, path: DataPath) -> None:
        for number in range(5):
            path.send(b"%d" % number)

        replies = [path.pull(offset, max_msg_nums=2)[0] for offset in (0, 2, 4)]

        assert [bodies(reply) for reply in replies] == [[b"0", b"1"], [b"2", b"3"], [b"4"]]
        assert [[reply.ext[name] for name in OFFSETS] for reply in replies] == [
            ["2", "0", "5", "0"],
            ["4", "0", "5", "0"],
            ["5", "0", "5", "0"],
        ]
        assert path.pulls.taken[TOPIC, GROUP][0] == 5
        assert path.offsets.pulled_to(GROUP, TOPIC, 0) == 5

    def test_it_finds_what_was_acknowledged_but_not_dispatched_yet(self, path: DataPath) -> None:
        """While nobody waits for messages, those of 5 ms are put into their queues together."""
        path.store.on_arrival(path.pulls.on_arrival, is_awaited=lambda: False)
        path.send(b"0")
        path.pull()
        path.send(b"1")

        (found,) = path.pull()

        assert bodies(found) == [b"0", b"1"]
        assert found.ext["maxOffset"] == "2"

    def test_a_group_that_may_no_longer_consume_is_refused(self, path: DataPath) -> None:
        path.send()
        path.pull()
        path.pull()

        path.groups.put(SubscriptionGroupConfig(GROUP, consume_enable=False))

        assert path.pull()[0].code == ResponseCode.NO_PERMISSION

    def test_a_topic_that_is_no_longer_readable_is_refused(self, path: DataPath) -> None:
        path.send()
        path.pull()

        config = path.topics.by_name[TOPIC].config
        path.topics.put(structs.replace(config, perm=2))

        assert path.pull()[0].code == ResponseCode.NO_PERMISSION

    def test_a_topic_that_is_deleted_is_unknown(self, path: DataPath) -> None:
        path.send()
        path.pull()

        path.topics.delete(TOPIC)

        assert path.pull()[0].code == ResponseCode.TOPIC_NOT_EXIST

    def test_a_queue_that_is_no_longer_read_is_refused(self, path: DataPath) -> None:
        path.send(queue_id=3)
        assert path.pull(queue_id=3)[0].code == ResponseCode.SUCCESS

        config = path.topics.by_name[TOPIC].config
        path.topics.put(structs.replace(config, read_queue_nums=3))

        assert path.pull(queue_id=3)[0].code == ResponseCode.INVALID_PARAMETER

    def test_a_changed_subscription_counts_at_once(self, path: DataPath) -> None:
        for tag in ("red", "blue"):
            path.send(tag.encode(), asked={"TAGS": tag})
        subscribe(path, sub_string="red", code_set=(112785,), tags_set=("red",))
        before = [path.pull(sys_flag=FROM_HEARTBEAT, sub_version=5)[0] for _ in range(2)]

        subscribe(path, sub_string="*", sub_version=6)

        (after,) = path.pull(sys_flag=FROM_HEARTBEAT, sub_version=6)
        assert [bodies(reply) for reply in before] == [[b"red"], [b"red"]]
        assert bodies(after) == [b"red", b"blue"]

    def test_a_group_that_was_reset_is_sent_elsewhere(self, path: DataPath) -> None:
        for _ in range(3):
            path.send()
        path.pull()
        path.offsets.reset(GROUP, TOPIC, 0, 1)

        (told,) = path.pull(2)

        assert (told.code, told.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
        assert [told.ext[name] for name in OFFSETS] == ["1", "0", "3", "0"]
        assert path.pull(2)[0].code == ResponseCode.SUCCESS

    def test_also_where_another_queue_was_read_since(self, path: DataPath) -> None:
        """What was found out about one queue counts for all queues of the topic."""
        for queue_id in (0, 1):
            path.send(queue_id=queue_id)
        path.offsets.reset(GROUP, TOPIC, 0, 1)
        for _ in range(2):
            assert bodies(path.pull(queue_id=1)[0]) == [b"hello"]

        (told,) = path.pull()

        assert (told.remark, told.ext["nextBeginOffset"]) == ("OFFSET_RESET", "1")

    def test_a_reset_makes_no_difference_to_other_groups(
        self, path: DataPath, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It may be pending for long, when a member is slow, and all others must not be."""
        path.send()
        for group in (GROUP, "other"):
            path.groups.obtain(group)
        for group in (GROUP, "other"):
            path.pull(consumer_group=group)
        closely = watched_gets(path, monkeypatch)

        path.offsets.reset(GROUP, TOPIC, 1, 0)

        assert bodies(path.pull(consumer_group="other")[0]) == [b"hello"]
        assert closely == []
        assert [bodies(path.pull()[0]) for _ in range(2)] == [[b"hello"]] * 2
        assert closely == [TOPIC, TOPIC], "queue 1 may be asked for next"
        path.offsets.take_reset(GROUP, TOPIC, 1)
        path.pull()
        assert bodies(path.pull()[0]) == [b"hello"]
        assert len(closely) == 3

    def test_its_commit_is_noted(self, path: DataPath) -> None:
        path.send()
        path.pull()

        path.pull(sys_flag=NO_WAIT | 1, commit_offset=1)

        assert path.offsets.get(GROUP, TOPIC, 0) == 1


class TestHeldMeanwhile:
    """What changes while a pull waits counts when it is answered."""

    def test_a_wider_subscription_gets_what_was_passed_over(self, path: DataPath) -> None:
        subscribe(path, sub_string="red", code_set=(112785,), tags_set=("red",))
        assert path.pull(sys_flag=FROM_HEARTBEAT, sub_version=5) == []
        path.send(b"blue", asked={"TAGS": "blue"})

        subscribe(path, sub_string="*", sub_version=6)
        path.send(b"red", asked={"TAGS": "red"})

        assert [bodies(reply) for reply in path.later()] == [[b"blue", b"red"]]

    def test_a_topic_that_is_no_longer_readable_is_refused(self, path: DataPath) -> None:
        subscribe(path)
        assert path.pull(sys_flag=FROM_HEARTBEAT, sub_version=5) == []

        config = path.topics.by_name[TOPIC].config
        path.topics.put(structs.replace(config, perm=2))
        path.send()

        assert [reply.code for reply in path.later()] == [ResponseCode.NO_PERMISSION]


class TestFound:
    def test_messages_come_in_order_with_where_to_go_on(self, path: DataPath) -> None:
        for number in range(5):
            path.send(b"%d" % number)

        (reply,) = path.pull(1)

        assert (reply.code, reply.remark) == (ResponseCode.SUCCESS, "FOUND")
        assert bodies(reply) == [b"1", b"2", b"3", b"4"]
        assert [reply.ext[name] for name in OFFSETS] == ["5", "0", "5", "0"]

    def test_no_more_than_asked_for(self, path: DataPath) -> None:
        for number in range(5):
            path.send(b"%d" % number)

        (reply,) = path.pull(max_msg_nums=2)

        assert bodies(reply) == [b"0", b"1"]
        assert reply.ext["nextBeginOffset"] == "2"

    def test_nor_than_the_bytes_asked_for(self, path: DataPath) -> None:
        for _ in range(5):
            path.send(b"x" * 1000)

        (reply,) = path.pull(max_msg_bytes=2500)

        assert len(bodies(reply)) == 2

    @pytest.mark.parametrize("count", [-1, 0, 2**31 - 1])
    def test_an_absurd_count_does_no_harm(self, count: int, path: DataPath) -> None:
        for _ in range(40):
            path.send()

        (reply,) = path.pull(max_msg_nums=count)

        assert len(bodies(reply)) == (1 if count <= 0 else 32)

    def test_only_those_with_a_wanted_tag(self, path: DataPath) -> None:
        for tag in ("red", "blue", "green", "red"):
            path.send(tag.encode(), asked={"TAGS": tag})

        (reply,) = path.pull(subscription="red || green")

        assert bodies(reply) == [b"red", b"green", b"red"]

    def test_the_expression_of_the_heartbeat_counts_when_the_pull_has_none(
        self, path: DataPath
    ) -> None:
        path.send(b"red", asked={"TAGS": "red"})
        path.send(b"blue", asked={"TAGS": "blue"})
        subscribe(path, sub_string="blue")

        (reply,) = path.pull(sys_flag=FROM_HEARTBEAT, subscription="red", sub_version=5)

        assert bodies(reply) == [b"blue"]

    def test_a_pull_may_commit_an_offset(self, path: DataPath) -> None:
        path.send()

        path.pull(sys_flag=NO_WAIT | 0x1, commit_offset=1)

        assert path.offsets.get(GROUP, TOPIC, 0) == 1

    def test_but_none_beyond_the_end_of_the_queue(self, path: DataPath) -> None:
        path.send()

        for _ in range(2):
            path.pull(sys_flag=NO_WAIT | 0x1, commit_offset=2)

        assert path.offsets.get(GROUP, TOPIC, 0) == -1

    def test_and_does_not_without_saying_so(self, path: DataPath) -> None:
        path.send()

        path.pull(commit_offset=7)

        assert path.offsets.get(GROUP, TOPIC, 0) == -1


class TestNotFound:
    @pytest.mark.parametrize(
        ("offset", "code", "next_offset"),
        [
            (3, ResponseCode.PULL_NOT_FOUND, "3"),
            (4, ResponseCode.PULL_OFFSET_MOVED, "3"),
            (-1, ResponseCode.PULL_OFFSET_MOVED, "0"),
        ],
    )
    def test_outside_of_what_there_is(
        self, offset: int, code: int, next_offset: str, path: DataPath
    ) -> None:
        for _ in range(3):
            path.send()

        (reply,) = path.pull(offset, sys_flag=NO_WAIT)

        assert reply.code == code
        assert [reply.ext[name] for name in OFFSETS] == [next_offset, "0", "3", "0"]

    @pytest.mark.parametrize(
        ("offset", "code"), [(0, ResponseCode.PULL_NOT_FOUND), (5, ResponseCode.PULL_OFFSET_MOVED)]
    )
    def test_a_queue_that_never_had_a_message(self, offset: int, code: int, path: DataPath) -> None:
        (reply,) = path.pull(offset, sys_flag=NO_WAIT)

        assert reply.code == code
        assert reply.ext["nextBeginOffset"] == "0"

    def test_nothing_that_is_wanted(self, path: DataPath) -> None:
        for _ in range(3):
            path.send()

        (reply,) = path.pull(subscription="violet")

        assert reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert reply.ext["nextBeginOffset"] == "3"
        assert reply.body == b""


class TestHeld:
    def test_a_pull_waits_for_the_next_message(self, path: DataPath) -> None:
        assert path.pull() == []

        path.send(b"new")

        (reply,) = path.later()
        assert bodies(reply) == [b"new"]

    def test_or_for_its_time_to_be_over(self, path: DataPath) -> None:
        path.pull(suspend_timeout_millis=2000)

        path.loop.advance(1.9)
        early = path.later()
        path.loop.advance(0.2)

        (reply,) = path.later()
        assert early == []
        assert reply.code == ResponseCode.PULL_NOT_FOUND

    def test_never_longer_than_clients_wait_for_an_answer(self, path: DataPath) -> None:
        path.pull(suspend_timeout_millis=3_600_000)

        path.loop.advance(26)

        assert len(path.later()) == 1

    def test_a_message_that_is_not_wanted_does_not_end_it(self, path: DataPath) -> None:
        path.pull(subscription="blue")
        path.send(b"red")
        meanwhile = path.later()

        path.send(b"blue", asked={"TAGS": "blue"})

        (reply,) = path.later()
        assert meanwhile == []
        assert bodies(reply) == [b"blue"]
        assert reply.ext["nextBeginOffset"] == "2"

    def test_but_is_passed_over_when_it_ends(self, path: DataPath) -> None:
        path.pull(subscription="blue")
        path.send(b"red")

        path.loop.advance(16)

        (reply,) = path.later()
        assert reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert reply.ext["nextBeginOffset"] == "1"

    def test_one_behind_more_than_a_look_reaches_is_found_at_once(self, path: DataPath) -> None:
        """What is held goes on waiting only at the end of the queue."""
        path.pull(subscription="blue")

        path.send_frames(*many(900), sending(b"blue", asked={"TAGS": "blue"}))

        assert found_at_once(path) == [b"blue"]

    @pytest.mark.parametrize("before", [3, 4, 5, 9])
    def test_so_is_one_in_the_next_file_of_the_queue(self, before: int, tmp_path: Path) -> None:
        """A look ends with the file; one of four entries here."""
        with DataPath(tmp_path, store={"queue_file_bytes": 4 * ENTRY_BYTES}) as path:
            path.pull(subscription="blue")

            path.send_frames(*many(before), sending(b"blue", asked={"TAGS": "blue"}))

            assert found_at_once(path) == [b"blue"]

    def test_many_that_are_not_wanted_end_it_only_to_go_on_behind_them(
        self, path: DataPath
    ) -> None:
        path.pull(subscription="blue")

        path.send_frames(*many(900))

        (reply,) = path.later()
        assert reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert reply.ext["nextBeginOffset"] == "800"

    def test_messages_of_other_queues_do_not_matter(self, path: DataPath) -> None:
        path.pull()

        path.send(queue_id=1)

        assert path.later() == []

    def test_everybody_who_waits_gets_the_message(self, path: DataPath) -> None:
        for _ in range(3):
            path.pull()

        path.send(b"new")

        assert [bodies(reply) for reply in path.later()] == [[b"new"]] * 3

    def test_one_whose_queue_cannot_be_read_is_told_so_and_the_others_are_woken(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        disk = ShutDisk()
        with DataPath(tmp_path, store={"mapped_queue_files_max": 1}, files=disk) as path:
            for queue_id in (1, 0):
                path.send(queue_id=queue_id)
                path.pull(1, queue_id=queue_id)
            disk.shut = tmp_path / "consumequeue" / TOPIC / "0"

            # To enter the second unmaps the file that the first is to be read from.
            path.send_frames(sending(b"first"), sending(b"second", queue_id=1))
            disk.shut = None

            failed, answered = sorted(path.later(), key=lambda reply: reply.body)
            assert failed.code == ResponseCode.SYSTEM_ERROR
            assert "Too many open files" in (failed.remark or "")
            assert bodies(answered) == [b"second"]
            assert path.pulls.held.count == 0
            assert "request 11 failed" in caplog.text

    def test_one_that_fails_at_its_end_does_not_keep_the_others_for_ever(
        self, tmp_path: Path
    ) -> None:
        disk = ShutDisk()
        with DataPath(tmp_path, store={"mapped_queue_files_max": 1}, files=disk) as path:
            for queue_id in (0, 1):
                path.pull(queue_id=queue_id)
            path.loop.advance(1)
            path.pull(queue_id=2)
            path.store.on_arrival(lambda _: None)  # so that it is found at the end only
            for queue_id in (0, 3):
                path.send(queue_id=queue_id)
            disk.shut = tmp_path / "consumequeue" / TOPIC / "0"

            path.loop.advance(20)
            disk.shut = None

            codes = [reply.code for reply in path.later()]
            assert codes == [ResponseCode.SYSTEM_ERROR, *[ResponseCode.PULL_NOT_FOUND] * 2]
            assert path.pulls.held.count == 0

    def test_one_whose_client_is_gone_is_forgotten(self, path: DataPath) -> None:
        path.pull()
        path.pulls.held.on_closed(path.channel)

        path.send()

        assert path.later() == []
        assert path.pulls.held.count == 0

    def test_when_the_broker_stops_all_are_told_so(self, path: DataPath) -> None:
        """Not that there is nothing: they would ask again at once and wait in vain."""
        path.pull()

        path.pulls.close()

        assert [reply.code for reply in path.later()] == [ResponseCode.SYSTEM_BUSY]
        assert path.pulls.held.count == 0

    def test_there_are_only_so_many(self, tmp_path: Path) -> None:
        with DataPath(tmp_path, held_pulls_max=2) as path:
            answered = [path.pull() for _ in range(3)]

        assert [len(replies) for replies in answered] == [0, 0, 1]

    def test_without_long_polling_it_is_short(self, tmp_path: Path) -> None:
        with DataPath(tmp_path, long_polling_enable=False, short_polling_ms=500) as path:
            path.pull()
            path.loop.advance(0.6)

            assert len(path.later()) == 1

    def test_an_offset_is_committed_once_only(self, path: DataPath) -> None:
        path.pull(sys_flag=0x7, commit_offset=3)
        path.offsets.commit(GROUP, TOPIC, 0, 9)

        path.send()

        assert path.offsets.get(GROUP, TOPIC, 0) == 9


class TestRefused:
    def test_a_topic_that_does_not_exist(self, path: DataPath) -> None:
        (reply,) = path.pull(topic="nothing")

        assert reply.code == ResponseCode.TOPIC_NOT_EXIST

    @pytest.mark.parametrize("queue_id", [-1, 4])
    def test_a_queue_that_does_not_exist(self, queue_id: int, path: DataPath) -> None:
        (reply,) = path.pull(queue_id=queue_id)

        assert reply.code == ResponseCode.INVALID_PARAMETER
        assert f"queueId[{queue_id}] is illegal" in (reply.remark or "")

    def test_a_topic_that_may_not_be_read(self, path: DataPath) -> None:
        tables.add_topic(path.topics, "secret", perm=2)

        (reply,) = path.pull(topic="secret")

        assert reply.code == ResponseCode.NO_PERMISSION

    def test_a_broker_that_may_not_be_read(self, tmp_path: Path) -> None:
        with DataPath(tmp_path, broker_permission=2) as path:
            (reply,) = path.pull()

        assert reply.code == ResponseCode.NO_PERMISSION

    def test_a_group_that_does_not_exist(self, tmp_path: Path) -> None:
        with DataPath(tmp_path, auto_create_subscription_group=False) as path:
            (reply,) = path.pull()

        assert reply.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    def test_a_group_that_is_switched_off(self, path: DataPath) -> None:
        path.groups.put(SubscriptionGroupConfig(GROUP, consume_enable=False))

        (reply,) = path.pull()

        assert reply.code == ResponseCode.NO_PERMISSION
        assert reply.remark == f"subscription group no permission, {GROUP}"

    def test_a_group_nobody_has_heard_of(self, path: DataPath) -> None:
        (reply,) = path.pull(sys_flag=FROM_HEARTBEAT)

        assert reply.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert reply.remark == "the consumer's group info not exist"

    def test_a_topic_the_group_does_not_subscribe(self, path: DataPath) -> None:
        subscribe(path)
        tables.add_topic(path.topics, "other")

        (reply,) = path.pull(sys_flag=FROM_HEARTBEAT, topic="other")

        assert reply.code == ResponseCode.SUBSCRIPTION_NOT_EXIST

    def test_a_subscription_newer_than_the_last_heartbeat(self, path: DataPath) -> None:
        subscribe(path)

        (reply,) = path.pull(sys_flag=FROM_HEARTBEAT, sub_version=6)

        assert reply.code == ResponseCode.SUBSCRIPTION_NOT_LATEST

    def test_broadcasting_where_it_is_switched_off(self, path: DataPath) -> None:
        path.groups.put(SubscriptionGroupConfig(GROUP, consume_broadcast_enable=False))
        subscribe(path, model=MessageModel.BROADCASTING)

        (reply,) = path.pull(sys_flag=FROM_HEARTBEAT)

        assert reply.code == ResponseCode.NO_PERMISSION
        assert "can not consume by broadcast way" in (reply.remark or "")

    def test_sql_from_the_request_or_the_heartbeat(self, path: DataPath) -> None:
        subscribe(path, sub_string="a > 1", expression_type="SQL92")

        (asked,) = path.pull(subscription="a > 1", expression_type="SQL92")
        (noted,) = path.pull(sys_flag=FROM_HEARTBEAT)

        for reply in (asked, noted):
            assert reply.code == ResponseCode.SYSTEM_ERROR
            assert (reply.remark or "").endswith("to filter message by SQL92")

    def test_filter_classes(self, path: DataPath) -> None:
        subscribe(path, class_filter_mode=True)

        (asked,) = path.pull(sys_flag=0x8)
        (noted,) = path.pull(sys_flag=FROM_HEARTBEAT)

        assert {asked.code, noted.code} == {ResponseCode.SYSTEM_ERROR}

    def test_lite_pulls_where_they_are_switched_off(self, tmp_path: Path) -> None:
        with DataPath(tmp_path, lite_pull_message_enable=False) as path:
            command = request(RequestCode.LITE_PULL_MESSAGE, pulling())
            (reply,) = path.channel.ask(path.routes, command)

        assert reply.code == ResponseCode.NO_PERMISSION


def test_lite_pulls_are_pulls(path: DataPath) -> None:
    path.send(b"found")

    (reply,) = path.channel.ask(path.routes, request(RequestCode.LITE_PULL_MESSAGE, pulling()))

    assert bodies(reply) == [b"found"]


def test_consumers_far_behind_are_sent_to_a_slave_if_that_is_wanted(tmp_path: Path) -> None:
    for is_enabled, suggested in ((True, "1"), (False, "0")):
        with DataPath(
            tmp_path / suggested, store={"memory_percent": 0}, slave_read_enable=is_enabled
        ) as path:
            path.send(b"x" * 5000)
            path.send()

            (reply,) = path.pull()

        assert reply.ext["suggestWhichBrokerId"] == suggested


def test_a_pull_on_a_connection_that_has_ended_is_not_answered(path: DataPath) -> None:
    channel = FakeChannel()
    channel.ask(path.routes, request(RequestCode.PULL_MESSAGE, pulling()))
    channel.close()

    path.send()

    assert channel.replies == []
