"""A client that speaks TLS with name server and broker, and finds out who it speaks to."""

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from cometmq import Client, Message, TlsClientSettings, Unreachable
from cometmq.testing import LocalCluster
from cometmq.testing.local_cluster import BlockingCluster
from tests.unit.remoting.certificates import Certificates, make_certificates

WAIT_SECONDS = 20


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(certificates: Certificates) -> Iterator[BlockingCluster]:
    """Servers that speak TLS with those who show a certificate of theirs, beside plain text."""
    tls = {
        "tls.server.mode": "permissive",
        "tls.server.certPath": str(certificates.server.certificate),
        "tls.server.keyPath": str(certificates.server.key),
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": str(certificates.authority),
    }
    settings = {**tls, "messageDelayLevel": "1s 1s 1s"}
    with LocalCluster(settings=settings, nameserver_settings=tls) as cluster:
        yield cluster


def trusting(authority: Path, certificates: Certificates) -> TlsClientSettings:
    return TlsClientSettings(
        is_enabled=True,
        trust_cert_path=authority,
        cert_path=certificates.client.certificate,
        key_path=certificates.client.key,
    )


def test_messages_are_sent_consumed_and_retried(
    secured: BlockingCluster, certificates: Certificates
) -> None:
    tries: list[int] = []
    handled: Future[bytes] = Future()

    def handle(message: Message[bytes]) -> None:
        tries.append(message.reconsume_times)
        if len(tries) == 1:
            raise ValueError("once more")
        handled.set_result(message.body)

    tls = trusting(certificates.authority, certificates)
    with Client(secured.namesrv, tls=tls) as mq:
        mq.producer().send("orders", b"secret")
        consumer = mq.consumer("billing", start="first")
        consumer.subscribe("orders")
        consumer.start(handle)

        assert handled.result(WAIT_SECONDS) == b"secret"
    assert tries == [0, 1]


def test_a_server_of_another_authority_is_not_spoken_to(
    secured: BlockingCluster, certificates: Certificates
) -> None:
    stranger = certificates.stranger.certificate

    with (
        Client(secured.namesrv, tls=trusting(stranger, certificates)) as mq,
        pytest.raises(Unreachable, match="VERIFY_FAILED; does a name server speak TLS"),
    ):
        mq.producer().send("orders", b"secret")


def test_who_shows_no_certificate_is_refused(
    secured: BlockingCluster, certificates: Certificates
) -> None:
    tls = TlsClientSettings(is_enabled=True, trust_cert_path=certificates.authority)

    with Client(secured.namesrv, tls=tls) as mq, pytest.raises(Unreachable):
        mq.producer().send("orders", b"secret")
