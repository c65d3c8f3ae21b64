from collections.abc import Callable
from typing import Any, TypeVar

from cometmq.codec.command import Command
from cometmq.codec.headers.base import Header

_H = TypeVar("_H", bound=Header)

def bind(
    describe: Callable[[Any], tuple[list[bytes], list[int], list[bool]]],
    plain_sent_properties: Callable[[str, bytes], tuple[int, str | None, bytes]],
) -> None: ...
def read(command: Command, header_type: type[_H]) -> _H: ...
def read_sent_properties(text: str, addition: bytes) -> tuple[int, str | None, bytes]: ...
