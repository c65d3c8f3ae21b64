"""Store directories that this machine sees, and whether all of a broker's log is in them.

Paths are alike on many machines, and so may inodes be, so that what is in a file counts as well.

A log may lie in several folders (``storePathCommitLog`` with commas), and of these perhaps one is
seen here. Who read that one alone would take the messages of the others for gone.
"""

from __future__ import annotations

from pathlib import Path

from cometmq.codec.headers.extensions import LogStatusResponse
from cometmq.errors import DamagedStore, NotFound
from cometmq.spark.store_files import StoreFiles
from cometmq.store.directory import LOG_FOLDER, QUEUE_FOLDER, offset_name
from cometmq.store.log_sample import sample_digest


def store_of_broker(status: LogStatusResponse, roots: tuple[str, ...]) -> StoreFiles | None:
    """The directory with a file that can be the one which a broker writes to, by name and inode.

    Whether it is the broker's log tells ``unseen_file``.
    """
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
    """A file of a broker's log that is not in the folders of ``store``; None if all of it is.

    One of the same name may be there, of another store.
    """
    newest = Path(status.newest_file)
    step = store.log.file_bytes
    if newest.name and step:
        first = status.begin_offset // step * step
        unseen = _absent(store.log.listed(), first, int(newest.name), step)
        if unseen:
            return offset_name(unseen[0])
    return None if _has_sample(store, status) else offset_name(status.sample_begin or 0)


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
        f"the log of broker {broker_name} has {file}, which this machine does not see in {looked}"
        " (another store's of that name, or a copy, will not do):"
        " set 'storePath' to where it is here, or read with source=broker"
    )
    return NotFound("store directory", status.store_root, advice)


def _has_sample(store: StoreFiles, status: LogStatusResponse) -> bool:
    """Whether the last bytes that are confirmed are in ``store``, too."""
    if not status.sample_digest:
        return status.sample_digest == ""  # nothing is confirmed, so nothing will be read
    begin = status.sample_begin or 0
    confirmed_bytes = status.confirmed_offset - begin
    if not 0 < confirmed_bytes <= store.log.file_bytes:
        return False
    store.log.look()  # the log may have gone on in another of its folders since
    try:
        return sample_digest(store.log.path_at(begin), confirmed_bytes) == status.sample_digest
    except OSError:
        return False


def _absent(listed: list[int], first: int, newest: int, step: int) -> list[int]:
    there = set(listed)
    return [begin for begin in range(first, newest + 1, step) if begin not in there]
