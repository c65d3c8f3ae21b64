"""Sizes, counts and paths as people read them."""

from contextlib import suppress
from pathlib import Path

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")


def human_bytes(count: float) -> str:
    """``512 B``, ``1.5 KiB``, ``20.0 GiB``."""
    if count < 1024:
        return f"{count:.0f} B"
    for unit in _UNITS:
        count /= 1024
        if count < 1024 or unit == _UNITS[-1]:
            break
    return f"{count:.1f} {unit}"


def human_rate(count: float | None) -> str:
    """A number per second in at most five characters: ``0``, ``3.4``, ``812``, ``12.3k``."""
    if count is None:
        return ""
    if count < 0.05:
        return "0"
    if count < 9.95:
        return f"{count:.1f}"
    if count < 9_999.5:
        return f"{count:.0f}"
    return f"{count / 1000:.1f}k" if count < 999_950 else f"{count / 1_000_000:.1f}M"


def counted_messages(count: int) -> str:
    """``1 message``, ``12 messages``."""
    return f"{count} message{'' if count == 1 else 's'}"


def brief_path(path: Path) -> str:
    """A path below the home directory as shells take it, with a tilde; others as they are."""
    with suppress(ValueError, RuntimeError):  # it is not below it; there is none
        return str("~" / path.relative_to(Path.home()))
    return str(path)
