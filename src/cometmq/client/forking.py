"""What a forked process does with the sockets of its parent's clients: it lets go of them.

A copy of a socket keeps the connection open when the parent closes it, and two processes that write
to one connection ruin it. So the copies are replaced, number by number, by something harmless:
closing them would free the numbers, and an object that still believes in one would close whatever
has it by then. Nothing is written, and nothing that the parent has changes.
"""

import contextlib
import os
from collections.abc import Iterable


def let_go(numbers: Iterable[int]) -> None:
    """Replace descriptors by one of a device that takes everything and says nothing."""
    with contextlib.suppress(OSError):  # no room for one more: they stay, unused
        harmless = os.open(os.devnull, os.O_RDWR)
        for number in numbers:
            os.dup2(harmless, number, inheritable=False)
        os.close(harmless)
