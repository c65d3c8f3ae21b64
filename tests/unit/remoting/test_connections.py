import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncIterator

import pytest

from cometmq.admin import Admin
from cometmq.codec import signature
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.base import Header
from cometmq.codec.headers.topics import GetTopicStatsInfo
from cometmq.errors import ConnectionLost, RequestTimeout, SettingsError, Unreachable
from cometmq.remoting.channel import Channel
from cometmq.remoting.config import TlsClientSettings, TlsMode, TlsServerSettings
from cometmq.remoting.connections import Connections, Pauses
from cometmq.remoting.routes import Answer, Routes
from cometmq.remoting.server import Server
from cometmq.remoting.signing import Credentials
from tests.unit.remoting.certificates import Certificates, make_certificates

LOOPBACK = "127.0.0.1"
ECHO = RequestCode.GET_TOPIC_STATS_INFO
DROP = RequestCode.TRIGGER_DELETE_FILES
SILENT = RequestCode.GET_BROKER_RUNTIME_INFO
LEAVING = RequestCode.GET_BROKER_CONFIG


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


class Peer:
    """A server that counts who comes; ``DROP`` ends the connection instead of answering."""

    def __init__(self, port: int = 0, tls: TlsServerSettings | None = None) -> None:
        routes = Routes()
        routes.add(ECHO, self._echo)
        routes.add(DROP, self._drop)
        routes.add(SILENT, lambda channel, command: None)
        routes.add(LEAVING, self._leave)
        self._server = Server(routes, tls=tls, on_closed=self._closed)
        self._port = port
        self.commands: list[Command] = []
        self.seen: set[Channel] = set()
        self.closed_count = 0
        self.is_patient = False  # DROP is answered

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self._port}"

    async def start(self) -> None:
        await self._server.start(LOOPBACK, self._port)
        self._port = self._server.ports[0]

    async def stop(self) -> None:
        await self._server.stop()

    def _echo(self, channel: Channel, command: Command) -> Answer:
        self.seen.add(channel)
        self.commands.append(command)
        return Answer(body=command.body)

    def _drop(self, channel: Channel, command: Command) -> Answer | None:
        self.seen.add(channel)
        self.commands.append(command)
        if self.is_patient:
            return Answer()
        channel.close("as told")
        self.is_patient = True
        return None

    def _leave(self, channel: Channel, command: Command) -> Answer:
        """Say "go away" on the first connection, and serve on the next."""
        is_known = channel in self.seen
        self.seen.add(channel)
        self.commands.append(command)
        return Answer(ResponseCode.GO_AWAY) if is_known else Answer(body=b"served")

    def _closed(self, channel: Channel) -> None:
        self.closed_count += 1


@contextlib.asynccontextmanager
async def peers(count: int = 1) -> AsyncIterator[list[Peer]]:
    started = [Peer() for _ in range(count)]
    for peer in started:
        await peer.start()
    try:
        yield started
    finally:
        for peer in started:
            await peer.stop()


async def say(connections: Connections, peer: Peer, text: bytes = b"hello") -> bytes:
    answer = await connections.ask(peer.address, ECHO, body=text, timeout_ms=5_000)
    return answer.body


async def test_an_address_is_dialled_once_however_many_ask() -> None:
    async with peers() as (peer,), Connections() as connections:
        texts = [b"%d" % number for number in range(100)]

        answers = await asyncio.gather(*(say(connections, peer, text) for text in texts))

        assert answers == texts
        assert len(peer.seen) == 1


async def test_a_server_that_was_restarted_is_dialled_again() -> None:
    async with peers() as (peer,), Connections() as connections:
        await say(connections, peer)
        await peer.stop()

        with pytest.raises(Unreachable):
            await say(connections, peer)
        again = Peer(int(peer.address.split(":")[1]))
        await again.start()
        try:
            assert await say(connections, again) == b"hello"
        finally:
            await again.stop()


async def test_a_question_that_crosses_the_end_of_its_connection_is_asked_again() -> None:
    async with peers() as (peer,), Connections() as connections:
        await say(connections, peer)

        answer = await connections.ask(peer.address, DROP, timeout_ms=5_000)

        assert answer.code == 0
        assert [command.code for command in peer.commands] == [ECHO, DROP, DROP]
        assert len(peer.seen) == 2


async def test_what_must_not_be_done_twice_is_not_asked_again() -> None:
    async with peers() as (peer,), Connections() as connections:
        await say(connections, peer)

        with pytest.raises(ConnectionLost):
            await connections.ask(peer.address, DROP, timeout_ms=5_000, is_repeatable=False)

        assert [command.code for command in peer.commands] == [ECHO, DROP]


async def test_a_new_connection_that_ends_is_not_tried_for_ever() -> None:
    async with peers() as (peer,), Connections() as connections:
        with pytest.raises(ConnectionLost):
            await connections.ask(peer.address, DROP, timeout_ms=5_000)


async def test_connections_are_bounded_and_the_one_unused_longest_goes() -> None:
    async with peers(3) as (first, second, third), Connections(connections_max=2) as connections:
        await say(connections, first)
        await say(connections, second)
        await say(connections, first)

        await say(connections, third)

        assert connections.addresses == (first.address, third.address)
        assert await say(connections, second) == b"hello"


async def test_a_server_that_does_not_answer_is_given_up() -> None:
    async with peers() as (peer,), Connections() as connections:
        with pytest.raises(RequestTimeout):
            await connections.ask(peer.address, SILENT, timeout_ms=200)


async def test_a_peer_that_has_said_nothing_since_it_was_asked_is_hung_up_on() -> None:
    async with peers() as (peer,), Connections(silence_ms=20) as connections:
        await say(connections, peer)
        channel = connections.find(peer.address)

        with pytest.raises(RequestTimeout):
            await connections.ask(peer.address, SILENT, timeout_ms=200)

        assert channel is not None
        assert not channel.is_open
        assert await say(connections, peer) == b"hello"


async def test_a_late_answer_alone_does_not_cost_others_their_connection() -> None:
    async with peers() as (peer,), Connections(silence_ms=20) as connections:
        late = asyncio.create_task(connections.ask(peer.address, SILENT, timeout_ms=200))
        await asyncio.sleep(0)
        await say(connections, peer)

        with pytest.raises(RequestTimeout):
            await late

        assert connections.find(peer.address) is not None


async def test_somebody_in_a_hurry_does_not_cost_others_their_connection() -> None:
    """A silence that is shorter than an ordinary pause of a broker proves nothing."""
    async with peers() as (peer,), Connections() as connections:
        await say(connections, peer)
        channel = connections.find(peer.address)

        with pytest.raises(RequestTimeout):
            await connections.ask(peer.address, SILENT, timeout_ms=10)

        assert channel is not None
        assert connections.find(peer.address) is channel


async def test_several_short_silences_in_a_row_are_a_long_one() -> None:
    async with peers() as (peer,), Connections(silence_ms=40) as connections:
        await say(connections, peer)
        count = 0

        while connections.find(peer.address) is not None:
            with pytest.raises(RequestTimeout):
                await connections.ask(peer.address, SILENT, timeout_ms=5)
            count += 1

        assert 1 < count <= 8


async def test_somebody_in_a_hurry_does_not_end_the_attempt_to_connect() -> None:
    """Neither does the address count as one that cannot be reached, to be left alone."""
    async with peers() as (peer,), Connections(pauses=Pauses(first=60)) as connections:
        hurried = asyncio.create_task(connections.channel(peer.address, timeout_ms=60_000))
        patient = asyncio.create_task(connections.channel(peer.address))
        await asyncio.sleep(0)
        hurried.cancel()

        channel = await patient

        assert channel.is_open
        assert connections.find(peer.address) is channel


async def test_no_time_for_a_connection_does_not_make_an_address_unreachable() -> None:
    async with peers() as (peer,), Connections(pauses=Pauses(first=60)) as connections:
        with pytest.raises(Unreachable, match=r"no connection within 0 ms"):
            await connections.channel(peer.address, timeout_ms=0)

        assert await say(connections, peer) == b"hello"
        assert connections.find(peer.address) is not None


async def test_closing_ends_the_attempt_to_connect() -> None:
    async with peers() as (peer,):
        connections = Connections(owner="client")
        waiting = asyncio.create_task(connections.channel(peer.address))
        await asyncio.sleep(0)

        connections.close()

        with pytest.raises(Unreachable, match="this client is closed"):
            await waiting


async def test_waiting_for_a_turn_is_part_of_the_time() -> None:
    async with peers() as (peer,), Connections(requests_max=1) as connections:
        first = asyncio.create_task(connections.ask(peer.address, SILENT, timeout_ms=60_000))
        await asyncio.sleep(0)

        with pytest.raises(Unreachable, match="too many other requests were under way for 10 ms"):
            await connections.ask(peer.address, ECHO, timeout_ms=10)

        first.cancel()
        await asyncio.wait((first,))
        assert await say(connections, peer) == b"hello"


async def test_when_all_connections_are_in_use_one_more_is_made() -> None:
    async with peers(2) as (first, second), Connections(connections_max=1) as connections:
        waiting = asyncio.create_task(connections.ask(first.address, SILENT, timeout_ms=60_000))
        await asyncio.sleep(0)

        assert await say(connections, second) == b"hello"

        waiting.cancel()
        await asyncio.wait((waiting,))


async def test_a_server_that_goes_away_is_asked_again_on_a_new_connection() -> None:
    async with peers() as (peer,), Connections() as connections:
        await say(connections, peer)
        old = connections.find(peer.address)
        waiting = asyncio.create_task(connections.ask(peer.address, SILENT, timeout_ms=500))
        await asyncio.sleep(0)

        answer = await connections.ask(peer.address, LEAVING, timeout_ms=5_000)

        assert answer.body == b"served"
        assert len(peer.seen) == 2
        assert old is not None
        assert old.is_open  # somebody still waits there
        with pytest.raises(RequestTimeout):
            await waiting
        assert not old.is_open


async def test_an_address_that_cannot_be_reached_is_left_alone_for_a_while() -> None:
    async with Connections(pauses=Pauses(first=20)) as connections:
        with pytest.raises(Unreachable, match=r"refused$"):
            await connections.channel(f"{LOOPBACK}:1")

        with pytest.raises(Unreachable, match=r"refused; it is tried again in (20|19)\.\d s"):
            await connections.channel(f"{LOOPBACK}:1")


def test_pauses_double_up_to_a_bound() -> None:
    pauses = Pauses(first=1, longest=30)

    assert [pauses.after(failures) for failures in (1, 2, 3, 6, 1_000)] == [1, 2, 4, 30, 30]


async def test_who_owns_the_connections_is_told_of_new_ones() -> None:
    opened: list[str] = []
    async with peers() as (peer,), Connections(on_opened=opened.append) as connections:
        await say(connections, peer)
        await say(connections, peer)
        connections.forget(peer.address, "no longer needed")
        await say(connections, peer)

        assert opened == [peer.address, peer.address]


async def test_an_address_where_nobody_listens_is_unreachable() -> None:
    async with Connections() as connections:
        with pytest.raises(Unreachable, match="Connection refused"):
            await connections.ask(f"{LOOPBACK}:1", ECHO, timeout_ms=1_000)


@pytest.mark.parametrize("tls", [None, TlsClientSettings(is_enabled=True)])
async def test_what_a_request_in_vain_was_about_is_freed_at_once(
    tls: TlsClientSettings | None,
) -> None:
    """No cycles: large messages that could not be sent must not wait for the collector."""
    held: list[weakref.ref[Routes]] = []

    async def ask(connections: Connections, address: str) -> None:
        message = Routes()
        held.append(weakref.ref(message))
        await connections.ask(address, ECHO, timeout_ms=5_000)

    async with peers() as (plain,), Connections(tls=tls) as connections:
        address = f"{LOOPBACK}:1" if tls is None else plain.address
        gc.disable()
        try:
            with pytest.raises(Unreachable):
                await ask(connections, address)
            for _ in range(10):  # loops hold what they have just run
                await asyncio.sleep(0)

            assert held[0]() is None
        finally:
            gc.enable()


async def test_nothing_is_asked_once_it_is_closed() -> None:
    async with peers() as (peer,):
        async with Connections() as connections:
            await say(connections, peer)

        with pytest.raises(Unreachable, match="this admin is closed; ask inside of its"):
            await say(connections, peer)


async def test_requests_under_way_end_when_it_is_closed() -> None:
    async with peers() as (peer,), Connections() as connections:
        await say(connections, peer)
        waiting = asyncio.create_task(connections.ask(peer.address, SILENT, timeout_ms=5_000))
        await asyncio.sleep(0)

        connections.close()

        with pytest.raises(ConnectionLost):
            await waiting


@pytest.mark.parametrize("header", [None, GetTopicStatsInfo("orders")], ids=["bare", "header"])
async def test_requests_are_signed_in_the_name_of_the_key(header: Header | None) -> None:
    credentials = Credentials("key", "secret", "token")
    async with peers() as (peer,), Connections(credentials=credentials) as connections:
        await connections.ask(peer.address, ECHO, header, b"body", timeout_ms=5_000)

        (command,) = peer.commands
        ext = command.ext_fields
        assert ext["AccessKey"] == "key"
        assert ext["SecurityToken"] == "token"
        assert signature.verify(ext, command.body, "secret", command.version)
        assert not signature.verify(ext, command.body, "other", command.version)
        assert ext.get("topic") == (None if header is None else "orders")


@pytest.mark.slow
async def test_servers_may_be_asked_with_tls(certificates: Certificates) -> None:
    server_side = TlsServerSettings(
        mode=TlsMode.ENFORCING,
        cert_path=certificates.server.certificate,
        key_path=certificates.server.key,
    )
    trusting = TlsClientSettings(is_enabled=True, trust_cert_path=certificates.authority)
    peer = Peer(tls=server_side)
    await peer.start()
    try:
        async with Connections(tls=trusting) as connections:
            assert await say(connections, peer) == b"hello"
        async with Connections() as connections:
            with pytest.raises((ConnectionLost, Unreachable)):
                await say(connections, peer)
    finally:
        await peer.stop()


def test_a_secret_is_not_printed() -> None:
    assert "hidden" not in repr(Credentials("key", "hidden"))


@pytest.mark.parametrize("namesrv", ["", " ; ", []])
def test_an_admin_needs_a_name_server(namesrv: str | list[str]) -> None:
    with pytest.raises(SettingsError, match="no name server is given"):
        Admin(namesrv)


def test_an_address_that_is_none_is_noticed_at_once() -> None:
    with pytest.raises(SettingsError, match="write it as host:port"):
        Admin("localhost")


def test_half_a_pair_of_keys_is_noticed() -> None:
    with pytest.raises(SettingsError, match="secret_key"):
        Admin("h:1", access_key="key")
    with pytest.raises(SettingsError, match="access_key"):
        Admin("h:1", secret_key="secret")


async def test_name_servers_may_be_a_list_and_are_named_once() -> None:
    async with Admin(["h:1", "h:2", "h:1"]) as admin:
        assert admin.name_servers.addresses == ("h:1", "h:2")
