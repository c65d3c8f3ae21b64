"""Several messages for one call of a handler."""

from collections.abc import Sequence
from typing import TypeVar, overload

from cometmq.client.core.message import ACK, RETRY, SUSPEND, Decision, Message, Mode, settle
from cometmq.errors import InvalidArgument

T = TypeVar("T")


class Batch(Sequence[Message[T]]):
    """Messages of one queue in its order. What is decided about a single one counts most."""

    __slots__ = ("_ack_index", "_messages")

    def __init__(self, messages: Sequence[Message[T]]) -> None:
        assert messages
        self._messages = messages
        self._ack_index = len(messages) - 1

    def ack_up_to(self, index: int) -> None:
        """Say that the messages up to and including ``index`` are done and the others are not.

        With -1 none is. Counts when the handler returns; the last word is the one that counts.
        """
        if not -1 <= index < len(self._messages):
            fact = f"index {index} is not in a batch of {len(self._messages)} messages"
            raise InvalidArgument("index", fact, "give -1 to acknowledge none")
        self._ack_index = index

    def settled(self, *, has_failed: bool) -> list[Decision]:
        """End the delivery: what becomes of each message; a failed handler acknowledges none."""
        is_orderly = self._messages[0].source.mode is Mode.ORDERLY
        again = SUSPEND if is_orderly else RETRY
        ack_index = -1 if has_failed else self._ack_index
        return [
            settle(message, ACK if index <= ack_index else again)
            for index, message in enumerate(self._messages)
        ]

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> Message[T]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message[T]]: ...
    def __getitem__(self, index: int | slice) -> Message[T] | Sequence[Message[T]]:
        return self._messages[index]

    def __repr__(self) -> str:
        first, last = self._messages[0], self._messages[-1]
        place = f"{first.queue_offset} to {last.queue_offset} of {first.queue}"
        return f"<Batch of {len(self)} messages, {place}>"
