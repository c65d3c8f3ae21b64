"""How long a peer may take: for a frame, for reading answers, for saying anything at all.

Time comes in as an argument; a channel asks now and then and ends the connection if told so.
"""

from typing import NamedTuple

from cometmq.remoting.config import ChannelSettings


class Verdict(NamedTuple):
    """Why a connection must end. Being idle is no fault: it ends without a line in the log."""

    reason: str
    is_fault: bool


class Watch:
    """The times that matter of one connection, in seconds of the loop's clock."""

    __slots__ = (
        "_sent_bytes",
        "_settings",
        "_stalled_since",
        "last_activity",
        "partial_since",
        "read_count",
    )

    def __init__(self, settings: ChannelSettings, now: float) -> None:
        self._settings = settings
        self.last_activity = now  # a byte in either direction, as far as was noticed
        self.read_count = 0  # how often something came from the peer
        self.partial_since: float | None = None  # when the frame that is incomplete began
        self._stalled_since: float | None = None  # when unread answers last became fewer
        self._sent_bytes = 0  # what the peer had taken when we looked last

    @property
    def interval(self) -> float:
        """Seconds between two looks, so that no limit is exceeded by more than a quarter."""
        limits = self._settings
        return (
            min(limits.idle_seconds_max, limits.frame_seconds_max, limits.stalled_seconds_max) / 4
        )

    def note_read(self, now: float, *, is_partial: bool, is_progress: bool) -> None:
        """Bytes came; do they leave something incomplete, and did they complete something?"""
        self.last_activity = now
        self.read_count += 1
        if not is_partial:
            self.partial_since = None
        elif is_progress or self.partial_since is None:
            self.partial_since = now

    def note_stall(self, now: float, sent_bytes: int) -> None:
        """Too much is unsent: nothing is read from the peer until it has read."""
        self._stalled_since = now
        self._sent_bytes = sent_bytes

    def note_flow(self, now: float) -> None:
        """The peer has read; what it was sending meanwhile was not its fault to be late with."""
        self._stalled_since = None
        if self.partial_since is not None:
            self.partial_since = now

    def verdict(self, now: float, sent_bytes: int) -> Verdict | None:
        """Must the connection end? ``sent_bytes`` is what the peer has taken in all."""
        limits = self._settings
        if sent_bytes > self._sent_bytes:
            # It reads. However slowly: a big answer over a thin line takes its time.
            self._sent_bytes = sent_bytes
            self.last_activity = now
            if self._stalled_since is not None:
                self._stalled_since = now
        if self._stalled_since is not None:
            if now - self._stalled_since > limits.stalled_seconds_max:
                return Verdict(f"left answers unread for {limits.stalled_seconds_max} s", True)
            return None
        if self.partial_since is not None and now - self.partial_since > limits.frame_seconds_max:
            return Verdict(f"took more than {limits.frame_seconds_max} s for one frame", True)
        if now - self.last_activity > limits.idle_seconds_max:
            return Verdict(f"idle for {limits.idle_seconds_max} s", False)
        return None
