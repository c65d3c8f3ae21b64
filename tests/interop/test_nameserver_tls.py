"""TLS to our name server by programs with TLS of their own: Java's and Go's.

An Apache broker that speaks TLS is registered with two name servers of ours: one where TLS may be
spoken and one where it must. All of Java checks the server's certificate; test mode, in which it
would trust anybody, is off.
"""

import ssl
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from cometmq.codec.codes import RequestCode, ResponseCode
from tests.interop import asking, clients, mqadmin_fields, tls
from tests.interop.admin_shell import AdminShell
from tests.interop.apache import ApacheBroker
from tests.interop.cache import Cache
from tests.interop.clients import Client
from tests.interop.mqadmin import VERSIONS, MqAdmin
from tests.interop.nameserver import OurNameServer
from tests.interop.tls import Certificates

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

COUNT = 4
MODES = ("permissive", "enforcing")

NameServers = Mapping[str, OurNameServer]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return tls.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def namesrvs(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NameServers]:
    """A name server of ours for each mode."""
    folder = tmp_path_factory.mktemp("tls")
    permissive, enforcing = (
        OurNameServer(folder / mode, settings=certificates.server_settings(mode)) for mode in MODES
    )
    with permissive, enforcing:
        yield {"permissive": permissive, "enforcing": enforcing}


@pytest.fixture(scope="module")
def broker(
    cache: Cache,
    certificates: Certificates,
    namesrvs: NameServers,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ApacheBroker]:
    """Dials both name servers with TLS; who comes to it may speak TLS or not."""
    properties = {
        **certificates.java_client_properties(),
        **certificates.server_settings("permissive"),
    }
    started = ApacheBroker(
        cache,
        "5.5.0",
        tmp_path_factory.mktemp("tls-broker"),
        namesrv=";".join(namesrv.address for namesrv in namesrvs.values()),
        properties=properties,
    )
    yield started
    started.kill()


@pytest.fixture
def tls_client(cache: Cache, certificates: Certificates, tmp_path: Path) -> Callable[[str], Client]:
    """``tls_client("go")``: that client, speaking TLS."""
    return lambda name: clients.client(cache, name, tmp_path, tls=certificates)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["java-5.5.0", "go"])
def test_a_client_sends_and_consumes_with_tls(
    broker: ApacheBroker,
    namesrvs: NameServers,
    topic: str,
    tls_client: Callable[[str], Client],
    name: str,
    mode: str,
) -> None:
    """Java speaks TLS to name server and broker, Go to the name server only.

    No released version of the Go client can speak TLS (v2.1.2 is the last; the option came after
    it), so a tunnel inside its program carries what it says to the name server, with Go's own TLS.
    """
    namesrv = namesrvs[mode].address
    program = tls_client(name)

    sent = program.send(namesrv, topic, count=COUNT)
    received = program.consume(namesrv, topic, count=COUNT, group=f"G_{topic}")

    assert len(sent) == COUNT
    assert {event["messageId"] for event in received} == {event["messageId"] for event in sent}


def test_a_client_without_tls_is_served_where_tls_is_not_required(
    broker: ApacheBroker, namesrvs: NameServers, topic: str, client: Callable[[str], Client]
) -> None:
    sent = client("go").send(namesrvs["permissive"].address, topic, count=1)

    assert [event["body"] for event in sent] == ["message-0"]


def test_who_does_not_speak_tls_gets_no_answer_where_it_is_required(
    namesrvs: NameServers, admin_shell: Callable[[str], AdminShell]
) -> None:
    namesrv = namesrvs["enforcing"]

    with pytest.raises(ConnectionError):
        asking.topics(namesrv.address)
    text = admin_shell("4.9.8")("topicList", "-n", namesrv.address)

    problem = mqadmin_fields.failure(text)
    assert problem is not None
    assert namesrv.address in problem.description
    assert "does not speak TLS" in namesrv.process.log()


@pytest.mark.parametrize("version", VERSIONS)
def test_mqadmin_asks_for_a_route_with_tls(
    cache: Cache,
    certificates: Certificates,
    broker: ApacheBroker,
    namesrvs: NameServers,
    tmp_path: Path,
    version: str,
) -> None:
    """The tool as it is started from a command line."""
    admin = MqAdmin(cache, version, tmp_path, certificates.java_client_properties())

    text = admin("topicRoute", "-n", namesrvs["enforcing"].address, "-t", "TBW102")

    (data,) = mqadmin_fields.route(text)["brokerDatas"]
    assert data["brokerAddrs"] == {0: broker.address}


def test_who_trusts_another_authority_does_not_talk_with_us(
    namesrvs: NameServers, tmp_path: Path
) -> None:
    stranger = tls.make(tmp_path)

    with pytest.raises(ssl.SSLCertVerificationError):
        asking.ask(
            namesrvs["enforcing"].address,
            RequestCode.GET_BROKER_CLUSTER_INFO,
            tls=stranger.client_context(),
        )


def test_a_certificate_can_be_asked_of_clients(
    cache: Cache, certificates: Certificates, tmp_path: Path
) -> None:
    """Java with a certificate is served; who has none is turned away during the handshake."""
    settings = {
        **certificates.server_settings("enforcing"),
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": str(certificates.authority),
    }
    properties = certificates.java_client_properties(has_certificate=True)
    with OurNameServer(tmp_path / "namesrv", settings=settings) as namesrv:
        asking_java = MqAdmin(cache, "5.5.0", tmp_path / "mqadmin", properties)

        text = asking_java("getNamesrvConfig", "-n", namesrv.address)

        shown = mqadmin_fields.namesrv_configs(text)[namesrv.address]
        assert shown["tls.server.need.client.auth"] == "require"
        with pytest.raises(ssl.SSLError):
            asking.ask(
                namesrv.address,
                RequestCode.GET_BROKER_CLUSTER_INFO,
                tls=certificates.client_context(),
            )


@pytest.mark.parametrize("mode", MODES)
def test_python_speaks_tls_to_it_too(
    certificates: Certificates, namesrvs: NameServers, mode: str
) -> None:
    answer = asking.ask(
        namesrvs[mode].address,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        tls=certificates.client_context(),
    )

    assert answer.code == ResponseCode.SUCCESS
