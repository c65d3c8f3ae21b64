"""A digest by which whoever sees files of a log knows that they are a broker's, and not others.

Name and inode of a file may agree by chance: two machines with disks formatted alike and the same
paths give the first file of their logs the same number. What is in it does not::

    |<- 128 ->|                               |<- 4096 ->|
    |  head   |             ...               |   tail   |
    file begins                          confirmed so far

The head is that of the file's first record, with address and time of the store and of the sender.
The tail tells a copy of a whole disk from the one that it was copied from.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

HEAD_BYTES: Final = 128
TAIL_BYTES: Final = 4096


def sample_digest(path: Path, confirmed_bytes: int) -> str:
    """SHA-256, in hex, of head and tail of the first ``confirmed_bytes`` of a log file.

    In a file that has less than both they overlap. Raises OSError.
    """
    assert confirmed_bytes > 0, confirmed_bytes
    tail_begin = max(confirmed_bytes - TAIL_BYTES, 0)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        head = os.pread(fd, min(HEAD_BYTES, confirmed_bytes), 0)
        tail = os.pread(fd, confirmed_bytes - tail_begin, tail_begin)
    finally:
        os.close(fd)
    return hashlib.sha256(head + tail).hexdigest()
