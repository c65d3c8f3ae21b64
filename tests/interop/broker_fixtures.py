"""Fixtures for the tests of our broker with real clients: the servers and the running clients.

``COMETMQ_INTEROP_BROKER=4.9.7`` (or ``5.5.0``) puts Apache's broker in the place of ours, to see
whether a test is right about the original.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop import asking, feature_shell, membership, requirements, tls
from tests.interop.apache import VERSIONS, ApacheBroker, ApacheNameServer
from tests.interop.broker import OurBroker
from tests.interop.cache import Cache
from tests.interop.feature_kit import Trial
from tests.interop.feature_shell import FeatureProgram
from tests.interop.nameserver import OurNameServer
from tests.interop.tls import Certificates

__all__ = [
    "behind_apaches",
    "feature_certificates",
    "new_program",
    "program",
    "servers",
    "trial",
]

OURS = "ours"
BROKER = os.environ.get("COMETMQ_INTEROP_BROKER", OURS)
# Level 1 is a second, level 2 two; retries, which start at level 3, need not wait longer.
LEVEL_DELAYS_S = (1, 2, *[1] * 16)
SETTINGS: Mapping[str, str] = {"messageDelayLevel": " ".join(f"{s}s" for s in LEVEL_DELAYS_S)}

Programs = Callable[[str], FeatureProgram]
NewProgram = Callable[..., FeatureProgram]


@dataclass(slots=True)
class Servers:
    """A name server and one broker."""

    namesrv: str
    broker: OurBroker | ApacheBroker
    start_again: Callable[[], OurBroker | ApacheBroker]

    def create_topic(self, topic: str, *, queues: int = 4) -> None:
        """Return once clients can find the topic."""
        asking.create_topic(self.broker.address, topic, queues=queues)
        self.wait_until_known(topic)

    def wait_until_known(self, topic: str) -> None:
        asking.wait_until_known([self.namesrv], topic)

    def introduce_group(self, group: str) -> None:
        """Return once clients can find the group's retry topic.

        A member that comes before its broker has made the topic finds it only with its next look
        at the routes and the queues, up to half a minute later.
        """
        membership.join_and_leave(self.broker.address, group)
        self.wait_until_known(f"%RETRY%{group}")

    def stop_broker(self) -> None:
        self.broker.stop()

    def start_broker(self) -> None:
        """Bring the broker that was stopped back."""
        self.broker = self.start_again()


@pytest.fixture(scope="module")
def feature_certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates | None:
    """None where none can be made: then only the test of TLS has to do without."""
    if requirements.lack("openssl") is not None:
        return None
    return tls.make(tmp_path_factory.mktemp("feature-certificates"))


@pytest.fixture(scope="module")
def servers(
    cache: Cache,
    feature_certificates: Certificates | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Servers]:
    """The servers all clients are tried with; both may be spoken to with TLS or without."""
    folder = tmp_path_factory.mktemp("feature-servers")
    secured = feature_certificates.server_settings("permissive") if feature_certificates else {}
    with OurNameServer(folder / "namesrv", settings=secured) as namesrv:
        started = _servers(cache, folder / "broker", namesrv.address, secured)
        try:
            yield started
        finally:
            started.broker.kill()


def _servers(cache: Cache, folder: Path, namesrv: str, secured: Mapping[str, str]) -> Servers:
    if BROKER == OURS:
        ours = OurBroker(folder, namesrv=namesrv, settings={**SETTINGS, **secured})

        def start_ours() -> OurBroker:
            ours.start()
            return ours

        return Servers(namesrv, ours, start_ours)

    # In test mode, the default, Java would make its own certificates.
    properties = {**secured, "tls.test.mode.enable": "false"}

    def start_apaches(settings: Mapping[str, str]) -> ApacheBroker:
        return ApacheBroker(
            cache, BROKER, folder, namesrv=namesrv, settings=settings, properties=properties
        )

    apaches = start_apaches(SETTINGS)
    return Servers(namesrv, apaches, lambda: start_apaches(apaches.settings))


@pytest.fixture(scope="module")
def behind_apaches(
    cache: Cache, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Servers]]:
    """By release: Apache's name server, and one broker of ours that is registered with all."""
    folder = tmp_path_factory.mktemp("behind-apaches")
    with ExitStack() as stack:
        namesrvs: dict[str, str] = {}
        for version in VERSIONS:
            namesrv = ApacheNameServer(cache, version, folder / f"namesrv-{version}")
            stack.callback(namesrv.kill)
            namesrvs[version] = namesrv.address
        broker = OurBroker(folder / "broker", namesrv=";".join(namesrvs.values()))
        stack.callback(broker.kill)
        yield {
            version: Servers(address, broker, lambda: broker)
            for version, address in namesrvs.items()
        }


@pytest.fixture(scope="module")
def new_program(cache: Cache, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewProgram]:
    """``new_program("go")``: another program of that client, for the test's own ends."""
    with ExitStack() as stack:

        def start(
            name: str, *, variant: str = "plain", certificates: Certificates | None = None
        ) -> FeatureProgram:
            folder = tmp_path_factory.mktemp(f"features-{name}")
            launch = feature_shell.launch(cache, name, folder, variant=variant, tls=certificates)
            return stack.enter_context(FeatureProgram(name, launch, folder))

        yield start


@pytest.fixture(scope="module")
def program(new_program: NewProgram) -> Programs:
    """``program("go")``: the one program of that client that all tests share."""
    started: dict[str, FeatureProgram] = {}

    def get(name: str) -> FeatureProgram:
        if name not in started:
            started[name] = new_program(name)
        return started[name]

    return get


@pytest.fixture
def trial(name: str, servers: Servers, program: Programs, topic: str) -> Iterator[Trial]:
    """The client called ``name`` with a topic and a group that no other test uses."""
    started = Trial(servers, program(name), topic)
    yield started
    started.close()
