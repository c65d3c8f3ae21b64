"""Tables that are told in pages, as 5.x asks for them, or as a whole."""

from collections.abc import Iterable
from typing import Final

from cometmq.codec import bodies
from cometmq.errors import RemoteProtocolError
from cometmq.model.topic import DataVersion

PAGE_MAX: Final = 2000
"""Entries of one page, whatever is asked for; Apache's ``splitMetadataSize``."""

_STAMP_CHARACTERS_MAX: Final = 256


def page(
    names: Iterable[str],
    current: DataVersion,
    *,
    begin: int | None,
    stamp: str | None,
    count: int | None,
) -> list[str]:
    """The names of one page in order, all of them when nobody asks for pages.

    Whoever has seen another table before (``stamp``) begins anew.
    """
    if begin is None and stamp is None and count is None:
        return list(names)
    first = max(begin or 0, 0) if _is_same(stamp, current) else 0
    wanted = PAGE_MAX if count is None else min(max(count, 1), PAGE_MAX)
    return sorted(names)[first : first + wanted]


def _is_same(stamp: str | None, current: DataVersion) -> bool:
    if not stamp or len(stamp) > _STAMP_CHARACTERS_MAX:
        return False
    try:
        return bodies.decode(DataVersion, stamp.encode()).matches(current)
    except RemoteProtocolError:
        return False
