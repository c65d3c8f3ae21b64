"""The typed headers of requests and answers, by family, and which code has which.

A header knows its fields and nothing else: no body, no command, no meaning. Requests and answers
without ext fields have no header and are not listed here.
"""

from typing import TYPE_CHECKING

from cometmq.codec.headers.base import BASE_FIELDS, I32, I64, Header, LooseBool

if TYPE_CHECKING:
    from cometmq.codec.headers.registry import REQUEST_HEADERS, RESPONSE_HEADERS

__all__ = [
    "BASE_FIELDS",
    "I32",
    "I64",
    "REQUEST_HEADERS",
    "RESPONSE_HEADERS",
    "Header",
    "LooseBool",
]

if not TYPE_CHECKING:  # checkers would believe in any name

    def __getattr__(name):
        # The tables need every family, and clients need few of them.
        if name not in ("REQUEST_HEADERS", "RESPONSE_HEADERS"):
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        from cometmq.codec.headers import registry

        return getattr(registry, name)
