"""A disk from which some files cannot be opened as long as a test says so."""

import errno
from pathlib import Path

from cometmq.store.files import DiskFile, DiskFiles


class ShutDisk(DiskFiles):
    """Nothing below ``shut`` can be opened, as in a process that has too many files open."""

    def __init__(self) -> None:
        self.shut: Path | None = None

    def open(self, path: Path) -> DiskFile:
        if self.shut is not None and path.is_relative_to(self.shut):
            raise OSError(errno.EMFILE, "Too many open files", str(path))
        return super().open(path)
