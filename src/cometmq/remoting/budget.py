"""What all connections of a server together may hold of frames that are not complete yet.

One peer may announce 16 MiB and send it slowly; a thousand of them must not take 16 GiB. Whoever
holds most is closed when the sum goes over the limit, so that honest peers, who hold little and not
for long, are not the ones to suffer.
"""

from typing import Protocol


class Holder(Protocol):
    """A connection, as far as the budget is concerned."""

    def drop(self, reason: str) -> None: ...


class PartialFrames:
    """The sum over all connections, and who is part of it."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held: dict[Holder, int] = {}
        self._total = 0

    @property
    def total_bytes(self) -> int:
        return self._total

    def update(self, holder: Holder, held_bytes: int) -> None:
        """``holder`` now holds that many bytes; over the limit, the largest is dropped."""
        self._total += held_bytes - self._held.get(holder, 0)
        if held_bytes:
            self._held[holder] = held_bytes
        else:
            self._held.pop(holder, None)
        while self._total > self._bytes_max:
            largest = max(self._held, key=self._held.__getitem__)
            held = self._held.pop(largest)
            self._total -= held
            largest.drop(
                f"holds {held} bytes of an incomplete frame while all connections together are"
                f" above {self._bytes_max}"
            )
