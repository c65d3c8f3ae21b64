"""Requests in somebody's name: the access key and the signature that go with every one of them."""

import functools

import msgspec

from cometmq.codec import signature
from cometmq.codec.headers.base import Header
from cometmq.errors import SettingsError


class Credentials(msgspec.Struct, frozen=True):
    """Who asks. The secret signs requests and is never sent."""

    access_key: str
    secret_key: str
    security_token: str | None = None

    @classmethod
    def of(cls, access: str | None, secret: str | None, token: str | None) -> "Credentials | None":
        """The credentials that were given, if any. Raises SettingsError for half of them."""
        if access is None and secret is None:
            return None
        if access is None or secret is None:
            missing = "access_key" if access is None else "secret_key"
            raise SettingsError(missing, "it is missing", "give both keys or none")
        return cls(access, secret, token)

    def __repr__(self) -> str:
        return f"Credentials(access_key={self.access_key!r})"

    def signed(self, header: Header | None, body: bytes) -> Header:
        """``header`` with the fields by which a server knows who asks."""
        given = () if header is None else msgspec.structs.astuple(header)
        kind = _signed(Header if header is None else type(header))
        ext = kind(*given, self.access_key, self.security_token, None).to_ext()
        signed = signature.sign(self.secret_key, signature.content(ext, body))
        return kind(*given, self.access_key, self.security_token, signed)


@functools.cache
def _signed(kind: type[Header]) -> type[Header]:
    """``kind`` with three more fields at its end."""
    names = {
        "access_key": signature.ACCESS_KEY,
        "security_token": signature.SECURITY_TOKEN,
        "signature": signature.SIGNATURE,
    }
    fields = [
        (attribute, str | None, msgspec.field(name=wire_name, default=None))
        for attribute, wire_name in names.items()
    ]
    signed = msgspec.defstruct(f"Signed{kind.__name__}", fields, bases=(kind,), gc=False)
    assert issubclass(signed, Header)
    return signed
