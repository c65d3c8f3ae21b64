r"""Property strings as columns: all of them at once, without a loop over messages.

A string is ``name \x01 value \x02 name \x01 value …``, the last separator may be missing. The
strings of a batch lie one after the other in one buffer, so every place of a separator is found
with one comparison; names and values are what lies between. What is out of the ordinary (text that
is not UTF-8, separators out of turn, a name twice in one string) is left to ``codec.properties``,
which decides what it means.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cometmq.codec import properties
from cometmq.spark.gathering import bounds_of, bytes_of, gather

MAP: Final = pa.map_(pa.string(), pa.string())

_NAME_END: Final = 1
_VALUE_END: Final = 2


class PropertyColumns:
    """The properties of a batch of messages; ``strings`` is a gathered array of bytes."""

    def __init__(self, strings: Any) -> None:
        self._strings = strings
        self._items: _Items | None = None
        if len(strings):
            items = _Items.of(strings)
            if items is not None and not items.has_repeats():
                self._items = items
        self._decoded: list[dict[str, str]] | None = None

    def maps(self) -> Any:
        """All properties of each message, as an array of maps."""
        if self._items is not None:
            return self._items.maps()
        rows = [list(one.items()) for one in self._dicts()]
        return pa.array(rows, MAP)

    def values(self, name: str) -> Any:
        """One property of each message, null where there is none."""
        if self._items is not None:
            return self._items.values(name)
        return pa.array([one.get(name) for one in self._dicts()], pa.string())

    def _dicts(self) -> list[dict[str, str]]:
        if self._decoded is None:
            self._decoded = [properties.decode(text) for text in self._strings.to_pylist()]
        return self._decoded


class _Items:
    """Names and values of ordinary property strings, as places in one buffer."""

    def __init__(self, buffer: Any, begins: Any, middles: Any, ends: Any) -> None:
        self._buffer = buffer
        self._begins = begins
        self._middles = middles
        self._ends = ends
        self._bounds: Any = None  # of messages, in items
        self._names: Any = None
        self._pattern: list[str] | None = None  # the names of each message, where all are alike

    @classmethod
    def of(cls, strings: Any) -> _Items | None:
        """The items of these strings; None when they are not ordinary."""
        text = bytes_of(strings)
        rows = bounds_of(strings)
        ends, is_open = _item_ends(text, rows)
        middles = np.flatnonzero(text == _NAME_END)
        if len(middles) != len(ends):
            return None
        begins = np.empty_like(ends)
        if len(ends):
            begins[0] = 0
            begins[1:] = ends[:-1] + 1
            if is_open is not None:
                begins[1:] -= is_open[:-1]
            if (middles < begins).any() or (middles >= ends).any():
                return None
        items = cls(strings.buffers()[2], begins, middles, ends)
        items._drop_empty(rows, ends + 1 if is_open is None else ends + 1 - is_open)
        if items._is_not_text(text):
            return None
        items._names = gather(items._buffer, items._begins, items._middles, pa.string())
        items._pattern = items._common_names()
        return items

    def maps(self) -> Any:
        values = gather(self._buffer, self._middles + 1, self._ends, pa.string())
        return pa.MapArray.from_arrays(pa.array(self._bounds), self._names, values)

    def values(self, name: str) -> Any:
        count = len(self._bounds) - 1
        if self._pattern is not None:
            if name not in self._pattern:
                return pa.nulls(count, pa.string())
            chosen = slice(self._pattern.index(name), None, len(self._pattern))
            return self._values(chosen)
        found = np.flatnonzero(pc.equal(self._names, name).to_numpy(zero_copy_only=False))
        places: Any = np.full(count, -1, np.int64)
        messages = np.searchsorted(self._bounds, found, side="right") - 1
        places[messages] = np.arange(len(found))
        return self._values(found).take(pa.array(places, mask=places < 0))

    def has_repeats(self) -> bool:
        """Whether a name is twice in one string."""
        if self._pattern is not None:
            return len(set(self._pattern)) < len(self._pattern)
        names = self._names.dictionary_encode()
        messages: Any = np.repeat(np.arange(len(self._bounds) - 1), np.diff(self._bounds))
        codes = messages * max(len(names.dictionary), 1) + names.indices.to_numpy()
        codes.sort()
        return bool((codes[1:] == codes[:-1]).any())

    def _values(self, chosen: Any) -> Any:
        begins, ends = self._middles[chosen] + 1, self._ends[chosen]
        return gather(self._buffer, begins, ends, pa.string())

    def _common_names(self) -> list[str] | None:
        """The names of the first message if all others have the same ones in the same order."""
        counts = np.diff(self._bounds)
        width = int(counts[0])
        if not width or not (counts == width).all():
            return None
        lengths = (self._middles - self._begins).reshape(-1, width)
        if not (lengths == lengths[0]).all():
            return None
        texts = bytes_of(self._names).reshape(-1, int(lengths[0].sum()))
        if not (texts == texts[0]).all():
            return None
        pattern: list[str] = self._names[:width].to_pylist()
        return pattern

    def _drop_empty(self, rows: Any, stops: Any) -> None:
        """Leave out items without name or value, and find where each message's items begin."""
        is_whole = (self._middles > self._begins) & (self._ends > self._middles + 1)
        if not is_whole.all():
            self._begins = self._begins[is_whole]
            self._middles = self._middles[is_whole]
            self._ends = self._ends[is_whole]
            stops = stops[is_whole]
        self._bounds = np.searchsorted(stops, rows, side="right").astype(np.int32)
        self._bounds[0] = 0

    def _is_not_text(self, text: Any) -> bool:
        if len(text) == 0 or int(text.max()) < 128:
            return False
        try:
            for begins, ends in ((self._begins, self._middles), (self._middles + 1, self._ends)):
                gather(self._buffer, begins, ends, pa.string()).validate(full=True)
        except pa.ArrowInvalid:
            return True
        return False


def _item_ends(text: Any, rows: Any) -> tuple[Any, Any]:
    """Where items end, and (None: nowhere) which of them end with their string instead."""
    ends = np.flatnonzero(text == _VALUE_END)
    stops = rows[1:][rows[1:] > rows[:-1]].astype(np.int64)
    lasts = stops[text[stops - 1] != _VALUE_END]
    if not len(lasts):
        return ends, None
    places = np.searchsorted(ends, lasts)
    is_open: Any = np.insert(np.zeros(len(ends), np.int64), places, 1)
    return np.insert(ends, places, lasts), is_open
