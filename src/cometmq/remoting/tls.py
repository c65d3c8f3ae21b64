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
_READ_BYTES = 256 * 1024


class Progress(NamedTuple):
    """What a step produced: plain text for us, ciphertext for the peer, and was it the end?"""

    plain: bytes
    cipher: bytes
    is_over: bool = False


class TlsStream:
    """One end of a TLS connection."""

    def __init__(
        self, context: ssl.SSLContext, *, is_server: bool, host: str | None = None
    ) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=is_server, server_hostname=host
        )
        self._is_open = False
        self._waiting: list[bytes] = []  # plain text given before the handshake was done

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
        """Take ciphertext. Raises RemoteProtocolError when the peer does not speak TLS with us."""
        self._incoming.write(data)
        plain: list[bytes] = []
        is_over = False
        try:
            if not self._is_open:
                self._tls.do_handshake()
                self._is_open = True
                for text in self._waiting:
                    self._tls.write(text)
                self._waiting.clear()
            while chunk := self._tls.read(_READ_BYTES):
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
        """Ciphertext for ``plain``; kept back while the handshake is not done."""
        if self._is_open:
            self._tls.write(plain)
        else:
            self._waiting.append(plain)
        return self._outgoing.read()

    def end(self) -> bytes:
        """The goodbye, as far as the peer's own is not needed for it."""
        # The peer has not answered the goodbye yet, or there never was an agreement.
        with contextlib.suppress(ssl.SSLError, ValueError):
            self._tls.unwrap()
        return self._outgoing.read()


class TlsRefused(RemoteProtocolError):
    """The handshake failed; ``alert`` is what the peer should still be told."""

    def __init__(self, fact: str, alert: bytes) -> None:
        super().__init__(fact)
        self.alert = alert


def server_context(settings: TlsServerSettings) -> ssl.SSLContext | None:
    """The context of a listening server, or None when TLS is off or no certificate was given."""
    if settings.mode == TlsMode.DISABLED or settings.cert_path is None:
        if settings.mode == TlsMode.ENFORCING:
            raise SettingsError(
                "tls.server.mode",
                "enforcing needs a certificate",
                "set tls.server.certPath and tls.server.keyPath",
            )
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_chain(context, settings.cert_path, settings.key_path, settings.key_password)
    if settings.need_client_auth != ClientAuth.NONE:
        context.verify_mode = (
            ssl.CERT_REQUIRED
            if settings.need_client_auth == ClientAuth.REQUIRE
            else ssl.CERT_OPTIONAL
        )
        _load_trust(context, "tls.server.trustCertPath", settings.trust_cert_path)
    return context


def client_context(settings: TlsClientSettings) -> ssl.SSLContext:
    """The context of a dialling client; without a trust file it trusts anyone, as Java does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if settings.trust_cert_path is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        _load_trust(context, "tls.client.trustCertPath", settings.trust_cert_path)
    if settings.cert_path is not None:
        _load_chain(context, settings.cert_path, settings.key_path, settings.key_password)
    return context


def _load_chain(
    context: ssl.SSLContext, cert: Path, key: Path | None, password: str | None
) -> None:
    try:
        context.load_cert_chain(cert, key, password)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError("tls.certPath", f"'{cert}' cannot be used: {error}") from error


def _load_trust(context: ssl.SSLContext, key: str, path: Path | None) -> None:
    if path is None:
        raise SettingsError(
            key, "client certificates are asked for, but nobody is trusted to sign them"
        )
    try:
        context.load_verify_locations(path)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(key, f"'{path}' cannot be used: {error}") from error
