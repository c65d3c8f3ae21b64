"""The JSON files of a store's ``config`` folder: topics, groups and positions.

A file keeps the layout in which it was found, since all releases read both layouts and whoever
compares two copies should see only what changed; a new one is laid out as 5.5.0 does it. Members
that a newer release wrote and we do not know stay for as long as what they belong to.
"""

import re
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from cometmq import logs
from cometmq.codec import fastjson
from cometmq.codec.bodies import documents
from cometmq.codec.bodies.groups import SubscriptionGroupTable
from cometmq.codec.bodies.offsets import ConsumerOffsetTable, DelayOffsetTable
from cometmq.codec.bodies.topics import TopicConfigTable
from cometmq.codec.fastjson import PrettyStyle
from cometmq.saved_file import Files, SavedFile, Source

FOLDER: Final = "config"
"""Where the documents lie below the store directory."""

_log = logs.get_logger("cometmq.store")

T = TypeVar("T", bound=msgspec.Struct)

# A number as the first key of an object, on the line of the brace: only fastjson 1 puts it there.
# Text that looks so misleads us into a layout which every reader takes as well.
_FASTJSON_1 = re.compile(rb"\{-?\d+:")


class ConfigDocument(Generic[T]):
    """One file with its backup. Both methods block for the disk; calls must not overlap.

    Load before the first save: what was not read cannot be kept. The name of ``path`` is one of
    ``codec.bodies.documents.DOCUMENTS``, and ``kind`` is its type there.
    """

    def __init__(self, path: Path, kind: type[T], files: Files | None = None) -> None:
        assert documents.DOCUMENTS[path.name] is kind, (path.name, kind)
        self._path = path
        self._kind = kind
        self._file = SavedFile(path, self._parse, files)
        self._style = PrettyStyle.FASTJSON_2
        # The content on disk, when it may have members that we do not know.
        self._content: bytes | None = None

    def load(self) -> T:
        """What the file holds or, if it is missing, empty or broken, its backup.

        An empty table when there is neither; ``RemoteProtocolError`` when what is there cannot be
        read.
        """
        loaded = self._file.load()
        if loaded.source is Source.BACKUP:
            _log.warning("document=%s read from its backup: %s", self._path, loaded.problem)
        return self._kind() if loaded.value is None else loaded.value

    def save(self, value: T) -> None:
        """Replace the file, durably; what it held becomes the backup.

        After a crash, or an ``OSError`` on the way, the file is the old or the new one, whole.
        """
        previous = None if self._content is None else fastjson.loads(self._content)
        content = self._encoded(value, previous)
        self._file.save(content)
        # Reading costs more than the rest of a save together: never again if nothing unknown is
        # left. What we wrote counts then, not what we loaded: a topic that is deleted and made
        # anew must not inherit from its former self.
        has_unknown = previous is not None and content != self._encoded(value, None)
        self._content = content if has_unknown else None

    def _parse(self, content: bytes) -> T:
        value: T = documents.decode(content, name=self._path.name)
        is_fastjson_1 = _FASTJSON_1.search(content) is not None
        self._style = PrettyStyle.FASTJSON_1 if is_fastjson_1 else PrettyStyle.FASTJSON_2
        self._content = content
        return value

    def _encoded(self, value: T, previous: Any) -> bytes:
        name = self._path.name
        return documents.encode(value, name=name, style=self._style, previous=previous)


class ConfigDocuments:
    """The documents of a store that a broker cannot do without; the others are made by name."""

    def __init__(self, root: Path, files: Files | None = None) -> None:
        folder = root / FOLDER
        self.topics = ConfigDocument(folder / "topics.json", TopicConfigTable, files)
        self.groups = ConfigDocument(
            folder / "subscriptionGroup.json", SubscriptionGroupTable, files
        )
        self.consumer_offsets = ConfigDocument(
            folder / "consumerOffset.json", ConsumerOffsetTable, files
        )
        self.delay_offsets = ConfigDocument(folder / "delayOffset.json", DelayOffsetTable, files)
