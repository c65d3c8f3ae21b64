"""The ``checkpoint`` file: up to which store times log, queues and index are on disk."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final

from cometmq.codec import checkpoint as page
from cometmq.codec.checkpoint import Checkpoint
from cometmq.errors import RemoteProtocolError

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.store.files import Files

SAFETY_MS: Final = 3000
"""How much earlier than the checkpoint says recovery begins, as Apache's does."""


class CheckpointFile:
    """Read once when the store opens, rewritten in place after each thorough flush."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path
        self._has_file = False
        # Everything before this log position is on disk; None when somebody else wrote the page.
        self.position: int | None = None
        self.last = self._load()

    def save(self, checkpoint: Checkpoint, position: int | None) -> None:
        """Write the page and return when it is on disk."""
        if not self._has_file:
            self._files.create(self._path, page.PAGE_BYTES)
            self._has_file = True
        with closing(self._files.open(self._path)) as file:
            file.allocate(0, page.PAGE_BYTES)
            file.write(0, page.pack(checkpoint, position))
            file.sync()
        self.last = checkpoint
        self.position = position

    @property
    def begin_ms(self) -> int:
        """Records stored before this time are surely in the log and its queues, on disk."""
        return max(0, min(self.last.log_timestamp, self.last.queue_timestamp) - SAFETY_MS)

    def _load(self) -> Checkpoint:
        content = self._files.read(self._path)
        if content is not None and len(content) != page.PAGE_BYTES:
            # Half made, or not by us: worth nothing, and without it recovery reads more.
            self._files.remove(self._path)
            return Checkpoint()
        self._has_file = content is not None
        self.position = page.unpack_position(content or b"")
        try:
            return page.unpack(content or b"")
        except RemoteProtocolError:
            return Checkpoint()
