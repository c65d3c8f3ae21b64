"""An authority and certificates signed by it, made with the ``openssl`` program."""

import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.interop.requirements import need

PASSWORD = "secret"


class KeyPair(NamedTuple):
    certificate: Path
    key: Path


class Certificates(NamedTuple):
    """Who is who: ``stranger`` is signed by nobody that ``authority`` knows."""

    authority: Path
    server: KeyPair
    client: KeyPair
    stranger: KeyPair
    locked_key: Path
    """The server's key, encrypted with ``PASSWORD``."""


def make_certificates(folder: Path) -> Certificates:
    need("openssl")
    authority = _self_signed(folder, "authority")
    server = _signed(folder, "server", authority)
    locked_key = folder / "locked.key"
    command = f"ec -in {server.key} -aes128 -passout pass:{PASSWORD} -out {locked_key}"
    _openssl(folder, *command.split())
    return Certificates(
        authority.certificate,
        server,
        _signed(folder, "client", authority),
        _self_signed(folder, "stranger"),
        locked_key,
    )


_NEW = "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"


def _self_signed(folder: Path, name: str) -> KeyPair:
    pair = KeyPair(folder / f"{name}.pem", folder / f"{name}.key")
    command = f"{_NEW} -x509 -subj /CN={name} -days 2 -keyout {pair.key} -out {pair.certificate}"
    _openssl(folder, *command.split())
    return pair


def _signed(folder: Path, name: str, authority: KeyPair) -> KeyPair:
    pair = KeyPair(folder / f"{name}.pem", folder / f"{name}.key")
    request = folder / f"{name}.csr"
    _openssl(folder, *f"{_NEW} -subj /CN={name} -keyout {pair.key} -out {request}".split())
    signer = f"-CA {authority.certificate} -CAkey {authority.key} -CAcreateserial"
    command = f"x509 -req -in {request} {signer} -days 2 -out {pair.certificate}"
    _openssl(folder, *command.split())
    return pair


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)
