"""Batches for one call of a handler."""

import pytest

from cometmq.client.core.message import ACK, RETRY, SUSPEND, Message, Mode, Source
from cometmq.client.core.message_batch import Batch
from cometmq.client.core.value_codecs import BYTES
from cometmq.errors import DecisionError, InvalidArgument
from tests.unit.client.consumer_kit import stored


def batch_of(count: int, mode: Mode = Mode.CONCURRENT) -> Batch[bytes]:
    source = Source("broker-a", BYTES, "group", "", mode)
    return Batch([Message(stored(number), source) for number in range(count)])


def test_a_batch_is_a_sequence_of_its_messages() -> None:
    batch = batch_of(3)

    assert len(batch) == 3
    assert [message.queue_offset for message in batch] == [0, 1, 2]
    assert [message.queue_offset for message in batch[1:]] == [1, 2]
    assert "3 messages, 0 to 2 of" in repr(batch)


def test_returning_acknowledges_all_and_raising_none() -> None:
    assert batch_of(2).settled(has_failed=False) == [ACK, ACK]
    assert batch_of(2).settled(has_failed=True) == [RETRY, RETRY]
    assert batch_of(2, Mode.ORDERLY).settled(has_failed=True) == [SUSPEND, SUSPEND]


def test_a_prefix_can_be_acknowledged_and_the_last_word_counts() -> None:
    batch = batch_of(3)
    batch.ack_up_to(-1)
    batch.ack_up_to(1)

    assert batch.settled(has_failed=False) == [ACK, ACK, RETRY]


def test_what_was_decided_about_one_message_counts_most() -> None:
    batch = batch_of(3)
    batch[0].retry(delay_level=2)
    batch[2].ack()
    batch.ack_up_to(0)

    first, second, third = batch.settled(has_failed=True)

    assert (first.delay_level, second, third) == (2, RETRY, ACK)
    with pytest.raises(DecisionError):
        batch[1].ack()


@pytest.mark.parametrize("index", [-2, 3])
def test_an_index_that_is_not_in_the_batch_is_refused(index: int) -> None:
    with pytest.raises(InvalidArgument, match="batch of 3 messages"):
        batch_of(3).ack_up_to(index)
