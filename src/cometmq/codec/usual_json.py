"""JSON headers of the requests that come by the thousand, read in one step by the plain core.

A send or a pull whose header has the usual fields and no others is read straight into its texts:
there is no map in between, and nothing is read twice. Every other header is ``json_header``'s.
"""

from collections.abc import Callable
from typing import Final, Protocol, cast

import msgspec

from cometmq.codec.headers.base import I32, Header, Texts, exact_texts
from cometmq.codec.headers.pull import PullMessage
from cometmq.codec.headers.send import SendMessage, SendMessageV2

START_BYTES: Final = 12
"""So many bytes of a header say which of ``DECODERS`` reads it."""


class Usual(Protocol):
    """A header as the decoders return it."""

    code: int
    language: str
    version: int
    opaque: int
    flag: int
    remark: str | None
    ext: Texts


def _decoder(header_type: type[Header]) -> Callable[[bytes], Usual]:
    texts = exact_texts(header_type)
    envelope = msgspec.defstruct(
        f"{header_type.__name__}Envelope",
        [
            ("code", I32),
            ("language", str),
            ("version", I32),
            ("opaque", I32),
            ("flag", I32),
            ("ext", texts, msgspec.field(name="extFields")),
            ("remark", str | None, None),
            ("form", str, msgspec.field(name="serializeTypeCurrentRPC", default="")),
        ],
        forbid_unknown_fields=True,
        gc=False,
    )
    return cast("Callable[[bytes], Usual]", msgspec.json.Decoder(envelope).decode)


DECODERS: Final[dict[bytes, Callable[[bytes], Usual]]] = {
    (b'{"code":%d,"' % code)[:START_BYTES]: _decoder(header_type)
    for header_type in (SendMessage, SendMessageV2, PullMessage)
    for code in header_type.requests
}
"""By how a header begins that has its code first, as Apache's do."""
