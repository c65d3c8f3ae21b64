"""Settings: every key that Apache's name servers show is known here, with the same default."""

from pathlib import Path

import pytest

from cometmq.codec import java_properties
from cometmq.errors import SettingsError
from cometmq.nameserver.config import (
    NameServerNetworkSettings,
    NameServerSettings,
    refused_keys,
)
from cometmq.remoting.config import ChannelSettings, ServerSettings
from cometmq.settings import Settings, describe, load, review_keys, shown_properties
from tests.golden.wire_frames import frames

CLASSES: tuple[type[Settings], ...] = (
    NameServerSettings,
    NameServerNetworkSettings,
    ChannelSettings,
    ServerSettings,
)
OWN_VALUES = {"listenPort", "kvConfigPath", "configStorePath", "rocketmqHome"}
"""Keys that the recorded servers were given on purpose."""

OTHER_DEFAULTS = {
    "scanNotActiveBrokerInterval",  # 10 s as in 4.9, where the interval is fixed
    "writeBufferHighWaterMark",  # Apache's 0 means that there is no limit
    "shutdownWaitTimeSeconds",  # applies always here, and only in graceful mode there
}


def recorded(version: str) -> dict[str, str]:
    """What Apache's name server showed when it was asked for its settings."""
    body = next(f.body for f in frames(f"mqadmin-{version}") if f.request_code == 319)
    return java_properties.loads(body)


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_every_key_of_apaches_name_server_is_accepted(version: str) -> None:
    review = review_keys(recorded(version), *CLASSES)

    assert review.unknown == ()


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_all_of_apaches_keys_are_shown_with_its_defaults(version: str) -> None:
    shown = shown_properties({}, *(cls() for cls in CLASSES))
    apaches = recorded(version)

    assert apaches.keys() <= shown.keys()
    same = apaches.keys() - OWN_VALUES - OTHER_DEFAULTS
    assert {key: shown[key] for key in same} == {key: apaches[key] for key in same}


def test_no_key_is_declared_twice() -> None:
    keys = [row.key for cls in CLASSES for row in describe(cls)]
    inert = [key for cls in CLASSES for key in cls.accepted_without_effect]

    assert len(keys + inert) == len({*keys, *inert})


def test_keys_without_effect_are_shown_as_given_and_in_order() -> None:
    shown = shown_properties({"serverWorkerThreads": "4", "unknown": "x"}, ServerSettings())

    assert shown["serverWorkerThreads"] == "4"
    assert shown["serverSelectorThreads"] == "3"
    assert "unknown" not in shown
    assert list(shown) == sorted(shown)


def test_keys_without_effect_say_why() -> None:
    review = review_keys(["useEpollNativeSelector", "defaultThreadPoolNums"], *CLASSES)

    assert review.unknown == ()
    assert review.without_effect.keys() == {"useEpollNativeSelector", "defaultThreadPoolNums"}
    assert all(review.without_effect.values())


def test_a_file_in_apaches_format_is_read() -> None:
    file = java_properties.loads(
        "listenPort=9999\nkvConfigPath=/data/kv.json\norderMessageEnable=true\n"
        "scanNotActiveBrokerInterval=5000\nconfigBlackList=a;b\n"
    )

    settings = load(NameServerSettings, file=file).settings
    network = load(NameServerNetworkSettings, file=file).settings

    assert settings.kv_config_path == Path("/data/kv.json")
    assert settings.order_message_enable
    assert settings.scan_not_active_broker_interval_ms == 5000
    assert settings.config_black_list == ("a", "b")
    assert network.listen_port == 9999


def test_the_files_live_below_the_home_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    settings = NameServerSettings()

    assert settings.kv_config_path == tmp_path / "namesrv" / "kvConfig.json"
    assert settings.config_store_path == tmp_path / "namesrv" / "namesrv.properties"


def test_the_home_of_rocketmq_is_not_needed_but_found_in_the_environment() -> None:
    found = load(NameServerSettings, environment={"ROCKETMQ_HOME": "/opt/rocketmq"}).settings

    assert NameServerSettings().rocketmq_home is None
    assert found.rocketmq_home == Path("/opt/rocketmq")


@pytest.mark.parametrize("port", ["-1", "65536", "nine"])
def test_an_impossible_port_is_refused_by_name(port: str) -> None:
    with pytest.raises(SettingsError, match="listenPort"):
        load(NameServerNetworkSettings, file={"listenPort": port})


def test_sensitive_keys_cannot_be_changed_whatever_the_list_says() -> None:
    settings = NameServerSettings(config_black_list=("mine",))

    refused = refused_keys(settings, ["clusterTest", "mine", "kvConfigPath", "rocketmqHome"])

    assert refused == ("mine", "kvConfigPath", "rocketmqHome")
