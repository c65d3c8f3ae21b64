"""Ends of TLS connections for tests."""

from cometmq.remoting.config import ClientAuth, TlsClientSettings, TlsMode, TlsServerSettings
from cometmq.remoting.tls import TlsDoor, TlsStream, client_context, server_door
from tests.unit.remoting.certificates import Certificates

TRUSTING = TlsClientSettings(is_enabled=True)
"""A client that talks TLS with anyone."""


def server_settings(
    certificates: Certificates,
    mode: TlsMode = TlsMode.PERMISSIVE,
    auth: ClientAuth = ClientAuth.NONE,
) -> TlsServerSettings:
    return TlsServerSettings(
        mode=mode,
        cert_path=certificates.server.certificate,
        key_path=certificates.server.key,
        need_client_auth=auth,
        trust_cert_path=certificates.authority,
    )


def client_stream() -> TlsStream:
    return TlsStream(client_context(TRUSTING), is_server=False)


def door_of(certificates: Certificates) -> TlsDoor:
    return server_door(server_settings(certificates))


def server_stream(certificates: Certificates) -> TlsStream:
    stream = door_of(certificates).stream_for(0x16)
    assert stream is not None
    return stream
