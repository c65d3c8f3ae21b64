from collections.abc import Callable
from typing import Any

from cometmq.codec.headers.base import Header

def bind(
    astuple: Callable[[Any], tuple[Any, ...]],
    plain_encode_head: Callable[..., bytes],
    language: int,
    language_name: str,
    version: int,
) -> None: ...
def encode_head(
    serialization: int,
    code: int,
    opaque: int,
    flag: int,
    remark: str | None,
    header: Header | None,
    body_bytes: int,
) -> bytes: ...
