"""Whom the connector talks to, and in whose name: options that source and sink share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cometmq.codec import java_properties
from cometmq.errors import InvalidArgument, SettingsError
from cometmq.remoting.addresses import name_servers_in
from cometmq.remoting.config import TlsClientSettings
from cometmq.remoting.signing import Credentials
from cometmq.spark import option_values

NAME_SERVERS: Final = "rocketmq.namesrv.addr"
TIMEOUT: Final = "rocketmq.timeout"
ACCESS_KEY_VARIABLE: Final = "ROCKETMQ_ACCESS_KEY"
SECRET_KEY_VARIABLE: Final = "ROCKETMQ_SECRET_KEY"  # noqa: S105
TIMEOUT_MS: Final = 10_000
_TLS: Final = {
    "tls": "is_enabled",
    "tls.trustCertPath": "trust_cert_path",
    "tls.certPath": "cert_path",
    "tls.keyPath": "key_path",
    "tls.keyPassword": "key_password",
}

CONNECTION_OPTIONS: Final = {
    NAME_SERVERS: ("", "Name servers, as `host:port;host2:port`."),
    TIMEOUT: ("10s", "How long one request may take."),
    "accessKey": ("", f"Access key; better in the environment (`{ACCESS_KEY_VARIABLE}`)."),
    "secretKey": ("", f"Secret key; better in the environment (`{SECRET_KEY_VARIABLE}`)."),
    "securityToken": ("", "Security token that goes with the keys."),
    "credentialsFile": ("", "File with lines `accessKey=…` and `secretKey=…`, on every machine."),
    "tls": ("false", "Talk TLS to servers."),
    "tls.trustCertPath": ("", "Who may sign servers' certificates (PEM)."),
    "tls.certPath": ("", "Certificate to show to servers that ask (PEM)."),
    "tls.keyPath": ("", "Its private key (PEM)."),
    "tls.keyPassword": ("", "Password of that key."),
}
"""Name: default, and what it means. Names are taken in any case."""


@dataclass(frozen=True, slots=True)
class Connecting:
    """How to reach a cluster; travels to executors, and shows no secret in its text.

    Keys from a file or from the environment are read where they are used, so they do not travel.
    """

    name_servers: tuple[str, ...]
    timeout_ms: int = TIMEOUT_MS
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    credentials_file: str | None = None
    tls: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, options: Mapping[str, str], *, is_needed: bool = True) -> Connecting:
        """What options say, their names in lower case. Raises InvalidArgument."""
        given = {name: options.get(name.lower()) for name in CONNECTION_OPTIONS}
        text = given[NAME_SERVERS] or ""
        if not text and is_needed:
            advice = f"set option '{NAME_SERVERS}' to host:port"
            raise InvalidArgument(NAME_SERVERS, "no name server is given", advice)
        addresses = tuple(name_servers_in(text, "write host:port;host2:port")) if text else ()
        timeout = given[TIMEOUT]
        return cls(
            addresses,
            TIMEOUT_MS if timeout is None else option_values.span_ms(TIMEOUT, timeout),
            given["accessKey"],
            given["secretKey"],
            given["securityToken"],
            given["credentialsFile"],
            tuple((name, value) for name in _TLS if (value := given[name]) is not None),
        )

    def credentials(self) -> Credentials | None:
        """In whose name to ask: what options say, else the file, else the environment."""
        if self.access_key or self.secret_key:
            return Credentials.of(self.access_key, self.secret_key, self.security_token)
        if self.credentials_file:
            found = _read_keys(Path(self.credentials_file))
            token = self.security_token or found.get("securityToken")
            return Credentials.of(found.get("accessKey"), found.get("secretKey"), token)
        access, secret = os.environ.get(ACCESS_KEY_VARIABLE), os.environ.get(SECRET_KEY_VARIABLE)
        return Credentials.of(access or None, secret or None, self.security_token)

    def tls_settings(self) -> TlsClientSettings | None:
        """How to talk TLS, or None."""
        given = dict(self.tls)
        if not option_values.boolean("tls", given.pop("tls", "false")):
            return None
        paths: dict[str, Any] = {
            _TLS[name]: value if name == "tls.keyPassword" else Path(value)
            for name, value in given.items()
        }
        return TlsClientSettings(is_enabled=True, **paths)


def _read_keys(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        reason = f"'{path}' cannot be read: {error.strerror}"
        raise SettingsError("credentialsFile", reason, "it must be on every machine") from error
    return java_properties.loads(text)
