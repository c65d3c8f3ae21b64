"""The rules of retries: how often, after how long, and what is written on a copy."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cometmq.broker import retry
from cometmq.broker.config import BrokerSettings
from cometmq.broker.groups import GroupTable
from cometmq.broker.retry import Destination, Retries, RetryPlan
from cometmq.broker.topics import Topic, TopicTable
from cometmq.codec import properties, record, sysflag
from cometmq.codec.codes import V3_4_9, V5_5_0, ResponseCode
from cometmq.codec.headers.send import ConsumerSendMsgBack, SendMessage
from cometmq.codec.message_id import encode_offset_id
from cometmq.codec.record import Record
from cometmq.errors import BrokerError
from cometmq.model.group import SubscriptionGroupConfig
from cometmq.model.topic import Permission
from cometmq.store.documents import ConfigDocuments
from cometmq.testing import FakeClock
from tests.golden.store_data import load
from tests.unit.broker.test_delay_levels import records

HOST = record.pack_host("10.0.0.5", 10911)
OUR_HOST = record.pack_host("10.0.0.7", 10911)
OUR_HOST_V6 = record.pack_host("2001:db8::7", 10911)
GROUP = SubscriptionGroupConfig("GID")
INT32_MAX = 2**31 - 1


def stored(text: bytes = b"", **fields: Any) -> Record:
    found = Record(
        size=0, magic=0, body_crc=0, queue_id=3, flag=5, queue_offset=11, physical_offset=4096,
        sys_flag=1, born_timestamp=17, born_host=HOST, store_timestamp=18, store_host=HOST,
        reconsume_times=0, prepared_transaction_offset=0, body=b"body", topic="orders",
        properties=text,
    )  # fmt: skip
    return msgspec.structs.replace(found, **fields)


def planned(
    times: int = 0,
    delay_level: int = 0,
    times_max: int | None = None,
    *,
    group: SubscriptionGroupConfig = GROUP,
    version: int = V5_5_0,
) -> RetryPlan:
    said = ConsumerSendMsgBack(4096, "GID", delay_level, max_reconsume_times=times_max)
    return retry.plan(stored(reconsume_times=times), said, group, version)


# --- messages handed back


def test_levels_grow_with_the_attempts_until_the_message_is_dead() -> None:
    plans = [planned(times) for times in range(17)]

    assert [made.delay_level for made in plans] == [*range(3, 19), 0]
    assert [made.reconsume_times for made in plans] == list(range(1, 18))
    assert {made.destination for made in plans[:16]} == {Destination.RETRY}
    assert plans[16].destination is Destination.DEAD_LETTER


def test_a_consumer_may_choose_the_level() -> None:
    assert planned(5, delay_level=2) == RetryPlan(Destination.RETRY, 2, 6)


def test_a_level_below_zero_means_that_the_message_is_dead() -> None:
    assert planned(0, delay_level=-1) == RetryPlan(Destination.DEAD_LETTER, 0, 1)


def test_the_limit_of_the_group_holds() -> None:
    group = SubscriptionGroupConfig("GID", retry_max_times=2)

    assert planned(1, group=group).destination is Destination.RETRY
    assert planned(2, group=group).destination is Destination.DEAD_LETTER


def test_a_consumer_may_say_another_limit_if_it_is_new_enough() -> None:
    assert planned(1, times_max=1, version=V3_4_9).destination is Destination.DEAD_LETTER
    assert planned(1, times_max=1, version=V3_4_9 - 1).destination is Destination.RETRY
    assert planned(20, times_max=30).destination is Destination.RETRY
    assert planned(0, times_max=0).destination is Destination.DEAD_LETTER


def test_a_count_of_attempts_that_is_full_stays_full() -> None:
    assert planned(INT32_MAX).reconsume_times == INT32_MAX


def test_a_copy_is_the_message_with_its_origin_and_one_attempt_more() -> None:
    found = stored(b"TAGS\x01T\x02")

    copy = retry.handed_back(found, planned(), "%RETRY%GID", 1, OUR_HOST)

    assert (copy.topic, copy.queue_id, copy.reconsume_times) == ("%RETRY%GID", 1, 1)
    assert properties.decode(copy.properties) == {
        "TAGS": "T",
        "DELAY": "3",
        "WAIT": "false",
        "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": encode_offset_id(HOST, 4096),
    }
    assert copy.properties.endswith(b"\x02")
    same = ("body", "flag", "sys_flag", "born_timestamp", "born_host")
    assert [getattr(copy, name) for name in same] == [getattr(found, name) for name in same]
    assert copy.store_host == OUR_HOST


def test_the_origin_of_a_message_stays_what_it_was_at_first() -> None:
    text = b"RETRY_TOPIC\x01first\x02ORIGIN_MESSAGE_ID\x01AB\x02WAIT\x01true\x02DELAY\x013\x02"

    copy = retry.handed_back(
        stored(text, topic="%RETRY%GID", reconsume_times=1), planned(1), "%RETRY%GID", 0, OUR_HOST
    )

    assert copy.properties == (
        b"RETRY_TOPIC\x01first\x02ORIGIN_MESSAGE_ID\x01AB\x02WAIT\x01false\x02DELAY\x014\x02"
    )


def test_a_copy_says_of_its_hosts_what_they_are() -> None:
    here_v6 = retry.handed_back(stored(), planned(), "%RETRY%GID", 0, OUR_HOST_V6)
    born_v6 = sysflag.BORN_HOST_V6 | sysflag.STORE_HOST_V6
    there_v6 = stored(sys_flag=born_v6, born_host=OUR_HOST_V6, store_host=OUR_HOST_V6)
    here_v4 = retry.handed_back(there_v6, planned(), "%RETRY%GID", 0, OUR_HOST)

    assert here_v6.sys_flag == 1 | sysflag.STORE_HOST_V6
    assert here_v4.sys_flag == sysflag.BORN_HOST_V6


def test_the_checksum_of_the_first_record_is_not_copied() -> None:
    found = stored(b"a\x011\x02__CRC32#\x010123456789\x02")

    assert b"CRC32" not in retry.handed_back(found, planned(), "t", 0, OUR_HOST).properties


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.9.7-clean", "5.5.0-clean"])
def test_our_copies_are_those_that_apache_made(name: str) -> None:
    log = records(load(name))
    first = {key_of(found): found for found in log if found.topic in ("RetrySource", "SlowSource")}
    again = {key_of(found): found for found in log if found.topic == "%RETRY%GID_retry"}
    waiting = [
        found
        for found in log
        if found.topic == "SCHEDULE_TOPIC_XXXX" and found.reconsume_times == 1
    ]
    dead = [found for found in log if found.topic == "%DLQ%GID_retry"]

    assert (len(waiting), len(dead)) == (7, 4)
    for found in waiting:
        text = properties.decode(found.properties)
        chosen = RetryPlan(Destination.RETRY, int(text["DELAY"]), 1)
        copy = retry.handed_back(first[key_of(found)], chosen, "", 0, found.store_host)
        del text["REAL_TOPIC"], text["REAL_QID"]
        assert properties.decode(copy.properties) == text
        assert facts_of(copy) == facts_of(found)
    for found in dead:
        chosen = RetryPlan(Destination.DEAD_LETTER, 0, 2)
        copy = retry.handed_back(again[key_of(found)], chosen, "", 0, found.store_host)
        assert copy.properties == found.properties.removesuffix(b"\x02") + b"\x02"
        assert facts_of(copy) == facts_of(found)


def key_of(found: Record) -> str:
    return properties.decode(found.properties)["UNIQ_KEY"]


def facts_of(found: Any) -> list[Any]:
    names = (
        "body", "flag", "sys_flag", "born_timestamp", "born_host", "store_host", "reconsume_times",
        "prepared_transaction_offset",
    )  # fmt: skip
    return [getattr(found, name) for name in names]


# --- copies sent to the retry topic


class Tables:
    """Topics and groups, and whether the group consumes in order."""

    def __init__(self, root: Path, *, locked: str = "", **settings: Any) -> None:
        documents, clock = ConfigDocuments(root), FakeClock()
        self.topics = TopicTable(documents.topics, BrokerSettings(**settings), clock)
        self.groups = GroupTable(documents.groups, BrokerSettings(**settings), clock)
        self.retries = Retries(self.groups, self.topics, lambda group: group == locked)

    def redirected(
        self, times: int | None, times_max: int | None = None, *, version: int = V5_5_0
    ) -> Topic | None:
        """Where a copy goes that says how often it was tried."""
        topic = self.topics.create_retry("GID", 1, is_unit=False)
        header = SendMessage(
            "CLIENT_INNER_PRODUCER", topic.name, "TBW102", 4, 0, 0, 0, 0,
            reconsume_times=times, max_reconsume_times=times_max,
        )  # fmt: skip
        return self.retries.redirected(topic, header, version)


def test_a_copy_stays_until_its_attempts_exceed_the_limit(tmp_path: Path) -> None:
    tables = Tables(tmp_path)

    assert tables.redirected(16) is None
    assert tables.redirected(None) is None
    dead = tables.redirected(17)
    assert dead is not None
    assert dead.name == "%DLQ%GID"
    assert dead.config.perm == Permission.READ | Permission.WRITE
    assert (dead.read_queue_count, dead.write_queue_count) == (1, 1)


def test_both_ways_of_retrying_end_after_the_same_failure(tmp_path: Path) -> None:
    """A client that cannot hand a message back sends a copy that counts one attempt more."""
    tables = Tables(tmp_path)

    for times in range(20):
        is_dead = planned(times).destination is Destination.DEAD_LETTER
        assert (tables.redirected(times + 1) is not None) == is_dead


def test_the_limit_that_a_copy_brings_holds_if_its_sender_is_new_enough(tmp_path: Path) -> None:
    tables = Tables(tmp_path)

    assert tables.redirected(2, 1) is not None
    assert tables.redirected(2, 1, version=V3_4_9 - 1) is None
    assert tables.redirected(1000, INT32_MAX) is None


def test_what_comes_from_a_group_that_consumes_in_order_is_dead(tmp_path: Path) -> None:
    assert Tables(tmp_path, locked="GID").redirected(0, INT32_MAX) is not None
    assert Tables(tmp_path, locked="other").redirected(0, INT32_MAX) is None


def test_a_copy_for_a_group_that_cannot_exist_is_refused(tmp_path: Path) -> None:
    tables = Tables(tmp_path, auto_create_subscription_group=False)

    with pytest.raises(BrokerError) as refused:
        tables.redirected(0)

    assert refused.value.response_code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert refused.value.remark == "subscription group not exist, GID"


def test_a_dead_copy_has_no_delay() -> None:
    text = retry.dead_letter_properties(b"DELAY\x015\x02TAGS\x01T\x02")

    assert text == b"DELAY\x01-1\x02TAGS\x01T\x02"
