"""Settings of a running broker: what may change, what is kept, what takes effect when."""

from pathlib import Path

import pytest

from cometmq.broker.broker_config import CLASSES, BrokerConfig
from cometmq.broker.live_settings import LIVE_KEYS, Change, LiveSettings
from cometmq.errors import SettingsError
from cometmq.settings import describe
from cometmq.testing import FakeClock


def settings_of(given: dict[str, str] | None = None, path: Path | None = None) -> LiveSettings:
    """Settings of a broker that was started with ``given`` in the file at ``path``, if any."""
    file = {"brokerName": "broker-a", **(given or {})}
    if path is not None:
        path.write_text("".join(f"{key}={value}\n" for key, value in file.items()))
        file["brokerConfigPath"] = str(path)
    config = BrokerConfig.load(file=file, environment={}, flags={})
    return LiveSettings(config, FakeClock(), facts={"listenPort": "10999"})


def change(settings: LiveSettings, changes: dict[str, str]) -> Change:
    """As a request does it."""
    made = settings.check(changes)
    settings.save(changes)
    settings.apply(changes)
    return made


def test_a_live_key_takes_effect_at_once_and_whoever_asked_is_told_so() -> None:
    settings = settings_of()
    seen: list[int] = []
    settings.on_change.append(lambda config: seen.append(config.store.retention_hours))

    made = change(settings, {"fileReservedTime": "5"})

    assert made.applied == ("fileReservedTime",)
    assert made.after_restart == ()
    assert seen == [5]
    assert settings.config.store.retention_hours == 5
    assert settings.shown()["fileReservedTime"] == "5"


def test_another_key_waits_for_the_next_start_and_the_remark_names_it(tmp_path: Path) -> None:
    settings = settings_of(path=tmp_path / "broker.conf")

    made = change(settings, {"defaultTopicQueueNums": "16"})

    assert made.remark == "takes effect after a restart: defaultTopicQueueNums"
    assert settings.config.broker.default_topic_queue_nums == 8
    assert settings.shown()["defaultTopicQueueNums"] == "16"


def test_what_is_set_to_what_it_is_needs_no_restart(tmp_path: Path) -> None:
    settings = settings_of(path=tmp_path / "broker.conf")

    assert change(settings, {"defaultTopicQueueNums": "8"}).remark == ""


def test_what_waits_for_the_next_start_is_said_each_time_until_it_is_set_back(
    tmp_path: Path,
) -> None:
    settings = settings_of(path=tmp_path / "broker.conf")

    first = change(settings, {"defaultTopicQueueNums": "9", "listenPort": "10998"})
    again = change(settings, {"defaultTopicQueueNums": "9", "listenPort": "10998"})
    back = change(settings, {"defaultTopicQueueNums": "8", "listenPort": "10999"})

    assert first.after_restart == again.after_restart == ("defaultTopicQueueNums", "listenPort")
    assert back.after_restart == ()
    assert settings.shown()["defaultTopicQueueNums"] == "8"


def test_a_key_without_effect_here_is_kept_and_said_to_have_none(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    settings = settings_of(path=path)

    made = change(settings, {"sendMessageThreadPoolNums": "4"})

    assert made.remark == "has no effect here: sendMessageThreadPoolNums"
    assert settings.shown()["sendMessageThreadPoolNums"] == "4"
    assert "sendMessageThreadPoolNums=4\n" in path.read_text()


def test_the_file_keeps_its_comments_and_the_next_start_finds_the_change(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    settings = settings_of(path=path)
    path.write_text("# ours\nbrokerName = broker-a\nfileReservedTime=72\n")

    change(settings, {"fileReservedTime": "5", "flushDiskType": "SYNC_FLUSH"})

    assert path.read_text() == (
        "# ours\nbrokerName = broker-a\nfileReservedTime=5\nflushDiskType=SYNC_FLUSH\n"
    )


def test_a_link_to_the_file_stays_a_link(tmp_path: Path) -> None:
    link = tmp_path / "link.conf"
    link.symlink_to(tmp_path / "broker.conf")
    settings = settings_of(path=link)

    change(settings, {"fileReservedTime": "5"})

    assert link.is_symlink()
    assert "fileReservedTime=5" in (tmp_path / "broker.conf").read_text()


def test_without_a_file_the_remark_says_that_the_change_is_forgotten() -> None:
    made = change(settings_of(), {"fileReservedTime": "5"})

    assert made.remark == "forgotten with the next start: the broker was started without -c"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fileReservedTime": "many"}, "'many' is not an integer"),
        ({"fileReservedTime": "-1"}, "is below 0"),
        ({"fileReservedTim": "5"}, "there is no such setting"),
        ({"deleteWhen": "25"}, "'25' is no hour"),
        ({"messageDelayLevel": "1x"}, "'1x' is no delay"),
        ({"messageDelayLevel": "1s 36501d"}, "'36501d' is too long; use at most 36500d"),
        ({"messageDelayLevel": "200000000000d"}, "'200000000000d' is too long"),
        ({"messageDelayLevel": "9" * 9_999 + "s"}, "'99999999999999999999...' is too long"),
        ({"messageDelayLevel": ""}, "has no level"),
        ({"deleteWhen": ""}, "has no hour"),
        ({"deleteWhen": ";"}, "has no hour"),
        ({"aclEnable": "true"}, "access control is not there yet"),
        ({"brokerRole": "SLAVE"}, "there is no replication"),
        ({"fileReservedTime": "5", "maxMessageSize": "big"}, "'big' is not an integer"),
    ],
)
def test_the_impossible_is_refused_and_nothing_is_changed(
    changes: dict[str, str], words: str
) -> None:
    settings = settings_of()
    before = settings.shown()

    with pytest.raises(SettingsError) as refused:
        settings.check(changes)

    assert words in str(refused.value)
    assert settings.shown() == before


def test_an_address_with_which_no_broker_would_start_is_refused() -> None:
    def resolve(host: str) -> str:
        if host == "here.example":
            return "10.0.0.1"
        raise SettingsError("brokerIP1", f"host name '{host}' has no address")

    config = BrokerConfig.load(file={"brokerName": "broker-a"}, environment={}, flags={})
    settings = LiveSettings(config, FakeClock(), resolve=resolve)

    settings.look_up({"brokerIP1": "here.example"})
    settings.look_up({"brokerIP1": ""})
    settings.look_up({"fileReservedTime": "5"})
    with pytest.raises(SettingsError, match="host name 'not an ip' has no address"):
        settings.look_up({"brokerIP1": "not an ip"})


def test_an_unknown_key_is_refused_with_the_one_that_was_probably_meant() -> None:
    with pytest.raises(SettingsError) as refused:
        settings_of().check({"fileReservedtime": "5"})

    assert refused.value.next_step == "did you mean 'fileReservedTime'?"


@pytest.mark.parametrize(
    "key",
    [
        "configBlackList",
        "brokerConfigPath",
        "storePathRootDir",
        "storePathCommitLog",
        "tls.server.keyPath",
        "tls.server.keyPassword",
        "tls.server.mode",
        "bindAddress",
        "healthPort",
        "rocketmqHome",
    ],
)
def test_paths_secrets_and_the_list_itself_are_always_refused(key: str) -> None:
    settings = settings_of({"configBlackList": "fileReservedTime"})

    assert settings.refused([key, "fileReservedTime", "listenPort"]) == (key, "fileReservedTime")


def test_secrets_are_not_shown() -> None:
    shown = settings_of({"tls.server.keyPassword": "geheim"}).shown()

    assert "geheim" not in shown.values()
    assert shown["brokerName"] == "broker-a"
    assert shown["listenPort"] == "10999", "what the broker found out counts"


def test_the_version_advances_with_every_change() -> None:
    settings = settings_of()
    before = settings.version

    change(settings, {"fileReservedTime": "5"})

    assert (before.counter, settings.version.counter) == (0, 1)


def test_every_live_key_is_a_setting() -> None:
    known = {row.key for part in CLASSES for row in describe(part)}

    assert known >= LIVE_KEYS
