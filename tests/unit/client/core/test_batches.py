import itertools
import random
from typing import Any

import pytest

from cometmq.client.core import outgoing
from cometmq.client.core.batches import (
    Accumulator,
    Group,
    Held,
    check_batch,
    encoded_bytes,
    joined,
    split,
)
from cometmq.client.core.outgoing import Outgoing, Writer
from cometmq.codec import batch, properties
from cometmq.codec.compression import CompressionType
from cometmq.errors import InvalidArgument
from cometmq.model.offsets import MessageQueue

WRITER = Writer()
QUEUE = MessageQueue("orders", "broker-a", 0)


def message(
    body: bytes = b"x", topic: str = "orders", number: int = 0, **arguments: Any
) -> Outgoing:
    return WRITER.write(topic, body, f"ID{number}", is_compressible=False, **arguments)


class TestSplitting:
    def test_messages_that_fit_are_one_batch(self) -> None:
        (made,) = split([message(b"a", number=1), message(b"bc", number=2, tag="T", flag=7)])

        first, second = batch.decode(made.body)
        assert made.topic == "orders"
        assert made.unique_ids == ("ID1", "ID2")
        assert (first.body, second.body, second.flag) == (b"a", b"bc", 7)
        assert properties.decode(second.properties) == {
            "UNIQ_KEY": "ID2",
            "WAIT": "true",
            "TAGS": "T",
        }

    def test_the_frame_itself_has_no_id(self) -> None:
        (made,) = split([message(), message(number=1)])
        (hasty,) = split([message(wait_store=False)])

        assert properties.decode(made.properties) == {"WAIT": "true"}
        assert properties.decode(hasty.properties) == {"WAIT": "false"}

    def test_the_size_in_a_batch_is_known_before(self) -> None:
        for one in (message(), message(b"abc", tag="é", keys="k1 k2")):
            assert encoded_bytes(one) == len(joined([one]).body)

    @pytest.mark.parametrize("seed", range(5))
    def test_batches_keep_order_and_limit_and_are_as_few_as_can_be(self, seed: int) -> None:
        source = random.Random(seed)
        messages = [
            message(source.randbytes(source.randrange(1, 400)), number=number)
            for number in range(100)
        ]

        made = split(messages, 2_000)

        bodies = [item.body for one in made for item in batch.decode(one.body)]
        assert bodies == [one.body for one in messages], f"seed {seed}"
        assert all(len(one.body) <= 2_000 for one in made)
        for left, right in itertools.pairwise(made):
            head = encoded_bytes(messages[int(right.unique_ids[0][2:])])
            assert len(left.body) + head > 2_000, f"seed {seed}"

    def test_exactly_at_the_limit_is_one_batch(self) -> None:
        messages = [message(number=1), message(number=2)]
        size = sum(map(encoded_bytes, messages))

        assert len(split(messages, size)) == 1
        assert len(split(messages, size - 1)) == 2

    def test_a_message_that_fits_into_no_batch_is_refused(self) -> None:
        size = encoded_bytes(message())

        assert split([message()], size)
        with pytest.raises(InvalidArgument, match=f"message 1 takes {size + 1} bytes"):
            split([message(), message(b"xy")], size)

    @pytest.mark.parametrize(
        ("second", "problem"),
        [
            (message(topic="bills"), "for topic 'bills'"),
            (message(wait_store=False), "another wait_store"),
            (message(delay_level=1), "it has a delay"),
            (message(delay_ms=1), "it has a delay"),
            (message(deliver_at_ms=10**12), "it has a delay"),
            (message(system=outgoing.half("g")), "half message"),
            (message(system=outgoing.reply("i", "c", "1")), "reply message"),
        ],
    )
    def test_what_cannot_be_in_a_batch_is_named(self, second: Outgoing, problem: str) -> None:
        with pytest.raises(InvalidArgument, match=f"message 1 .*{problem}"):
            check_batch([message(), second])

    def test_retry_topics_take_no_batches(self) -> None:
        with pytest.raises(InvalidArgument, match="retry topic"):
            check_batch([message(topic="%RETRY%g")])

    def test_compressed_bodies_have_no_place_in_a_batch(self) -> None:
        compressed = Writer(compress_over_bytes=1, compression=CompressionType.ZLIB).write(
            "orders", b"x", "ID"
        )

        with pytest.raises(InvalidArgument, match="compressed"):
            check_batch([compressed])

    def test_no_messages_are_no_batch(self) -> None:
        with pytest.raises(InvalidArgument, match="no messages"):
            split([])


def accumulator(**arguments: int) -> Accumulator[int]:
    return Accumulator(**arguments)


def bodies(groups: list[Group[int]]) -> list[list[bytes]]:
    return [[one.body for one in group.messages] for group in groups]


class TestAccumulator:
    def test_messages_of_one_queue_stay_in_order_whatever_their_tags(self) -> None:
        held, queue = accumulator(), MessageQueue("orders", "a", 0)

        held.add(message(b"1", tag="x"), queue, 1, 0)
        held.add(message(b"2", tag="y"), queue, 2, 1)
        held.add(message(b"3", tag="x"), queue, 3, 2)

        assert bodies(held.take_due(10)) == [[b"1", b"2", b"3"]]

    def test_what_cannot_be_with_the_others_of_its_queue_lets_them_go_first(self) -> None:
        held, queue = accumulator(), MessageQueue("orders", "a", 0)

        held.add(message(b"1"), queue, 1, 0)
        assert held.add(message(b"2"), queue, 2, 1, timeout_ms=100) is Held.DUE

        assert bodies(held.take_due(1)) == [[b"1"]]
        assert held.release(queue, 2)
        assert not held.release(queue, 2)
        assert bodies(held.take_due(2)) == [[b"2"]]

    def test_who_has_little_time_is_not_held_for_long(self) -> None:
        held = accumulator(hold_ms=100)

        held.add(message(b"patient"), None, 1, 0, timeout_ms=3_000)
        held.add(message(b"hurried"), None, 2, 0, timeout_ms=20)

        assert held.next_due_ms == 10
        assert bodies(held.take_due(10)) == [[b"hurried"]]
        assert held.next_due_ms == 100

    def test_a_group_is_due_after_its_first_message_has_waited(self) -> None:
        held = accumulator()

        assert held.next_due_ms is None
        assert held.add(message(b"a"), None, 1, 100) is Held.WAITING
        assert held.add(message(b"b"), None, 2, 105) is Held.WAITING
        assert held.next_due_ms == 110
        assert held.take_due(109) == []
        (group,) = held.take_due(110)

        assert bodies([group]) == [[b"a", b"b"]]
        assert group.waiters == [1, 2]
        assert held.next_due_ms is None

    def test_a_full_group_is_due_at_once(self) -> None:
        size = encoded_bytes(message())
        held = accumulator(group_bytes=2 * size)

        assert held.add(message(), None, 1, 100) is Held.WAITING
        assert held.add(message(), None, 2, 101) is Held.DUE
        assert held.next_due_ms == 101
        assert held.add(message(b"y"), None, 3, 101) is Held.DUE

        assert bodies(held.take_due(101)) == [[b"x", b"x"]]
        assert held.next_due_ms == 111

    def test_messages_are_grouped_by_topic_queue_waiting_and_tag(self) -> None:
        held = accumulator()
        for queue, one in [
            (None, message()),
            (None, message(topic="bills")),
            (QUEUE, message()),
            (None, message(wait_store=False)),
            (None, message(tag="T")),
            (None, message(number=1)),
        ]:
            held.add(one, queue, 0, 0)

        groups = held.take_due(10)

        assert [len(group.messages) for group in groups] == [2, 1, 1, 1, 1]
        for group in groups:
            check_batch(group.messages)

    def test_what_is_held_counts_until_it_was_sent(self) -> None:
        size = encoded_bytes(message())
        held = accumulator(total_bytes=2 * size)
        held.add(message(), None, 1, 0)
        held.add(message(), None, 2, 0)

        assert held.add(message(), None, 3, 0) is Held.NO
        (group,) = held.take_due(10)
        assert held.add(message(), None, 3, 10) is Held.NO
        held.sent(group)
        assert held.held_bytes == 0
        assert held.add(message(), None, 3, 10) is Held.WAITING

    @pytest.mark.parametrize(
        "one",
        [
            message(bytes(32 * 1024)),
            message(delay_level=1),
            message(system=outgoing.half("g")),
            message(topic="%RETRY%g"),
            Writer().write("orders", bytes(5_000), "ID"),
        ],
        ids=["large", "delayed", "half", "retry", "compressed"],
    )
    def test_what_gains_nothing_or_must_not_is_sent_by_itself(self, one: Outgoing) -> None:
        held = accumulator()

        assert held.add(one, None, 1, 0) is Held.NO
        assert held.held_bytes == 0

    def test_no_group_is_larger_than_a_batch_may_be(self) -> None:
        size = encoded_bytes(message())
        held = accumulator(group_bytes=100 * size, batch_bytes_max=3 * size - 1)
        for number in range(7):
            held.add(message(number=number), None, number, 0)

        groups = held.take_all()

        assert sum(len(group.messages) for group in groups) == 7
        assert all(len(joined(group.messages).body) < 3 * size for group in groups)

    def test_everything_leaves_when_the_producer_stops(self) -> None:
        held = accumulator(group_bytes=2 * encoded_bytes(message()))
        for number in range(3):
            held.add(message(number=number), None, number, 0)

        groups = held.take_all()

        assert [group.waiters for group in groups] == [[0, 1], [2]]
        assert held.take_all() == []
        for group in groups:
            held.sent(group)
        assert held.held_bytes == 0
