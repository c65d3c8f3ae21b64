"""Small Arrow batches joined to larger ones: each costs a message to the JVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa


def joined(batches: Iterable[Any], rows: int, bytes_max: int) -> Iterator[Any]:
    """The same rows in the same order, in batches of at least half of ``rows`` or ``bytes_max``.

    A batch that is large enough is handed on as it is; only small ones are copied.
    """
    waiting: list[Any] = []
    count = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if waiting and (count + batch.num_rows > rows or size + batch.nbytes > bytes_max):
            yield _one(waiting)
            waiting, count, size = [], 0, 0
        waiting.append(batch)
        count += batch.num_rows
        size += batch.nbytes
        if 2 * count >= rows or 2 * size >= bytes_max:
            yield _one(waiting)
            waiting, count, size = [], 0, 0
    if waiting:
        yield _one(waiting)


def _one(batches: list[Any]) -> Any:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
