"""CometMQ: Apache RocketMQ's messaging system in Python.

Same wire protocol, same store format. This package holds what exists so far; the README's status
table says what that is. Public names are listed in ``__all__`` and imported lazily, so that
``import cometmq`` costs next to nothing.
"""

from cometmq._version import __version__

__all__ = ["__version__"]
