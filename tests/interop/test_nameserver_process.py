"""The name server as a program: how it ends, what it says, and files shared with Apache's."""

import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop import asking, nameserver, raw
from tests.interop.apache import VERSIONS, ApacheNameServer
from tests.interop.asking import wait_until
from tests.interop.cache import Cache
from tests.interop.nameserver import OurNameServer
from tests.interop.ports import LOOPBACK, free_port

STOP_TIMEOUT_S = 10.0

slow = pytest.mark.slow


@slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(tmp_path: Path, how: signal.Signals) -> None:
    """Also while somebody is connected: that connection is closed, and the port is free again."""
    namesrv = OurNameServer(tmp_path)
    try:
        with raw.connect(namesrv.address) as connection:
            assert asking.topics(namesrv.address) == set()

            os.kill(namesrv.process.pid, how)

            wait_until(lambda: not namesrv.process.is_alive(), "its end", timeout_s=STOP_TIMEOUT_S)
            with pytest.raises(ConnectionError):
                connection.receive()
    finally:
        code = namesrv.stop()
    assert code == 0
    assert f"stopping: got {how.name}" in namesrv.process.log()
    assert "Traceback" not in namesrv.process.log()
    with socket.create_server((LOOPBACK, namesrv.port)):
        pass


@slow
def test_a_port_in_use_is_told_by_name(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        process = nameserver.start(tmp_path, {"listenPort": str(port), "bindAddress": LOOPBACK})

        wait_until(lambda: not process.is_alive(), "its end", timeout_s=STOP_TIMEOUT_S)

    assert process.stop() == 1
    assert f"error: port {port} on {LOOPBACK} is in use" in process.log()
    assert "Traceback" not in process.log()


@slow
def test_what_was_set_is_there_after_a_restart(tmp_path: Path) -> None:
    """Key-value configuration, and settings changed at run time, which go into the file of -c."""
    settings = {"listenPort": str(free_port())}
    with OurNameServer(tmp_path, settings=settings) as namesrv:
        asking.put_kv(namesrv.address, "ORDER_TOPIC_CONFIG", "orders", "broker-a:4")
        asking.change_setting(namesrv.address, "orderMessageEnable", "true")
        written = (tmp_path / "server.conf").read_text()

    process = nameserver.restart(tmp_path)
    try:
        process.wait_until_printed(nameserver.READY)

        assert asking.kv(namesrv.address, "ORDER_TOPIC_CONFIG", "orders") == "broker-a:4"
        assert asking.settings(namesrv.address)["orderMessageEnable"] == "true"
        assert "orderMessageEnable=true" in written.splitlines()
    finally:
        process.stop()


@slow
@pytest.mark.interop
@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", VERSIONS)
def test_apaches_name_server_and_ours_take_turns_with_one_file(
    cache: Cache, tmp_path: Path, version: str
) -> None:
    """Ours writes, Apache's reads and adds, ours reads both: kvConfig.json is the same file."""
    said: dict[str, str] = {}

    def use(start: Callable[[], OurNameServer | ApacheNameServer], key: str) -> None:
        with start() as namesrv:
            assert namesrv.kv_config_path == tmp_path / "kvConfig.json"
            for known, value in said.items():
                assert asking.kv(namesrv.address, "NAMESPACE", known) == value
            said[key] = f'välue of {key}: "quoted"; \\ and 東京'
            asking.put_kv(namesrv.address, "NAMESPACE", key, said[key])

    use(lambda: OurNameServer(tmp_path), "first")
    use(lambda: ApacheNameServer(cache, version, tmp_path), "second")
    use(lambda: OurNameServer(tmp_path), "third")

    assert json.loads((tmp_path / "kvConfig.json").read_text(encoding="utf-8")) == {
        "configTable": {"NAMESPACE": said}
    }
