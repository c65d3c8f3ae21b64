"""Settings of connections, as servers and clients take them."""

import enum
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from cometmq.model.limits import FRAME_BYTES_MAX, PARTIAL_FRAMES_BYTES_MAX
from cometmq.settings import InertKey, Settings, setting, settings_class

NO_POOLS = "one event loop answers all requests, without thread pools and their queues"
NO_NETTY = "there is no Netty here"
NO_SEMAPHORE = "a connection that sends too much is held back by itself, not by a shared count"
SYSTEM_BUFFERS = "the system sizes its buffers better than a fixed number"

_INERT_SERVER_KEYS: Mapping[str, InertKey] = MappingProxyType(
    {
        "enableShutdownGracefully": InertKey("false", "stopping always drains requests in flight"),
        "serverAsyncSemaphoreValue": InertKey("64", NO_SEMAPHORE),
        "serverCallbackExecutorThreads": InertKey("0", NO_POOLS),
        "serverNettyWorkerGroupEnable": InertKey("true", NO_NETTY),
        "serverOnewaySemaphoreValue": InertKey("256", NO_SEMAPHORE),
        "serverPooledByteBufAllocatorEnable": InertKey("true", NO_NETTY),
        "serverSelectorThreads": InertKey("3", NO_POOLS),
        "serverSocketRcvBufSize": InertKey("0", SYSTEM_BUFFERS),
        "serverSocketSndBufSize": InertKey("0", SYSTEM_BUFFERS),
        "serverWorkerThreads": InertKey("8", NO_POOLS),
        "useEpollNativeSelector": InertKey("false", NO_NETTY),
        "writeBufferLowWaterMark": InertKey("0", "it follows from writeBufferHighWaterMark"),
    }
)


class TlsMode(enum.StrEnum):
    """Whom a server talks to."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(enum.StrEnum):
    """Whether a server asks its clients for a certificate."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


@settings_class
class ChannelSettings(Settings):
    """Limits of one connection, whichever side it was made from."""

    frame_bytes_max: int = setting(
        FRAME_BYTES_MAX,
        key="com.rocketmq.remoting.frameMaxLength",
        doc="Largest frame in bytes, its length prefix included.",
        minimum=1024,
    )
    idle_seconds_max: int = setting(
        120,
        key="serverChannelMaxIdleTimeSeconds",
        doc="Seconds without a byte in either direction after which a connection is closed.",
        minimum=1,
    )
    frame_seconds_max: int = setting(
        60, doc="Seconds a peer may take from the first byte of a frame to its last.", minimum=1
    )
    write_buffer_bytes_high: int = setting(
        1024 * 1024,
        key="writeBufferHighWaterMark",
        doc="Unsent bytes above which no more is read from a peer; 0 chooses the default.",
        minimum=0,
    )
    write_buffer_bytes_max: int = setting(
        64 * 1024 * 1024, doc="Unsent bytes above which a peer is dropped.", minimum=1024
    )
    stalled_seconds_max: int = setting(
        30, doc="Seconds a peer may leave answers unread before it is dropped.", minimum=1
    )


@settings_class
class ServerSettings(Settings):
    """Where a server listens and how much it bears."""

    accepted_without_effect: ClassVar[Mapping[str, InertKey]] = _INERT_SERVER_KEYS

    partial_frames_bytes_max: int = setting(
        PARTIAL_FRAMES_BYTES_MAX,
        doc="Bytes that all connections together may hold of frames that are not complete.",
        minimum=1024 * 1024,
    )
    backlog: int = setting(
        1024, key="serverSocketBacklog", doc="Connections that may wait to be accepted.", minimum=1
    )
    drain_seconds_max: int = setting(
        5,
        key="shutdownWaitTimeSeconds",
        doc="Seconds that requests in flight get to finish when the server stops.",
        minimum=0,
    )
    is_vip_enabled: bool = setting(
        False,
        doc="Listen on the port two below as well, where old Java clients send;"
        " brokers do unless this is false.",
    )


@settings_class
class TlsServerSettings(Settings):
    """TLS of a listening server; keys are Java's system properties."""

    prefix = "tls"

    mode: TlsMode = setting(
        TlsMode.PERMISSIVE,
        key="tls.server.mode",
        doc="disabled: plain only; permissive: both on one port; enforcing: TLS only.",
    )
    cert_path: Path | None = setting(
        None, key="tls.server.certPath", doc="Certificate chain (PEM); without it there is no TLS."
    )
    key_path: Path | None = setting(
        None, key="tls.server.keyPath", doc="Private key (PEM), if not in the certificate's file."
    )
    key_password: str | None = setting(
        None, key="tls.server.keyPassword", doc="Password of the private key.", secret=True
    )
    need_client_auth: ClientAuth = setting(
        ClientAuth.NONE,
        key="tls.server.need.client.auth",
        doc="Whether clients are asked for a certificate: none, optional, require.",
    )
    trust_cert_path: Path | None = setting(
        None, key="tls.server.trustCertPath", doc="Who may sign clients' certificates (PEM)."
    )


@settings_class
class TlsClientSettings(Settings):
    """TLS of a dialling client."""

    prefix = "tls_client"

    is_enabled: bool = setting(False, key="tls.enable", doc="Talk TLS to servers.")
    trust_cert_path: Path | None = setting(
        None,
        key="tls.client.trustCertPath",
        doc="Who may sign servers' certificates (PEM); without it any server is trusted.",
    )
    cert_path: Path | None = setting(
        None, key="tls.client.certPath", doc="Certificate to show to servers that ask (PEM)."
    )
    key_path: Path | None = setting(None, key="tls.client.keyPath", doc="Its private key (PEM).")
    key_password: str | None = setting(
        None, key="tls.client.keyPassword", doc="Password of that key.", secret=True
    )


@settings_class
class HealthSettings(Settings):
    """The HTTP port for probes and metrics."""

    prefix = "health"

    port: int | None = setting(
        None,
        doc="Port of /healthz, /readyz and /metrics; without one there are none.",
        minimum=0,
        maximum=65535,
    )
    address: str = setting("127.0.0.1", doc="Address to listen on for them.")
