"""Extension files of a queue, which Apache writes when asked to; here they are only read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.codec import queue_extension
from cometmq.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cometmq.store.queue_mappings import QueueMappings


class QueueExtension:
    """From the address in a queue entry to the tags code of its message."""

    def __init__(self, paths: Sequence[Path], file_bytes: int, mappings: QueueMappings) -> None:
        self._paths = {int(path.name): str(path) for path in paths}
        self._file_bytes = file_bytes
        self._mappings = mappings

    def tags_code(self, tags_code: int) -> int | None:
        """The tags code itself if it is no address; None when the unit is not there."""
        if not queue_extension.is_address(tags_code):
            return tags_code
        address = queue_extension.tags_code_to_address(tags_code)
        begin = address - address % self._file_bytes
        path = self._paths.get(begin)
        if path is None:
            return None
        try:
            unit = queue_extension.parse(self._mappings.get(path), address - begin)
        except RemoteProtocolError:
            return None
        return None if unit is None else unit.tags_code
