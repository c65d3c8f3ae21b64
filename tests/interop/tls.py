"""Throw-away certificates for tests, made with the openssl command."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.interop import requirements
from tests.interop.commands import run
from tests.interop.ports import LOOPBACK

OPENSSL_TIMEOUT_S = 60
DAYS = "2"
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True, slots=True)
class Certificates:
    """One authority in ``folder`` and what it signed: a server on loopback, and a client.

    Keys are PEM in PKCS #8 without password, the one form that Java's Netty reads.
    """

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "authority.pem"

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def server_settings(self, mode: str) -> Mapping[str, str]:
        """What a listening server is told, ours in its file and Apache's as JVM properties."""
        return {
            "tls.server.mode": mode,
            "tls.server.certPath": str(self.certificate("server")),
            "tls.server.keyPath": str(self.key("server")),
        }

    def java_client_properties(self, *, has_certificate: bool = False) -> Mapping[str, str]:
        """What the JVM of a dialling client is told, so that it checks who it talks to."""
        own = {
            "tls.client.certPath": str(self.certificate("client")),
            "tls.client.keyPath": str(self.key("client")),
        }
        return {
            "tls.enable": "true",
            # In test mode, the default, Java makes its own certificates and trusts everybody.
            "tls.test.mode.enable": "false",
            "tls.client.authServer": "true",
            "tls.client.trustCertPath": str(self.authority),
            **(own if has_certificate else {}),
        }

    def client_context(self) -> ssl.SSLContext:
        """For a connection of Python's that checks who it talks to."""
        return ssl.create_default_context(cafile=self.authority)


def make(folder: Path) -> Certificates:
    """Make an authority and the certificates it signs."""
    requirements.need("openssl")
    folder.mkdir(parents=True, exist_ok=True)
    made = Certificates(folder)
    _request("authority", made, ["-x509", "-addext", "keyUsage=critical,keyCertSign"])
    signed = ["-x509", "-CA", str(made.authority), "-CAkey", str(made.key("authority"))]
    plain = ["-addext", "basicConstraints=critical,CA:FALSE"]
    names = f"subjectAltName=DNS:localhost,IP:{LOOPBACK}"
    _request("server", made, [*signed, *plain, "-addext", names])
    _request("client", made, [*signed, *plain])
    return made


def anyone_is_trusted() -> ssl.SSLContext:
    """For a connection that does not care who it talks to."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _request(name: str, made: Certificates, options: list[str]) -> None:
    files = ["-keyout", str(made.key(name)), "-out", str(made.certificate(name))]
    subject = ["-subj", f"/O=CometMQ tests/CN={name}", "-days", DAYS]
    run(["openssl", "req", *NEW_KEY, *files, *subject, *options], timeout_s=OPENSSL_TIMEOUT_S)
