"""Store directories that this machine sees, and whether all of a log is in them.

A log may lie in several folders (``storePathCommitLog`` with commas), and of these perhaps one is
seen here. Who read that one alone would take the messages of the others for gone.
"""

from __future__ import annotations

from pathlib import Path

from cometmq.codec.headers.extensions import LogStatusResponse
from cometmq.errors import DamagedStore, NotFound
from cometmq.spark.store_files import StoreFiles
from cometmq.store.directory import LOG_FOLDER, QUEUE_FOLDER, offset_name


def store_of_broker(status: LogStatusResponse, roots: tuple[str, ...]) -> StoreFiles | None:
    """The directory that has the very file which a broker writes to."""
    newest = Path(status.newest_file)
    for root in roots or (status.store_root,):
        if not (Path(root) / QUEUE_FOLDER).is_dir():
            continue
        for folder in (Path(root) / LOG_FOLDER, newest.parent):
            try:
                inode = (folder / newest.name).stat().st_ino
            except OSError:
                continue
            if inode == status.newest_file_inode:
                return StoreFiles(Path(root), (folder,))
    return None


def unseen_file(store: StoreFiles, status: LogStatusResponse) -> str | None:
    """The first file of a broker's log that is not in the folders of ``store``, or None."""
    newest = Path(status.newest_file)
    step = store.log.file_bytes
    if not newest.name or not step:
        return None
    first = status.begin_offset // step * step
    unseen = _absent(store.log.listed(), first, int(newest.name), step)
    return offset_name(unseen[0]) if unseen else None


def store_alone(root: str) -> StoreFiles:
    """A directory whose broker cannot be asked. Raises NotFound, DamagedStore."""
    store = StoreFiles(Path(root))
    listed, step = store.log.listed(), store.log.file_bytes
    absent = _absent(listed, listed[0], listed[-1], step) if listed and step else []
    if absent:
        path = str(Path(root) / LOG_FOLDER / offset_name(absent[0]))
        advice = "if its log lies in several folders, link all of its files into this one"
        raise DamagedStore(path, "the file is missing between others of the log", advice)
    return store


def not_visible(
    broker_name: str, status: LogStatusResponse, roots: tuple[str, ...], file: str
) -> NotFound:
    """That a file of a broker's log is not seen here, and what to do about it."""
    looked = ", ".join(roots) or status.store_root
    advice = (
        f"the log of broker {broker_name} has {file}, which this machine does not see in {looked}:"
        " set 'storePath' to where it is here, or read with source=broker"
    )
    return NotFound("store directory", status.store_root, advice)


def _absent(listed: list[int], first: int, newest: int, step: int) -> list[int]:
    there = set(listed)
    return [begin for begin in range(first, newest + 1, step) if begin not in there]
