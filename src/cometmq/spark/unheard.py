"""What the connector says where nobody listens: in the Python processes that Spark starts.

No program of the user runs there that could set up logging, and a library is silent otherwise. A
warning about messages that are gone must not be: Spark keeps the standard error of its processes.
"""

import logging
import sys

from cometmq import logs


class Unheard(logging.Handler):
    """Writes warnings to standard error, unless another handler gets them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logs.TextFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        if not _is_heard():
            print(self.format(record), file=sys.stderr, flush=True)


def listen() -> None:
    """Have the connector's warnings heard in any case."""
    logger = logs.get_logger("cometmq.spark")
    if not any(isinstance(handler, Unheard) for handler in logger.handlers):
        logger.addHandler(Unheard())


def _is_heard() -> bool:
    """Whether somebody has set up logging, for us or for everything."""
    logger: logging.Logger | None = logs.get_logger(logs.ROOT)
    while logger is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            return True
        logger = logger.parent
    return False
