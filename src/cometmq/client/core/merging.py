"""Several queues read side by side, so that their messages come in the order they were stored."""

import heapq
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar


class Stored(Protocol):
    """What is asked of a message."""

    @property
    def stored_ms(self) -> int: ...

    @property
    def broker_name(self) -> str: ...

    @property
    def physical_offset(self) -> int: ...


M = TypeVar("M", bound=Stored)

_Rank = tuple[int, str, int]


class Merge(Generic[M]):
    """Pages of several queues, of each at most one; the oldest message goes first.

    ::

        while merge:
            number, message = merge.take()
            ...
            if merge.is_dry(number):
                merge.put(number, the next page of this queue)

    Without the next page of a queue that has one, others would go before their time.
    """

    def __init__(self) -> None:
        self._heads: list[tuple[_Rank, int]] = []
        self._pages: dict[int, list[M]] = {}  # backwards, by the number of the queue

    def __bool__(self) -> bool:
        return bool(self._heads)

    def is_dry(self, number: int) -> bool:
        """Whether a queue has no message here."""
        return number not in self._pages

    def put(self, number: int, page: Sequence[M]) -> None:
        """Take the next page of a dry queue, in the order of the queue; an empty one is none."""
        assert number not in self._pages, number
        if page:
            self._pages[number] = list(page[::-1])
            heapq.heappush(self._heads, (_rank(page[0]), number))

    def take(self) -> tuple[int, M]:
        """The oldest message, with the number of its queue."""
        number = self._heads[0][1]
        page = self._pages[number]
        message = page.pop()
        if page:
            heapq.heapreplace(self._heads, (_rank(page[-1]), number))
        else:
            heapq.heappop(self._heads)
            del self._pages[number]
        return number, message


def _rank(message: Stored) -> _Rank:
    """What is sorted by: the log of a broker knows more than milliseconds."""
    return message.stored_ms, message.broker_name, message.physical_offset
