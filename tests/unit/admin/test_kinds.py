import pytest

from cometmq.admin.kinds import TopicKind, is_system_group, topic_kind

SERVERS = {"east", "broker-a"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("orders", TopicKind.NORMAL),
        ("%RETRY%billing", TopicKind.RETRY),
        ("%DLQ%billing", TopicKind.DLQ),
        ("east", TopicKind.SYSTEM),
        ("broker-a", TopicKind.SYSTEM),
        ("east_REPLY_TOPIC", TopicKind.SYSTEM),
        ("orders_REPLY_TOPIC", TopicKind.NORMAL),
        ("rmq_sys_wheel_timer", TopicKind.SYSTEM),
        ("RMQ_SYS_TRACE_TOPIC", TopicKind.SYSTEM),
        ("SCHEDULE_TOPIC_XXXX", TopicKind.SYSTEM),
        ("TBW102", TopicKind.SYSTEM),
    ],
)
def test_the_name_tells_what_a_topic_is_for(name: str, kind: TopicKind) -> None:
    assert topic_kind(name, SERVERS) is kind


def test_groups_of_rocketmq_itself_are_told_apart() -> None:
    assert is_system_group("TOOLS_CONSUMER")
    assert is_system_group("CID_RMQ_SYS_TRANS")
    assert not is_system_group("billing")
