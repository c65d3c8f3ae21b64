"""What a pull brought, and the messages that were asked for."""

from datetime import UTC, datetime

import pytest

from cometmq.client.core.arrivals import arrived, time_ms
from cometmq.client.core.message import Source
from cometmq.client.core.subscriptions import subscription
from cometmq.client.core.value_codecs import TEXT
from cometmq.codec import core
from cometmq.errors import InvalidArgument
from tests.unit.admin.fake_cluster import record

SOURCE = Source("broker-a", TEXT)


def test_a_message_with_a_twin_of_the_wanted_hash_is_left_out() -> None:
    data = record(body=b"wanted", TAGS="Aa") + record(body=b"twin", TAGS="BB", queue_offset=1)
    wanted = subscription("orders", tags="Aa", version_ms=0)

    found = arrived(core.parse_records(data), SOURCE, wanted)

    assert [message.value for message in found] == ["wanted"]


def test_without_tags_everything_arrives() -> None:
    records = core.parse_records(record(TAGS="Aa") + record(queue_offset=1))

    assert len(arrived(records, SOURCE, subscription("orders", version_ms=0))) == 2


def test_a_time_is_milliseconds_or_has_a_zone() -> None:
    assert time_ms("since", 1_700_000_000_000) == 1_700_000_000_000
    assert time_ms("since", datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)) == 1_700_000_000_000
    with pytest.raises(InvalidArgument, match="no time zone"):
        time_ms("since", datetime(2023, 11, 14))  # noqa: DTZ001  # what is refused
