"""The signature of a request: who sent it, and that nobody changed it on the way.

What is signed is the text of all ext field values in ascending order of their names, without
separators and without the signature itself, followed by the body. So a receiver must keep every
ext field as it came, known or not.
"""

import base64
import hashlib
import hmac
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

from cometmq.codec.codes import V4_9_3

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105 - a field name
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"

_NOT_SIGNED = frozenset({SIGNATURE})


def content(
    ext: Mapping[str, str],
    body: bytes | bytearray | memoryview = b"",
    *,
    exclude: AbstractSet[str] = _NOT_SIGNED,
) -> bytes:
    """The bytes that a signature covers; ``exclude`` names the fields that are left out."""
    # "replace" because that is what Java's encoder does to half a surrogate pair.
    values = (ext[name].encode("utf-8", "replace") for name in sorted(ext) if name not in exclude)
    return b"".join((*values, body))


def sign(secret_key: str, content: bytes) -> str:
    """The value of the ``Signature`` field: HMAC-SHA1 of ``content`` in base64."""
    key = secret_key.encode("utf-8", "replace")
    return base64.b64encode(hmac.digest(key, content, hashlib.sha1)).decode("ascii")


def verify(
    ext: Mapping[str, str],
    body: bytes | bytearray | memoryview,
    secret_key: str,
    version: int,
) -> bool:
    """Whether the ``Signature`` in ``ext`` was made with ``secret_key``; false without one.

    Clients disagree on two fields, and a signature that fits any of their ways is accepted:
    ``_UNIQUE_KEY_QUERY``, which releases up to 4.9.3 leave out, and ``SecurityToken``, which Go
    adds after signing. ``version`` is the sender's and decides only what is tried first.
    """
    claimed = ext.get(SIGNATURE, "").encode("utf-8", "replace")
    for left_out in _ways_to_sign(ext, version):
        expected = sign(secret_key, content(ext, body, exclude=left_out))
        if hmac.compare_digest(expected.encode("ascii"), claimed):
            return True
    return False


def _ways_to_sign(ext: Mapping[str, str], version: int) -> Iterator[AbstractSet[str]]:
    with_query, without_query = _NOT_SIGNED, _NOT_SIGNED | {UNIQUE_KEY_QUERY}
    ways = [with_query]
    if UNIQUE_KEY_QUERY in ext:
        ways = [without_query, with_query] if version <= V4_9_3 else [with_query, without_query]
    yield from ways
    if SECURITY_TOKEN in ext:
        yield from (way | {SECURITY_TOKEN} for way in ways)
