"""TLS without sockets, and the settings that make it."""

import ssl
from pathlib import Path

import pytest

from cometmq.errors import RemoteProtocolError, SettingsError
from cometmq.remoting.config import ClientAuth, TlsMode, TlsServerSettings
from cometmq.remoting.routes import Routes
from cometmq.remoting.server import Server
from cometmq.remoting.tls import TlsDoor, TlsRefused, TlsStream, server_door
from tests.unit.remoting.certificates import PASSWORD, Certificates
from tests.unit.remoting.secure import client_stream, door_of, server_settings, server_stream


def agree(client: TlsStream, server: TlsStream, to_server: bytes) -> bytes:
    """Move bytes between both until neither has any; the plain text the server got."""
    plain = b""
    while to_server:
        heard = server.receive(to_server)
        plain += heard.plain
        to_server = client.receive(heard.cipher).cipher if heard.cipher else b""
    return plain


def test_two_ends_agree_and_understand_each_other(certificates: Certificates) -> None:
    client, server = client_stream(), server_stream(certificates)

    agree(client, server, client.begin())
    assert client.is_open
    assert server.is_open

    assert server.receive(client.send(b"question")).plain == b"question"
    assert client.receive(server.send(b"answer" * 10_000)).plain == b"answer" * 10_000


def test_a_handshake_may_come_byte_by_byte(certificates: Certificates) -> None:
    client, server = client_stream(), server_stream(certificates)
    to_server, to_client = client.begin(), b""

    for _ in range(3):
        to_client = b"".join(server.receive(bytes([byte])).cipher for byte in to_server)
        to_server = b"".join(client.receive(bytes([byte])).cipher for byte in to_client)

    assert server.is_open
    sent = client.send(b"slow but sure")
    assert b"".join(server.receive(bytes([byte])).plain for byte in sent) == b"slow but sure"


def test_a_goodbye_is_the_end(certificates: Certificates) -> None:
    client, server = client_stream(), server_stream(certificates)
    agree(client, server, client.begin())

    step = server.receive(client.send(b"last words") + client.end())

    assert (step.plain, step.is_over) == (b"last words", True)


def test_a_goodbye_before_any_agreement_is_nothing(certificates: Certificates) -> None:
    assert server_stream(certificates).end() == b""


def test_garbage_is_refused_with_what_the_peer_should_be_told(certificates: Certificates) -> None:
    with pytest.raises(TlsRefused) as caught:
        server_stream(certificates).receive(b"\x16\x03\x01\x00\x05hello")

    assert caught.value.fact.startswith("TLS with the peer failed: ")


def test_what_was_tampered_with_is_refused(certificates: Certificates) -> None:
    client, server = client_stream(), server_stream(certificates)
    agree(client, server, client.begin())
    sent = bytearray(client.send(b"transfer 1 to me"))
    sent[-1] ^= 1

    with pytest.raises(TlsRefused):
        server.receive(bytes(sent))


def test_renegotiation_is_not_offered(certificates: Certificates) -> None:
    context = door_of(certificates).context

    assert context is not None
    assert ssl.OP_NO_RENEGOTIATION in context.options


def test_a_door_tells_by_the_first_byte(certificates: Certificates) -> None:
    open_door = door_of(certificates)
    strict = server_door(server_settings(certificates, TlsMode.ENFORCING))
    closed = server_door(server_settings(certificates, TlsMode.DISABLED))

    assert open_door.stream_for(0x00) is None
    assert open_door.stream_for(0x16) is not None
    assert strict.stream_for(0x16) is not None
    with pytest.raises(RemoteProtocolError, match="required"):
        strict.stream_for(0x00)
    assert closed.stream_for(0x00) is None
    with pytest.raises(RemoteProtocolError, match="off here"):
        closed.stream_for(0x16)


# Settings


def test_without_a_certificate_there_is_no_tls() -> None:
    assert server_door(TlsServerSettings()) == TlsDoor(None, is_required=False)


def test_tls_cannot_be_required_without_a_certificate() -> None:
    with pytest.raises(SettingsError, match=r"set tls\.server\.certPath"):
        Server(Routes(), tls=TlsServerSettings(mode=TlsMode.ENFORCING))


def test_a_certificate_that_is_none_is_named(certificates: Certificates, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_text("no certificate")

    for path in (other, tmp_path / "missing.pem"):
        with pytest.raises(SettingsError, match=r"tls\.server\.certPath.*cannot be used"):
            server_door(TlsServerSettings(cert_path=path))
    settings = TlsServerSettings(
        cert_path=certificates.server.certificate, key_path=certificates.stranger.key
    )
    with pytest.raises(SettingsError, match=r"tls\.server\.certPath.*with key"):
        server_door(settings)


def test_client_certificates_need_someone_to_vouch_for_them(certificates: Certificates) -> None:
    with pytest.raises(SettingsError, match=r"tls\.server\.trustCertPath"):
        server_door(
            TlsServerSettings(
                cert_path=certificates.server.certificate,
                key_path=certificates.server.key,
                need_client_auth=ClientAuth.REQUIRE,
            )
        )


@pytest.mark.parametrize("password", [None, "wrong"])
def test_a_locked_key_without_its_password_is_an_error_and_nobody_is_asked(
    certificates: Certificates, password: str | None
) -> None:
    settings = TlsServerSettings(
        cert_path=certificates.server.certificate,
        key_path=certificates.locked_key,
        key_password=password,
    )

    with pytest.raises(SettingsError, match="cannot be used"):
        server_door(settings)


def test_a_locked_key_opens_with_its_password(certificates: Certificates) -> None:
    settings = TlsServerSettings(
        cert_path=certificates.server.certificate,
        key_path=certificates.locked_key,
        key_password=PASSWORD,
    )

    assert server_door(settings).context is not None
