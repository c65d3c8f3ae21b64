"""Who has a store: one process at a time has its directory, and each folder that its log grows in.

The directory's ``lock`` is Apache's, and keeps Apache's broker away, too. It says nothing of two
stores with directories of their own and one ``storePathCommitLog``, who would write over each
other's messages: so the folders are locked themselves, which adds no file to them. Folders that are
only read may be shared.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from cometmq import saved_file
from cometmq.errors import StoreLocked
from cometmq.store.directory import LOG_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cometmq.store.config import StoreSettings
    from cometmq.store.files import Files


@contextlib.contextmanager
def locked(root: Path, settings: StoreSettings, files: Files) -> Iterator[None]:
    """Have the store to oneself. Raises StoreLocked."""
    with contextlib.ExitStack() as locks:
        if not locks.enter_context(files.lock(root / "lock")):
            raise StoreLocked(str(root))
        for folder in _folders(root, settings):
            saved_file.make_folder(folder)
            if not locks.enter_context(files.lock(folder)):
                raise StoreLocked(str(folder), is_log=True)
        yield


def _folders(root: Path, settings: StoreSettings) -> list[Path]:
    """Where the log grows, each once."""
    paths = {Path(path) for path in settings.log_paths} or {root / LOG_FOLDER}
    paths -= {Path(path) for path in settings.log_paths_read_only}
    return sorted(paths)
