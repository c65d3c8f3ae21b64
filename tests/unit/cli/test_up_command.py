"""``cometmq up``: two servers in one process, and a file with which Apache's broker goes on."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cometmq.admin import Admin
from cometmq.broker.broker_config import BrokerConfig
from cometmq.cli.commands.up import tell
from cometmq.cli.frame import Frame
from cometmq.cli.local_broker import LocalBroker
from cometmq.cli.local_service import LocalOptions, LocalService
from cometmq.cli.problems import problem_of
from cometmq.codec import java_properties
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.nameserver import GetRouteInfoByTopic
from cometmq.errors import Refused, SettingsError, StoreLocked
from cometmq.remoting.client import connect, split_address
from cometmq.remoting.server import PortInUse
from cometmq.store.results import NewMessage

pytestmark = pytest.mark.slow


def options_of(folder: Path, listen: str = "127.0.0.1", port: int = 0) -> LocalOptions:
    return LocalOptions(data=folder / "data", listen=listen, port=port, namesrv_port=0)


@asynccontextmanager
async def service_of(
    options: LocalOptions, environment: Mapping[str, str] | None = None
) -> AsyncIterator[LocalService]:
    service = LocalService(options, environment or {}, lambda _: None)
    try:
        await service.start()
        yield service
    finally:
        await service.stop()


def address_of(service: LocalService) -> str:
    (broker,) = service.brokers
    return broker.address


def conf_of(service: LocalService) -> dict[str, str]:
    return java_properties.loads(service.brokers[0].place.file.read_bytes())


def test_clients_of_the_name_server_find_the_broker(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with service_of(options_of(tmp_path)) as service:
            client = await connect(service.name_server_address)
            header = GetRouteInfoByTopic("TBW102")
            code = RequestCode.GET_ROUTEINFO_BY_TOPIC

            found = await client.request(code, header, timeout_ms=5000)

            client.close()
            assert found.code == ResponseCode.SUCCESS
            assert address_of(service).encode() in found.body
            assert address_of(service).startswith("127.0.0.1:")
            (await connect(address_of(service))).close()

    asyncio.run(scenario())


def test_nobody_else_is_let_in(tmp_path: Path) -> None:
    """Not even when the environment, made for a real broker, would have it so."""

    async def scenario() -> None:
        environment = {"COMETMQ_BIND_ADDRESS": "0.0.0.0", "COMETMQ_BROKER_IP1": "127.0.0.3"}
        async with service_of(options_of(tmp_path), environment) as service:
            _, port = split_address(address_of(service))

            with socket.socket() as other:
                assert other.connect_ex(("127.0.0.2", port)) != 0
            assert address_of(service) == f"127.0.0.3:{port}"

    asyncio.run(scenario())


def test_on_all_addresses_the_broker_registers_over_the_nearest(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with service_of(options_of(tmp_path, listen="0.0.0.0")) as service:
            assert service.name_server_address.startswith("127.0.0.1:")
            assert conf_of(service)["bindAddress"] == "0.0.0.0"

    asyncio.run(scenario())


def test_the_file_tells_apaches_broker_all_it_needs(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with service_of(options_of(tmp_path)) as service:
            host, port = split_address(address_of(service))

            conf = conf_of(service)

            assert conf == {
                "brokerClusterName": "DefaultCluster",
                "brokerName": "broker-a",
                "brokerId": "0",
                "brokerIP1": host,
                "bindAddress": "127.0.0.1",
                "listenPort": str(port),
                "haListenPort": str(port + 1),
                "namesrvAddr": service.name_server_address,
                "storePathRootDir": str(tmp_path / "data" / "store"),
                "storePathCommitLog": str(tmp_path / "data" / "store" / "commitlog"),
                "mappedFileSizeCommitLog": "67108864",
                "mappedFileSizeConsumeQueue": "600000",
                "maxHashSlotNum": "50000",
                "maxIndexNum": "200000",
            }
            config = BrokerConfig.load(file=conf, environment={}, flags={})
            assert config.review().unknown == ()

    asyncio.run(scenario())


@pytest.mark.parametrize("own", ["", "configBlackList=fileReservedTime\n"])
def test_what_up_decides_at_each_start_cannot_be_set_from_afar(tmp_path: Path, own: str) -> None:
    """It would be said to take effect after a restart."""

    async def scenario() -> None:
        options = options_of(tmp_path)
        options.data.mkdir()
        (options.data / "broker.conf").write_text(own)
        async with service_of(options) as service, Admin(service.name_server_address) as admin:
            for change in ({"listenPort": "1"}, {"namesrvAddr": "127.0.0.1:1"}):
                with pytest.raises(Refused, match="in black list"):
                    await admin.brokers.set_config(change, broker="broker-a")
            reserved = {"fileReservedTime": "9"}
            if own:
                with pytest.raises(Refused, match="in black list"):
                    await admin.brokers.set_config(reserved, broker="broker-a")
            else:
                await admin.brokers.set_config(reserved, broker="broker-a")
            assert "listenPort" not in conf_of(service).get("configBlackList", "")

    asyncio.run(scenario())


def test_a_file_of_the_users_own_is_kept_and_heeded(tmp_path: Path) -> None:
    async def scenario() -> None:
        options = options_of(tmp_path)
        options.data.mkdir()
        own = "brokerName=mine\nlistenPort=1\nbrokerIP1=10.9.9.9\nmaxIndexNum=300\nfoo=bar\n"
        (options.data / "broker.conf").write_text(own)

        async with service_of(options) as service:
            conf = conf_of(service)

            assert (conf["brokerName"], conf["maxIndexNum"], conf["foo"]) == ("mine", "300", "bar")
            assert conf["brokerIP1"] == "127.0.0.1"
            assert conf["listenPort"] == str(split_address(address_of(service))[1])

    asyncio.run(scenario())


def test_a_store_that_exists_keeps_its_sizes_and_the_file_says_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        options = options_of(tmp_path)
        sizes = {"COMETMQ_LOG_FILE_BYTES": "65536", "COMETMQ_QUEUE_FILE_BYTES": "2000"}
        async with service_of(options, sizes) as service:
            (local,) = service.brokers
            assert isinstance(local, LocalBroker)
            assert local.broker is not None
            local.broker.parts.store.put(NewMessage("orders", 0, b"hi"))
            local.broker.parts.store.flush()
            service.brokers[0].place.file.unlink()

        async with service_of(options) as service:
            conf = conf_of(service)

        assert conf["mappedFileSizeCommitLog"] == "65536"
        assert conf["mappedFileSizeConsumeQueue"] == "2000"

    asyncio.run(scenario())


def test_an_unchanged_file_is_not_written_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        options = options_of(tmp_path)
        async with service_of(options) as service:
            ns, port = (
                split_address(a)[1] for a in (service.name_server_address, address_of(service))
            )
            commented = b"# mine\n" + service.brokers[0].place.file.read_bytes()
            service.brokers[0].place.file.write_bytes(commented)

        again = LocalOptions(data=options.data, port=port, namesrv_port=ns)
        async with service_of(again) as service:
            assert service.brokers[0].place.file.read_bytes() == commented

    asyncio.run(scenario())


def test_a_directory_in_use_is_an_error_and_leaves_nothing_running(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with service_of(options_of(tmp_path)) as service:
            before = service.brokers[0].place.file.read_bytes()

            with pytest.raises(StoreLocked):
                async with service_of(options_of(tmp_path)):
                    pass

            assert service.brokers[0].place.file.read_bytes() == before

    asyncio.run(scenario())


def test_a_busy_port_is_an_error_that_names_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]

            with pytest.raises(PortInUse, match=f"port {port} on 127.0.0.1 is in use"):
                async with service_of(options_of(tmp_path, port=port)):
                    pass

    asyncio.run(scenario())


def test_it_says_where_it_listens_and_what_to_do_next(tmp_path: Path) -> None:
    folder = tmp_path / "da ta"
    program = subprocess.Popen(
        [sys.executable, "-m", "cometmq", "up", "--data", str(folder), "--port", "0", "-o", "json"],
        env={**os.environ, "COMETMQ_NAMESRV_PORT": "0"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    text = ""
    for line in program.stdout:
        text += line
        if line.startswith("}"):
            break
    told = json.loads(text)

    commands = [run_line(line) for line in told["next"]]
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=20)

    assert told["broker"].startswith("127.0.0.1:")
    assert told["data"] == str(folder)
    assert [done.returncode for done in commands] == [0, 0, 0], commands
    assert len(commands) == 3
    assert commands[1].stdout.splitlines()[1].endswith("hello")
    assert program.returncode == 0, errors


def test_brokers_of_an_earlier_run_that_are_not_started_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever had more of them would miss their messages."""
    options = options_of(tmp_path)
    for name in ("broker-b", "broker-c"):
        (options.data / name).mkdir(parents=True)
        (options.data / name / "broker.conf").write_text("")

    async def scenario() -> None:
        async with service_of(options) as service:
            tell(Frame(environment={}), service)

    asyncio.run(scenario())

    assert capsys.readouterr().err == (
        "not started, with the messages of an earlier run: broker-b, broker-c;"
        " 'cometmq up --brokers 3' does\n"
    )


def test_a_directory_that_cannot_be_made_is_told_with_what_helps(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")

    with pytest.raises(SettingsError, match=r"cannot be made: .*; choose another directory with"):
        asyncio.run(LocalService(options_of(tmp_path), {}, lambda _: None).start())


def test_an_address_of_another_machine_is_told_with_what_helps(tmp_path: Path) -> None:
    options = options_of(tmp_path, listen="192.0.2.1")

    with pytest.raises(OSError, match=r"192\.0\.2\.1") as caught:
        asyncio.run(LocalService(options, {}, lambda _: None).start())

    problem = problem_of(caught.value)
    assert problem.fact.startswith("no such address here: ")
    assert problem.next_step.startswith("listen on one of this machine")


def run_line(line: str) -> "subprocess.CompletedProcess[str]":
    program = f"{sys.executable} -m {line}"
    return subprocess.run(
        ["sh", "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
