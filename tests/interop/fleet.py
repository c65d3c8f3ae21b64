"""One Apache broker of each release, registered with our name servers and with Apache's."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop import asking
from tests.interop.apache import VERSIONS, ApacheBroker, ApacheNameServer
from tests.interop.asking import wait_until
from tests.interop.cache import Cache
from tests.interop.nameserver import OurNameServer


@dataclass(frozen=True, slots=True)
class Twins:
    """A broker of one release and the two name servers, ours and Apache's, that know only it."""

    broker: ApacheBroker
    ours: OurNameServer
    apaches: ApacheNameServer

    @property
    def namesrvs(self) -> tuple[str, str]:
        """Where ours and where Apache's is."""
        return self.ours.address, self.apaches.address

    def wait_until_alike(self) -> None:
        """Return once both were told of the same topics."""
        ours, apaches = self.namesrvs
        wait_until(lambda: asking.topics(ours) == asking.topics(apaches), "the same topics")

    def routes(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """All routes, as ours has them and as Apache's.

        A 4.9 name server has no word for acting masters, and no broker here wants to be one: there
        ours may say so, and what it says is left out.
        """
        ours, apaches = map(asking.route_documents, self.namesrvs)
        if self.broker.version.startswith("4."):
            for route in ours.values():
                for broker in route["brokerDatas"]:
                    assert broker.pop("enableActingMaster", False) is False
        return ours, apaches


@dataclass(frozen=True, slots=True)
class Fleet:
    """Both brokers by release; ``shared`` is a name server of ours that knows both."""

    shared: OurNameServer
    twins: Mapping[str, Twins]

    @property
    def brokers(self) -> list[ApacheBroker]:
        return [twins.broker for twins in self.twins.values()]


@contextmanager
def running(cache: Cache, folder: Path) -> Iterator[Fleet]:
    """A fleet that runs for as long as the block; killed at the end, nobody opens its stores."""
    with ExitStack() as stack:
        shared = stack.enter_context(OurNameServer(folder / "shared"))
        twins = {}
        for version in VERSIONS:
            ours = stack.enter_context(OurNameServer(folder / f"ours-{version}"))
            apaches = ApacheNameServer(cache, version, folder / f"apaches-{version}")
            stack.callback(apaches.kill)
            broker = ApacheBroker(
                cache,
                version,
                folder / f"broker-{version}",
                namesrv=f"{shared.address};{ours.address};{apaches.address}",
                settings={"brokerName": f"broker-{version}"},
            )
            stack.callback(broker.kill)
            twins[version] = Twins(broker, ours, apaches)
        yield Fleet(shared, twins)
