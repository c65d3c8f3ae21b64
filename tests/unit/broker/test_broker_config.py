"""Settings: every key that Apache's brokers show is known here, and what is unsafe is refused."""

from pathlib import Path

import pytest

from cometmq.broker.broker_config import CLASSES, BrokerConfig
from cometmq.broker.config import BrokerNetworkSettings, BrokerRole, BrokerSettings
from cometmq.codec import java_properties
from cometmq.errors import SettingsError
from cometmq.settings import describe, review_keys
from tests.golden.wire_frames import frames

OWN_VALUES = {
    *("brokerIP1", "brokerIP2", "brokerName", "haListenPort", "listenPort", "namesrvAddr"),
    *("diskMaxUsedSpaceRatio", "mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue"),
    *("maxHashSlotNum", "maxIndexNum", "messageDelayLevel", "storePathCommitLog"),
    *("storePathRootDir", "enablePropertyFilter", "rocketmqHome", "traceTopicEnable"),
    *("transactionCheckInterval", "transactionTimeOut", "recallMessageEnable"),
}
"""Keys that the recorded brokers were given on purpose."""

OTHER_DEFAULTS = {
    "writeBufferHighWaterMark",  # Apache's 0 means that there is no limit
    "shutdownWaitTimeSeconds",  # applies always here, and only in graceful mode there
}
DEFAULTS_OF_5 = {"registerBrokerTimeoutMills", "autoDeleteUnusedStats"}


def recorded(version: str) -> dict[str, str]:
    """What Apache's broker showed when it was asked for its settings."""
    body = next(f.body for f in frames(f"mqadmin-{version}") if f.request_code == 26)
    return java_properties.loads(body)


def load(**file: str) -> BrokerConfig:
    return BrokerConfig.load(file=file, environment={}, flags={})


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_every_key_of_apaches_broker_is_accepted(version: str) -> None:
    review = review_keys(recorded(version), *CLASSES)

    assert review.unknown == ()


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_all_of_apaches_keys_are_shown_with_its_defaults(version: str) -> None:
    shown = BrokerConfig().shown()
    apaches = recorded(version)

    assert apaches.keys() <= shown.keys()
    others = OWN_VALUES | OTHER_DEFAULTS | (DEFAULTS_OF_5 if version == "4.9.7" else set())
    same = apaches.keys() - others
    assert {key: shown[key] for key in same} == {key: apaches[key] for key in same}


@pytest.mark.parametrize(
    ("key", "words"), [("messageDelayLevel", "has no level"), ("deleteWhen", "has no hour")]
)
def test_a_list_without_anything_in_it_is_refused(key: str, words: str) -> None:
    with pytest.raises(SettingsError, match=f"{key}.* {words}"):
        load(**{key: " "})


def test_a_file_that_apaches_broker_runs_with_is_read_whole() -> None:
    config = load(**recorded("5.5.0"))

    assert config.broker.broker_name == "broker-a"
    assert config.broker.namesrv_addr == ("127.0.0.1:9977", "127.0.0.1:9986")
    assert config.network.listen_port == 13911
    assert config.store.log_file_bytes == 16 * 1024 * 1024
    assert config.review().unknown == ()
    assert "sendMessageThreadPoolNums" in config.review().without_effect


def test_no_key_variable_or_option_is_declared_twice() -> None:
    rows = [row for cls in CLASSES for row in describe(cls)]
    keys = [row.key for row in rows]
    inert = [key for cls in CLASSES for key in cls.accepted_without_effect]
    variables = [variable for row in rows for variable in row.variables]
    flags = [row.flag for row in rows]

    assert len(keys + inert) == len({*keys, *inert})
    assert len(variables) == len(set(variables))
    assert len(flags) == len(set(flags))


def test_flags_reach_the_class_they_belong_to() -> None:
    flags = {"tls_cert_path": "/server.pem", "tls_client_cert_path": "/client.pem", "root": "/data"}

    config = BrokerConfig.load(file={}, environment={}, flags=flags)

    assert config.tls.cert_path == Path("/server.pem")
    assert config.tls_client.cert_path == Path("/client.pem")
    assert config.store.root == Path("/data")


def test_name_servers_may_come_from_apaches_variable() -> None:
    environment = {"NAMESRV_ADDR": "a:9876; b:9876"}

    config = BrokerConfig.load(file={}, environment=environment, flags={})

    assert config.broker.namesrv_addr == ("a:9876", "b:9876")


def test_a_broker_opens_the_vip_port_unless_told_not_to() -> None:
    assert BrokerConfig().server.is_vip_enabled
    assert load().server.is_vip_enabled
    assert not load(isVipEnabled="false").server.is_vip_enabled


@pytest.mark.parametrize("role", ["SLAVE", "SYNC_MASTER", "slave"])
def test_a_role_that_needs_replication_is_refused(role: str) -> None:
    with pytest.raises(SettingsError, match="no replication; use ASYNC_MASTER") as caught:
        load(brokerRole=role)

    assert caught.value.key == "brokerRole"
    assert load(brokerRole="ASYNC_MASTER").broker.broker_role is BrokerRole.ASYNC_MASTER


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("aclEnable", "true"),
        ("authenticationEnabled", "True"),
        ("authorizationEnabled", "yes"),
        ("enableControllerMode", "true"),
        ("enableDLegerCommitLog", "true"),
        ("enableLmq", "true"),
        ("enableMultiDispatch", "true"),
        ("storeType", "defaultRocksDB"),
    ],
)
def test_a_promise_that_would_not_be_kept_is_refused(key: str, value: str) -> None:
    with pytest.raises(SettingsError, match="is not possible") as caught:
        load(**{key: value})

    assert caught.value.key == key


def test_the_same_keys_with_a_harmless_value_are_accepted() -> None:
    config = load(aclEnable=" FALSE ", storeType="", enableDLegerCommitLog="false")

    assert config.review().without_effect.keys() == {
        "aclEnable", "storeType", "enableDLegerCommitLog"
    }  # fmt: skip


@pytest.mark.parametrize("address", ["localhost", "host:", "host:99999", "http://host/x"])
def test_a_name_server_that_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(SettingsError, match=r"namesrvAddr.*write it as host:port"):
        load(namesrvAddr=f"good:9876;{address}")


@pytest.mark.parametrize("key", ["brokerName", "brokerClusterName"])
def test_a_broker_has_a_name_and_a_cluster(key: str) -> None:
    with pytest.raises(SettingsError, match=f"{key}.*is empty"):
        load(**{key: " "})


@pytest.mark.parametrize(
    ("asked_ms", "used_ms"), [(1, 10_000), (10_000, 10_000), (30_000, 30_000), (600_000, 60_000)]
)
def test_registrations_are_neither_rare_nor_frequent(asked_ms: int, used_ms: int) -> None:
    assert BrokerSettings(register_period_ms=asked_ms).register_period_used_ms == used_ms


def test_secrets_are_not_shown() -> None:
    file = {
        "tls.server.keyPassword": "sesame",
        "tls.client.keyPassword": "sesame",
        "metricsGrpcExporterHeader": "authorization:sesame",
        "socksProxyConfig": '{"10.0.0.1:1080":{"password":"sesame"}}',
        "unheardOf": "sesame",
    }

    config = load(**file)

    assert config.tls.key_password == "sesame"
    assert "sesame" not in " ".join(config.shown().values())
    assert "sesame" not in repr(config.tls) + repr(config.tls_client)


def test_it_listens_where_apaches_does() -> None:
    network = BrokerNetworkSettings()

    assert (network.bind_address, network.listen_port) == ("0.0.0.0", 10911)
