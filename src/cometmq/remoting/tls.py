"""TLS without sockets: ciphertext in, plain text out, and the other way round.

RocketMQ serves TLS and plain clients on one port and tells them apart by the first byte (a TLS
record starts with 0x16, a frame never does), so the decision falls after the connection was made.
Doing TLS on memory buffers makes that a matter of course, on every event loop.
"""

import contextlib
import ssl
from pathlib import Path
from typing import NamedTuple

from cometmq.errors import RemoteProtocolError, SettingsError
from cometmq.remoting.config import ClientAuth, TlsClientSettings, TlsMode, TlsServerSettings

HANDSHAKE_BYTE = 0x16
_RECORD_BYTES_MAX = 16 * 1024  # plain text of one record: no read returns more


class Progress(NamedTuple):
    """What a step produced: plain text for us, ciphertext for the peer, and was it the end?"""

    plain: bytes
    cipher: bytes
    is_over: bool = False


class TlsStream:
    """One end of a TLS connection."""

    __slots__ = ("_incoming", "_is_open", "_outgoing", "_tls")

    def __init__(
        self, context: ssl.SSLContext, *, is_server: bool, host: str | None = None
    ) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=is_server, server_hostname=host
        )
        self._is_open = False

    @property
    def is_open(self) -> bool:
        """True once both sides have agreed on keys."""
        return self._is_open

    def peer_certificate(self) -> dict[str, object] | None:
        """The certificate the peer showed, if it was asked for and verified."""
        return self._tls.getpeercert() or None  # type: ignore[return-value]

    def begin(self) -> bytes:
        """First bytes for the peer; the dialling side has some, the listening side none."""
        return self.receive(b"").cipher

    def receive(self, data: bytes) -> Progress:
        """Take ciphertext. Raises TlsRefused when the peer does not speak TLS with us."""
        self._incoming.write(data)
        plain: list[bytes] = []
        is_over = False
        try:
            if not self._is_open:
                self._tls.do_handshake()
                self._is_open = True
            while chunk := self._tls.read(_RECORD_BYTES_MAX):
                plain.append(chunk)
            is_over = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            is_over = True
        except ssl.SSLError as error:
            reason = error.reason or str(error)
            raise TlsRefused(
                f"TLS with the peer failed: {reason}", self._outgoing.read()
            ) from error
        return Progress(b"".join(plain), self._outgoing.read(), is_over)

    def send(self, plain: bytes) -> bytes:
        """Ciphertext for ``plain``; only once the stream is open."""
        assert self._is_open
        rest = memoryview(plain)
        while rest:
            rest = rest[self._tls.write(rest) :]
        return self._outgoing.read()

    def end(self) -> bytes:
        """The goodbye, as far as the peer's own is not needed for it."""
        # The peer has not answered the goodbye yet, or there never was an agreement.
        with contextlib.suppress(ssl.SSLError, ValueError):
            self._tls.unwrap()
        return self._outgoing.read()


class TlsRefused(RemoteProtocolError):
    """The peer does not speak TLS with us; ``alert`` is what it should still be told."""

    def __init__(self, fact: str, alert: bytes) -> None:
        super().__init__(fact)
        self.alert = alert


class TlsDoor(NamedTuple):
    """How a listening server meets its peers: a context if it can speak TLS, and must they?"""

    context: ssl.SSLContext | None = None
    is_required: bool = False

    def stream_for(self, first: int) -> TlsStream | None:
        """A stream for a peer that starts with that byte, or None if it may speak plainly.

        Raises RemoteProtocolError for a peer that is not to be talked with.
        """
        if first == HANDSHAKE_BYTE:
            if self.context is None:
                raise RemoteProtocolError("the peer speaks TLS and TLS is off here")
            return TlsStream(self.context, is_server=True)
        if self.is_required:
            raise RemoteProtocolError("the peer does not speak TLS and it is required here")
        return None


def server_door(settings: TlsServerSettings) -> TlsDoor:
    """The door of a listening server; without a certificate it cannot speak TLS."""
    is_required = settings.mode == TlsMode.ENFORCING
    if settings.mode == TlsMode.DISABLED or settings.cert_path is None:
        if is_required:
            raise SettingsError(
                "tls.server.mode",
                "enforcing needs a certificate",
                "set tls.server.certPath and tls.server.keyPath",
            )
        return TlsDoor()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Renegotiation lets a client make the server do the expensive part again and again.
    context.options |= ssl.OP_NO_RENEGOTIATION
    _load_chain(context, "tls.server", settings.cert_path, settings.key_path, settings.key_password)
    if settings.need_client_auth != ClientAuth.NONE:
        is_needed = settings.need_client_auth == ClientAuth.REQUIRE
        context.verify_mode = ssl.CERT_REQUIRED if is_needed else ssl.CERT_OPTIONAL
        _load_trust(context, "tls.server", settings.trust_cert_path)
    return TlsDoor(context, is_required)


def client_context(settings: TlsClientSettings) -> ssl.SSLContext:
    """The context of a dialling client; without a trust file it trusts anyone, as Java does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if settings.trust_cert_path is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        _load_trust(context, "tls.client", settings.trust_cert_path)
    if settings.cert_path is not None:
        _load_chain(
            context, "tls.client", settings.cert_path, settings.key_path, settings.key_password
        )
    return context


def _load_chain(
    context: ssl.SSLContext, side: str, cert: Path, key: Path | None, password: str | None
) -> None:
    try:
        # Never None: OpenSSL would ask for it on the terminal.
        context.load_cert_chain(cert, key, password or "")
    except (OSError, ssl.SSLError) as error:
        files = f"'{cert}'" if key is None else f"'{cert}' with key '{key}'"
        raise SettingsError(f"{side}.certPath", f"{files} cannot be used: {error}") from error


def _load_trust(context: ssl.SSLContext, side: str, path: Path | None) -> None:
    key = f"{side}.trustCertPath"
    if path is None:
        raise SettingsError(
            key, "client certificates are asked for, but nobody is trusted to sign them"
        )
    try:
        context.load_verify_locations(path)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(key, f"'{path}' cannot be used: {error}") from error
