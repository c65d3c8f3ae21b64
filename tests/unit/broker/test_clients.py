"""Who is connected: members coming and going, what they are told, and what they agree about."""

import logging
from collections.abc import Mapping

import pytest

from cometmq.broker.client_groups import CONFLICTS_MAX
from cometmq.broker.clients import (
    CLIENT_GROUPS_MAX,
    CLIENT_ID_CHARACTERS_MAX,
    CLIENT_TEXT_MAX,
    GROUP_TOPICS_MAX,
    NAME_CHARACTERS_MAX,
)
from cometmq.broker.subscriptions import Conflict
from cometmq.codec.bodies.clients import ConsumerData, HeartbeatData, ProducerData
from cometmq.codec.codes import LanguageCode, ResponseCode
from cometmq.errors import BrokerError
from cometmq.model.group import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
    SubscriptionGroupConfig,
)
from cometmq.model.topic import TopicConfig
from tests.unit.broker.client_kit import Place, changes_told, consuming, producing
from tests.unit.broker.fake_channel import FakeChannel


@pytest.fixture
def place() -> Place:
    return Place()


# --- coming


def test_a_heartbeat_makes_a_member(place: Place) -> None:
    channel = FakeChannel()

    place.beat(channel, consuming("c1", topics={"T": "a || b"}), language=LanguageCode.GO)

    group = place.clients.consumer_groups["G"]
    member = group.members[channel]
    assert (member.client_id, member.language, member.version) == ("c1", LanguageCode.GO, 407)
    assert group.subscriptions["T"].expression == "a || b"
    assert group.client_ids == ["c1"]


def test_a_heartbeat_makes_the_group_and_its_retry_topic(place: Place) -> None:
    registered: list[str] = []
    place.topics.on_change.append(lambda topics: registered.extend(t.name for t in topics))

    place.beat(FakeChannel(), consuming(group="G"))
    place.beat(FakeChannel(), consuming(group="G"))

    assert place.groups.get("G") is not None
    topic = place.topics.get("%RETRY%G")
    assert topic is not None
    assert (topic.read_queue_count, topic.config.perm) == (1, 6)
    assert registered == ["%RETRY%G"]


def test_the_retry_topic_has_as_many_queues_as_the_group_says(place: Place) -> None:
    place.groups.put(SubscriptionGroupConfig("G", retry_queue_nums=3))

    place.beat(FakeChannel(), consuming(group="G"))

    topic = place.topics.get("%RETRY%G")
    assert topic is not None
    assert topic.write_queue_count == 3


def test_the_retry_topic_of_a_group_on_an_ordered_topic_is_ordered(place: Place) -> None:
    place.topics.put(TopicConfig("T", order=True))

    place.beat(FakeChannel(), consuming(group="G", topics="T"))
    place.beat(FakeChannel(), consuming("c2", group="G", topics="U"))

    topic = place.topics.get("%RETRY%G")
    assert topic is not None
    assert topic.is_order


def test_a_client_in_unit_mode_marks_the_retry_topic(place: Place) -> None:
    data = HeartbeatData("c1", consumer_data_set=(ConsumerData("G", unit_mode=True),))

    place.beat(FakeChannel(), data)

    topic = place.topics.get("%RETRY%G")
    assert topic is not None
    assert topic.config.topic_sys_flag == 2


def test_a_group_that_may_not_be_made_is_passed_over() -> None:
    place = Place(auto_create_subscription_group=False)
    channel = FakeChannel()
    place.groups.put(SubscriptionGroupConfig("known"))
    data = HeartbeatData(
        "c1", (ProducerData("P"),), (ConsumerData("unknown"), ConsumerData("known"))
    )

    place.beat(channel, data)

    assert list(place.clients.consumer_groups) == ["known"]
    assert list(place.clients.producer_groups) == ["P"]
    assert place.topics.get("%RETRY%unknown") is None


def test_the_latest_heartbeat_says_how_the_group_consumes(place: Place) -> None:
    channel = place.join("c1")
    data = ConsumerData(
        "G",
        ConsumeType.CONSUME_ACTIVELY,
        MessageModel.BROADCASTING,
        ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
    )

    place.beat(channel, HeartbeatData("c1", consumer_data_set=(data,)))

    group = place.clients.consumer_groups["G"]
    assert group.consume_type is ConsumeType.CONSUME_ACTIVELY
    assert group.is_broadcasting
    assert group.consume_from_where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP


# --- who may come for a queue


def may_pull(place: Place, group: str = "G", topic: str = "T", queue_id: int = 0) -> bool:
    return place.clients.may_pull(group, topic, queue_id)


def test_members_may_come_for_the_queues_of_topics_they_subscribe_to(place: Place) -> None:
    for topic in "TU":
        place.topics.put(TopicConfig(topic, 2, 4))
    place.join("c1", topics="T")

    assert may_pull(place)
    assert may_pull(place, queue_id=1)
    assert not may_pull(place, queue_id=2), "nobody reads it"
    assert not may_pull(place, topic="U")
    assert not may_pull(place, topic="nowhere")
    assert not may_pull(place, group="H")


def test_one_member_that_wants_a_topic_is_enough(place: Place) -> None:
    for topic in "TUV":
        place.topics.put(TopicConfig(topic, 2, 2))
    place.join("c1", topics="T")
    place.join("c2", topics="U")

    assert may_pull(place, topic="T")
    assert may_pull(place, topic="U")
    assert not may_pull(place, topic="V")


def test_members_that_choose_queues_themselves_may_come_for_any(place: Place) -> None:
    place.topics.put(TopicConfig("T", 2, 2))

    place.join("c1", topics="")

    assert may_pull(place)


def test_who_has_left_comes_for_nothing(place: Place) -> None:
    place.topics.put(TopicConfig("T", 2, 2))
    channel = place.join("c1", topics="T")

    place.clients.on_closed(channel)

    assert not may_pull(place)


# --- subscriptions


def test_a_subscription_is_replaced_only_by_a_later_one(place: Place) -> None:
    channel = place.join("c1", topics={"T": "a"}, version=5)

    place.beat(channel, consuming("c1", topics={"T": "b"}, version=5))
    assert place.clients.consumer_groups["G"].subscriptions["T"].expression == "a"

    place.beat(channel, consuming("c1", topics={"T": "c"}, version=6))
    assert place.clients.consumer_groups["G"].subscriptions["T"].expression == "c"


def test_versions_in_nanoseconds_are_compared_exactly(place: Place) -> None:
    version = 1_794_779_975_546_748_198  # of a Go client: more than a float can hold
    channel = place.join("c1", topics={"T": "a"}, version=version)

    place.beat(channel, consuming("c1", topics={"T": "b"}, version=version + 1))

    assert place.clients.consumer_groups["G"].subscriptions["T"].version == version + 1


def test_topics_missing_in_a_heartbeat_are_not_wanted_any_more(place: Place) -> None:
    channel = place.join("c1", topics="TU")

    place.beat(channel, consuming("c1", topics="U"))

    assert list(place.clients.consumer_groups["G"].subscriptions) == ["U"]


# --- notices


def test_all_members_are_told_of_a_new_one_and_it_is_in_the_list_by_then(place: Place) -> None:
    first = place.join("c1")
    second = FakeChannel()

    place.beat(second, consuming("c2"))

    assert changes_told(first) == ["G"]
    assert changes_told(second) == ["G"]
    assert place.clients.consumer_groups["G"].client_ids == ["c1", "c2"]


def test_nobody_is_told_of_a_heartbeat_that_changes_nothing(place: Place) -> None:
    first, second = place.join("c1"), place.join("c2")
    first.notices.clear()

    place.beat(first, consuming("c1"))
    place.beat(second, consuming("c2"))

    assert changes_told(first) == changes_told(second) == []


@pytest.mark.parametrize(
    ("topics", "is_told"), [({"T": "b"}, False), ({"T": "*", "U": "*"}, True), ({"U": "*"}, True)]
)
def test_members_are_told_of_other_topics_but_not_of_other_expressions(
    place: Place, topics: Mapping[str, str], is_told: bool
) -> None:
    channel = place.join("c1", topics={"T": "a"})

    place.beat(channel, consuming("c1", topics=topics, version=2))

    assert changes_told(channel) == (["G"] if is_told else [])


def test_the_others_are_told_when_a_connection_ends(place: Place) -> None:
    gone, stays = place.join("c1"), place.join("c2")

    gone.close()
    place.clients.on_closed(gone)

    assert changes_told(stays) == ["G"]
    assert place.clients.consumer_groups["G"].client_ids == ["c2"]


def test_broadcasting_groups_are_told_nothing(place: Place) -> None:
    first, second = FakeChannel(), FakeChannel()

    place.beat(first, consuming("c1", model=MessageModel.BROADCASTING))
    place.beat(second, consuming("c2", model=MessageModel.BROADCASTING))
    place.clients.on_closed(second)

    assert changes_told(first) == changes_told(second) == []


def test_notices_can_be_switched_off_for_a_group(place: Place) -> None:
    place.groups.put(SubscriptionGroupConfig("G", notify_consumer_ids_changed_enable=False))
    channel = FakeChannel()

    place.beat(channel, consuming("c1", group="G"))
    place.beat(channel, consuming("c1", group="H"))

    assert changes_told(channel) == ["H"]


def test_notices_can_be_switched_off_for_all() -> None:
    place = Place(notify_consumer_ids_changed_enable=False)
    channel = FakeChannel()

    place.beat(channel, consuming("c1"))

    assert changes_told(channel) == []


# --- going


def test_the_last_member_takes_the_group_along(place: Place) -> None:
    channel = place.join("c1")

    place.clients.on_closed(channel)
    place.clients.on_closed(channel)

    assert place.clients.consumer_groups == {}
    assert place.groups.get("G") is not None  # its settings stay


def test_a_client_leaves_one_group_and_stays_in_the_other(place: Place) -> None:
    channel = FakeChannel()
    place.beat(channel, consuming("c1", group="G"))
    place.beat(channel, consuming("c1", group="H"))

    place.clients.unregister(channel, producer_group="", consumer_group="G")

    assert list(place.clients.consumer_groups) == ["H"]


def test_the_others_are_told_when_a_client_leaves(place: Place) -> None:
    leaves, stays = place.join("c1"), place.join("c2")
    leaves.notices.clear()

    place.clients.unregister(leaves, producer_group="", consumer_group="G")

    assert changes_told(stays) == ["G"]
    assert changes_told(leaves) == []


def test_leaving_a_group_without_being_in_it_changes_nothing(place: Place) -> None:
    member, stranger = place.join("c1"), FakeChannel()

    place.clients.unregister(stranger, producer_group="P", consumer_group="G")
    place.clients.unregister(member, producer_group="P", consumer_group="H")

    assert place.clients.consumer_groups["G"].client_ids == ["c1"]


def test_a_silent_client_is_closed_after_its_time_and_the_others_are_told(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    silent, alive = place.join("c1"), place.join("c2")
    place.clock.advance(100)
    place.beat(alive, consuming("c2"))

    place.clock.advance(20)
    place.clients.scan()
    assert silent.is_open

    place.clock.advance(0.001)
    place.clients.scan()
    assert silent.closed_for == "no heartbeat"
    assert alive.is_open
    assert changes_told(alive) == ["G"]
    assert place.clients.consumer_groups["G"].client_ids == ["c2"]
    assert [record.getMessage() for record in caplog.records] == [
        "client=c1 peer=127.0.0.1:40001 no heartbeat for more than 120000 ms: connection closed"
    ]


def test_members_are_told_once_when_many_others_are_silent(place: Place) -> None:
    for number in range(5):
        place.join(f"silent-{number}")
    place.clock.advance(100)
    alive = place.join("alive")
    place.clock.advance(100)

    place.clients.scan()

    assert changes_told(alive) == ["G"]


def test_a_group_that_a_client_does_not_name_any_more_is_left_but_the_client_stays(
    place: Place,
) -> None:
    """Go clients do not say good-bye to a group."""
    channel = FakeChannel()
    place.beat(channel, consuming("c1", group="G"))
    place.beat(channel, producing("c1"))
    place.clock.advance(100)
    place.beat(channel, consuming("c1", group="H"))
    place.clock.advance(100)

    place.clients.scan()

    assert list(place.clients.consumer_groups) == ["H"]
    assert place.clients.producer_groups == {}
    assert channel.is_open


def test_a_client_whose_groups_may_not_be_made_is_forgotten_in_time() -> None:
    place = Place()
    channel = FakeChannel()
    place.beat(channel, consuming("c1", group="G"))
    place.clock.advance(100)
    place.beat(channel, consuming("c1", group="not legal!"))
    place.clock.advance(100)

    place.clients.scan()
    place.clock.advance(200)
    place.clients.scan()

    assert place.clients.consumer_groups == {}
    assert channel.is_open


def test_a_client_that_left_all_its_groups_is_not_closed_for_silence(place: Place) -> None:
    channel = place.join("c1")

    place.clients.unregister(channel, producer_group="", consumer_group="G")
    place.clock.advance(1000)
    place.clients.scan()

    assert channel.is_open


# --- the same client twice


def test_a_client_that_changes_its_connection_is_listed_once(place: Place) -> None:
    former = place.join("c1")
    place.clock.advance(1)
    latter = place.join("c1")
    group = place.clients.consumer_groups["G"]

    assert group.client_ids == ["c1"]
    found = group.find("c1")
    assert found is not None
    assert found.channel is latter

    place.clients.on_closed(former)
    assert group.client_ids == ["c1"]
    assert group.find("c2") is None


def test_a_connection_that_gets_another_client_id_is_another_member(place: Place) -> None:
    channel = place.join("c1")

    place.beat(channel, consuming("c2"))

    assert changes_told(channel) == ["G"]
    assert place.clients.consumer_groups["G"].client_ids == ["c2"]


# --- heartbeats of the second version


def test_a_heartbeat_of_the_first_version_is_always_to_be_complete(place: Place) -> None:
    channel = FakeChannel()

    assert place.beat(channel, consuming(fingerprint=0))
    assert place.beat(channel, consuming())


def test_a_heartbeat_may_leave_out_what_the_broker_knows(place: Place) -> None:
    channel = FakeChannel()
    assert not place.beat(channel, consuming(topics="TU", fingerprint=7))
    channel.notices.clear()
    place.clock.advance(100)

    is_wanted = place.beat(channel, consuming(topics="", fingerprint=7, without_sub=True))

    assert not is_wanted
    assert list(place.clients.consumer_groups["G"].subscriptions) == ["T", "U"]
    assert changes_told(channel) == []
    place.clock.advance(100)
    place.clients.scan()
    assert channel.is_open


def test_subscriptions_are_wanted_when_others_are_known_or_none(place: Place) -> None:
    """None are known after a restart of the broker, and on a connection that is new to it."""
    first, second = FakeChannel(), FakeChannel()

    assert place.beat(first, consuming("c1", topics="", fingerprint=7, without_sub=True))
    assert not place.beat(first, consuming("c1", topics="T", fingerprint=7))
    assert not place.beat(first, consuming("c1", topics="", fingerprint=7, without_sub=True))
    assert place.beat(second, consuming("c2", topics="", fingerprint=7, without_sub=True))
    assert place.beat(first, consuming("c1", topics="", fingerprint=8, without_sub=True))
    assert place.clients.consumer_groups["G"].subscriptions.keys() == {"T"}


def test_members_that_disagree_go_on_sending_complete_heartbeats(place: Place) -> None:
    first, second = FakeChannel(), FakeChannel()
    place.beat(first, consuming("c1", topics="T", fingerprint=1))

    assert place.beat(second, consuming("c2", topics="U", fingerprint=2))
    assert place.beat(first, consuming("c1", topics="", fingerprint=1, without_sub=True))


def test_a_heartbeat_of_the_first_version_outdates_the_fingerprint(place: Place) -> None:
    first, second = FakeChannel(), FakeChannel()
    place.beat(first, consuming("c1", topics="T", fingerprint=7))
    place.beat(second, consuming("c2", topics="U"))

    assert place.beat(first, consuming("c1", topics="", fingerprint=7, without_sub=True))


# --- disagreement


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    caplog.clear()
    return found


def test_members_that_want_different_tags_are_named_in_one_line(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    first = place.join("c1", topics={"T": "a"})
    second = place.join("c2", topics={"T": "b"}, version=2)

    place.beat(first, consuming("c1", topics={"T": "a"}))
    place.beat(second, consuming("c2", topics={"T": "b"}, version=2))

    assert warnings_in(caplog) == [
        (
            "group=G topic=T members want different things, so both lose messages:"
            " client=c2 wants 'b', client=c1 wants 'a'"
        )
    ]
    assert place.clients.consumer_groups["G"].conflicts == [Conflict("T", "c2", "'b'", "c1", "'a'")]


def test_members_that_want_different_topics_disagree_too(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.join("c1", topics="TU")
    place.join("c2", topics="TV")

    assert warnings_in(caplog) == [
        (
            "group=G topic=U members want different things, so both lose messages:"
            " client=c2 wants nothing, client=c1 wants '*'"
        )
    ]
    assert [c.topic for c in place.clients.consumer_groups["G"].conflicts] == ["U", "V"]


def test_a_new_disagreement_of_the_same_pair_is_told_again(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.join("c1", topics={"T": "a"})
    second = place.join("c2", topics={"T": "b"})
    warnings_in(caplog)

    place.beat(second, consuming("c2", topics={"T": "a"}, version=2))
    assert place.clients.consumer_groups["G"].conflicts == []

    place.beat(second, consuming("c2", topics={"T": "b"}, version=3))
    assert len(warnings_in(caplog)) == 1


def test_a_disagreement_is_not_told_again_because_a_client_connects_anew(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.join("c1", topics={"T": "a"})
    second = place.join("c2", topics={"T": "b"})
    warnings_in(caplog)

    place.clients.on_closed(second)
    place.join("c2", topics={"T": "b"})

    assert warnings_in(caplog) == []
    assert len(place.clients.consumer_groups["G"].conflicts) == 1


def test_a_disagreement_ends_with_one_of_its_members(place: Place) -> None:
    place.join("c1", topics={"T": "a"})
    second = place.join("c2", topics={"T": "b"})

    place.clients.on_closed(second)

    assert place.clients.consumer_groups["G"].conflicts == []


def test_the_former_connection_of_a_client_is_no_other_opinion(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.join("c1", topics={"T": "a"})
    place.join("c1", topics={"T": "b"}, version=2)

    assert warnings_in(caplog) == []
    assert place.clients.consumer_groups["G"].conflicts == []


def test_other_words_for_the_same_are_no_disagreement(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.join("c1", topics={"T": "a || b", "%RETRY%G": "*"})
    place.join("c2", topics={"T": "b||a"}, version=2)

    assert warnings_in(caplog) == []


def test_a_member_that_never_said_what_it_wants_disagrees_with_nobody(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.join("c1", topics="T", fingerprint=7)
    place.join("c2", topics="", fingerprint=7, without_sub=True)

    assert warnings_in(caplog) == []
    assert place.clients.consumer_groups["G"].conflicts == []


def test_the_list_of_disagreements_is_bounded(place: Place) -> None:
    for number in range(CONFLICTS_MAX + 10):
        place.join(f"c{number}", topics={"T": f"tag-{number}"})

    assert len(place.clients.consumer_groups["G"].conflicts) == CONFLICTS_MAX


# --- producers


def test_producers_of_a_group_are_asked_in_turn(place: Place) -> None:
    channels = [FakeChannel() for _ in range(3)]
    for number, channel in enumerate(channels):
        place.beat(channel, producing(f"p{number}"))

    asked = [place.clients.producer_channel("P") for _ in range(6)]

    assert asked == channels * 2


def test_heartbeats_do_not_change_whose_turn_it_is(place: Place) -> None:
    first, second = FakeChannel(), FakeChannel()
    place.beat(first, producing("p1"))
    place.beat(second, producing("p2"))
    assert place.clients.producer_channel("P") is first

    place.beat(first, producing("p1"))

    assert place.clients.producer_channel("P") is second


def test_a_producer_whose_connection_is_closing_is_not_asked(place: Place) -> None:
    closing, usable = FakeChannel(), FakeChannel()
    place.beat(closing, producing("p1"))
    place.beat(usable, producing("p2"))

    closing.close()

    assert [place.clients.producer_channel("P") for _ in range(2)] == [usable, usable]
    usable.close()
    assert place.clients.producer_channel("P") is None
    assert place.clients.producer_channel("unknown") is None


def test_a_producer_is_found_by_its_client_id_until_it_leaves(place: Place) -> None:
    channel = FakeChannel()
    place.beat(channel, producing("p1", "P", "Q"))

    place.clients.unregister(channel, producer_group="P", consumer_group="")
    assert place.clients.channel_of_producer("p1") is channel

    place.clients.unregister(channel, producer_group="Q", consumer_group="")
    assert place.clients.channel_of_producer("p1") is None
    assert place.clients.producer_groups == {}


def test_a_producer_is_found_on_its_latest_connection(place: Place) -> None:
    former, latter = FakeChannel(), FakeChannel()
    place.beat(former, producing("p1"))
    place.beat(latter, producing("p1"))

    place.clients.on_closed(former)

    assert place.clients.channel_of_producer("p1") is latter


def test_a_connection_that_gets_another_client_id_is_not_found_by_the_first(place: Place) -> None:
    channel = FakeChannel()
    place.beat(channel, producing("p1"))

    place.beat(channel, producing("p2"))

    assert place.clients.channel_of_producer("p1") is None
    assert place.clients.channel_of_producer("p2") is channel


# --- limits


def refused(place: Place, channel: FakeChannel, data: HeartbeatData) -> str:
    with pytest.raises(BrokerError) as error:
        place.beat(channel, data)
    assert error.value.response_code == ResponseCode.INVALID_PARAMETER
    return error.value.remark


def test_a_client_needs_an_id(place: Place) -> None:
    assert refused(place, FakeChannel(), consuming(" ")) == "a heartbeat needs a clientID"


def test_the_id_of_a_client_is_bounded(place: Place) -> None:
    longest = "c" * CLIENT_ID_CHARACTERS_MAX
    place.beat(FakeChannel(), consuming(longest))

    remark = refused(place, FakeChannel(), consuming(longest + "c"))

    assert remark == "clientID of 1025 characters: at most 1024"


def test_the_groups_of_a_client_are_bounded_over_all_its_heartbeats(place: Place) -> None:
    channel = FakeChannel()
    most = tuple(ProducerData(f"P{number}") for number in range(CLIENT_GROUPS_MAX))
    place.beat(channel, HeartbeatData("c1", most))
    place.beat(channel, HeartbeatData("c1", most[:5]))

    remark = refused(place, channel, consuming("c1"))

    assert remark == "1025 groups of one client: at most 1024"
    assert place.clients.consumer_groups == {}


def test_the_topics_of_a_member_are_bounded(place: Place) -> None:
    topics = dict.fromkeys((f"T{number}" for number in range(GROUP_TOPICS_MAX + 1)), "*")

    remark = refused(place, FakeChannel(), consuming(topics=topics))

    assert remark == "group G subscribes to 1025 topics: at most 1024"
    assert place.clients.consumer_groups == {}
    assert place.groups.get("G") is None


@pytest.mark.parametrize(
    "data",
    [
        producing("c1", "n" * (NAME_CHARACTERS_MAX + 1)),
        consuming(group="n" * (NAME_CHARACTERS_MAX + 1)),
        consuming(topics={"n" * (NAME_CHARACTERS_MAX + 1): "*"}),
    ],
    ids=["producer group", "consumer group", "topic"],
)
def test_names_are_bounded(place: Place, data: HeartbeatData) -> None:
    remark = refused(place, FakeChannel(), data)

    assert remark == f"name of 256 characters: at most 255: {'n' * 256}"


def test_the_text_of_all_subscriptions_of_a_client_is_bounded(place: Place) -> None:
    channel = FakeChannel()
    half = SubscriptionData("T", "x" * (CLIENT_TEXT_MAX // 2 - 6), expression_type="SQL92")
    place.beat(channel, wanting("G", half))
    place.beat(channel, wanting("G", half))
    place.beat(channel, wanting("H", half))

    remark = refused(place, channel, wanting("I", SubscriptionData("T")))

    assert remark == "subscriptions of 1048581 characters: at most 1048576"
    assert list(place.clients.consumer_groups) == ["G", "H"]


def test_what_clients_computed_counts_as_text(place: Place) -> None:
    codes = tuple(range(CLIENT_TEXT_MAX // 16 + 1))

    remark = refused(place, FakeChannel(), wanting("G", SubscriptionData("T", code_set=codes)))

    assert remark == "subscriptions of 1048597 characters: at most 1048576"


def wanting(group: str, data: SubscriptionData) -> HeartbeatData:
    return HeartbeatData("c1", (), (ConsumerData(group, subscription_data_set=(data,)),))
