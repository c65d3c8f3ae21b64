import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import SettingsError
from cometmq.settings import (
    Bundle,
    InertKey,
    Origin,
    Row,
    Settings,
    UnknownKey,
    as_properties,
    describe,
    load,
    review_keys,
    setting,
    settings_class,
)


class Flush(enum.Enum):
    ASYNC_FLUSH = 0
    SYNC_FLUSH = 1


@settings_class
class Sample(Settings):
    accepted_without_effect: ClassVar[Mapping[str, InertKey]] = {
        "serverWorkerThreads": InertKey("8", "one event loop does the work")
    }

    flush_disk_type: Flush = setting(
        Flush.ASYNC_FLUSH, key="flushDiskType", doc="When a send is answered."
    )
    flush_interval_ms: int = setting(
        500, key="flushIntervalCommitLog", doc="Time between two flushes.", minimum=1, maximum=9999
    )
    ratio: float = setting(0.75, doc="Share of the disk.", minimum=0, maximum=1)
    is_warm: bool = setting(False, key="warmMapedFileEnable", doc="Touch files in advance.")
    broker_name: str = setting(factory=lambda: "host", shown="(host name)", doc="Who we are.")
    store_path: Path | None = setting(None, key="storePathRootDir", doc="Where messages go.")
    name_servers: tuple[str, ...] = setting(
        (), key="namesrvAddr", environment=("NAMESRV_ADDR",), doc="Who to register with."
    )
    secret_key: str = setting("", secret=True, doc="Password of the broker.")


def row_of(name: str) -> Row:
    return next(row for row in describe(Sample) if row.name == name)


def test_without_any_source_every_setting_has_its_default() -> None:
    loaded = load(Sample)

    assert loaded.settings == Sample()
    assert loaded.settings.broker_name == "host"
    assert set(loaded.origins.values()) == {Origin.DEFAULT}


def test_flags_win_over_the_environment_that_over_the_file_that_over_the_default() -> None:
    file = {"flushIntervalCommitLog": "1", "warmMapedFileEnable": "true", "ratio": "0.5"}
    environment = {"COMETMQ_FLUSH_INTERVAL_MS": "2", "COMETMQ_IS_WARM": "no"}
    flags = {"flush_interval_ms": 3}

    loaded = load(Sample, flags=flags, environment=environment, file=file)

    assert loaded.settings == Sample(flush_interval_ms=3, is_warm=False, ratio=0.5)
    assert loaded.origins["flush_interval_ms"] is Origin.FLAG
    assert loaded.origins["is_warm"] is Origin.ENVIRONMENT
    assert loaded.origins["ratio"] is Origin.FILE
    assert loaded.origins["store_path"] is Origin.DEFAULT


def test_a_base_replaces_the_defaults_and_nothing_else() -> None:
    base = Sample(flush_interval_ms=7, ratio=0.1)

    loaded = load(Sample, file={"ratio": "0.2"}, base=base)

    assert loaded.settings == Sample(flush_interval_ms=7, ratio=0.2)
    assert loaded.origins["flush_interval_ms"] is Origin.DEFAULT


@pytest.mark.parametrize(
    ("key", "text", "name", "value"),
    [
        ("flushDiskType", "SYNC_FLUSH", "flush_disk_type", Flush.SYNC_FLUSH),
        ("flushDiskType", " sync_flush ", "flush_disk_type", Flush.SYNC_FLUSH),
        ("flushIntervalCommitLog", " 42 ", "flush_interval_ms", 42),
        ("flushIntervalCommitLog", "+42", "flush_interval_ms", 42),
        ("ratio", "1e-1", "ratio", 0.1),
        ("warmMapedFileEnable", "TRUE", "is_warm", True),
        ("warmMapedFileEnable", "off", "is_warm", False),
        ("brokerName", " broker-a ", "broker_name", "broker-a"),
        ("brokerName", "", "broker_name", ""),
        ("storePathRootDir", "/data/store", "store_path", Path("/data/store")),
        ("storePathRootDir", "", "store_path", None),
        ("namesrvAddr", "a:1; b:2;", "name_servers", ("a:1", "b:2")),
        ("namesrvAddr", "", "name_servers", ()),
    ],
)
def test_a_file_speaks_rocketmqs_keys_and_words(
    key: str, text: str, name: str, value: object
) -> None:
    settings = load(Sample, file={key: text}).settings

    assert getattr(settings, name) == value
    assert type(getattr(settings, name)) is type(value)


def test_a_home_folder_is_found_in_a_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    settings = load(Sample, file={"storePathRootDir": "~/store"}).settings

    assert settings.store_path == tmp_path / "store"


def test_a_named_variable_is_read_after_our_own() -> None:
    alias = {"NAMESRV_ADDR": "theirs:9876"}
    both = {**alias, "COMETMQ_NAME_SERVERS": "ours:9876"}

    assert load(Sample, environment=alias).settings.name_servers == ("theirs:9876",)
    assert load(Sample, environment=both).settings.name_servers == ("ours:9876",)


def test_an_empty_variable_counts_as_not_set() -> None:
    loaded = load(Sample, environment={"COMETMQ_FLUSH_INTERVAL_MS": ""})

    assert loaded.settings.flush_interval_ms == 500


def test_a_flag_that_was_not_given_changes_nothing() -> None:
    loaded = load(Sample, flags={"ratio": None, "is_warm": False}, file={"ratio": "0.5"})

    assert loaded.settings.ratio == 0.5
    assert loaded.origins["is_warm"] is Origin.FLAG


INTEGERS = "use an integer from 1 to 9999 (default: 500)"
NUMBERS = "use a number from 0 to 1 (default: 0.75)"
FLUSHES = "ASYNC_FLUSH, SYNC_FLUSH"


@pytest.mark.parametrize(
    ("key", "text", "problem", "next_step"),
    [
        ("flushDiskType", "SYNC", f"is none of: {FLUSHES}", "use one of these words"),
        ("flushDiskType", "sinc_flush", f"is none of: {FLUSHES}", "did you mean 'SYNC_FLUSH'?"),
        ("flushIntervalCommitLog", "1_000", "is not an integer", INTEGERS),
        ("flushIntervalCommitLog", "0", "is below 1", INTEGERS),
        ("flushIntervalCommitLog", "9" * 5000, "is not an integer", INTEGERS),
        ("ratio", "1.5", "is above 1", NUMBERS),
        ("ratio", "nan", "is not a finite number", NUMBERS),
        ("ratio", "much", "is not a number", NUMBERS),
        ("warmMapedFileEnable", "maybe", "is none of: true, false", "use one of these words"),
    ],
)
def test_an_impossible_value_is_refused_with_fact_value_and_next_step(
    key: str, text: str, problem: str, next_step: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        load(Sample, file={key: text})

    assert refused.value.fact == f"setting '{key}': '{text}' {problem}"
    assert refused.value.next_step == next_step


def test_an_error_names_the_setting_as_the_user_wrote_it() -> None:
    def key_of(**sources: Any) -> str:
        with pytest.raises(SettingsError) as refused:
            load(Sample, **sources)
        return refused.value.key

    assert key_of(flags={"ratio": "x"}) == "--ratio"
    assert key_of(environment={"COMETMQ_RATIO": "x"}) == "COMETMQ_RATIO"
    assert key_of(environment={"NAMESRV_ADDR": "a", "COMETMQ_IS_WARM": "x"}) == "COMETMQ_IS_WARM"
    assert key_of(file={"ratio": "x"}) == "ratio"


@pytest.mark.parametrize(
    "values",
    [
        {"flush_interval_ms": 0},
        {"flush_interval_ms": True},
        {"flush_interval_ms": "5"},
        {"ratio": float("inf")},
        {"is_warm": 1},
        {"broker_name": None},
        {"name_servers": "a:1"},
        {"flush_disk_type": "SYNC_FLUSH"},
    ],
)
def test_an_instance_never_holds_an_impossible_value(values: dict[str, Any]) -> None:
    with pytest.raises(SettingsError) as refused:
        Sample(**values)

    assert refused.value.key == next(iter(values))


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Sample().ratio = 0.5  # type: ignore[misc]


def test_keys_nobody_knows_are_reported_with_what_was_probably_meant() -> None:
    review = review_keys(["flushDiskTyp", "FLUSHDISKTYPE", "ratio", "zzz"], Sample)

    assert review.unknown == (
        UnknownKey("flushDiskTyp", "flushDiskType"),
        UnknownKey("FLUSHDISKTYPE", "flushDiskType"),
        UnknownKey("zzz", None),
    )
    assert str(review.unknown[0]) == (
        "unknown setting 'flushDiskTyp' is ignored (did you mean 'flushDiskType'?)"
    )
    assert str(review.unknown[2]) == "unknown setting 'zzz' is ignored"


def test_keys_without_effect_are_known_and_named_with_the_reason() -> None:
    review = review_keys(["serverWorkerThreads", "serverWorkerThread"], Sample)

    assert review.without_effect == {"serverWorkerThreads": "one event loop does the work"}
    assert review.unknown == (UnknownKey("serverWorkerThread", "serverWorkerThreads"),)


def test_one_file_may_feed_several_classes() -> None:
    @settings_class
    class Other(Settings):
        server_worker_threads: int = setting(4, doc="Here it has an effect.")

    review = review_keys(["ratio", "serverWorkerThreads"], Sample, Other)

    assert not review.unknown
    assert not review.without_effect


def test_a_prefix_goes_into_key_variable_and_option() -> None:
    @settings_class
    class Prefixed(Settings):
        prefix: ClassVar[str] = "log"
        file_count: int = setting(8, doc="Files kept.")

    (row,) = describe(Prefixed)

    assert row.key == "logFileCount"
    assert row.variables == ("COMETMQ_LOG_FILE_COUNT",)
    assert row.option == "--log-file-count"


def test_a_description_says_all_there_is_to_know() -> None:
    interval = row_of("flush_interval_ms")
    servers = row_of("name_servers")

    assert interval.key == "flushIntervalCommitLog"
    assert interval.variables == ("COMETMQ_FLUSH_INTERVAL_MS",)
    assert interval.option == "--flush-interval-ms"
    assert interval.type_text == "integer from 1 to 9999"
    assert interval.default_text == "500"
    assert interval.doc == "Time between two flushes."
    assert servers.variables == ("COMETMQ_NAME_SERVERS", "NAMESRV_ADDR")
    assert servers.type_text == "list separated by ';'"
    assert row_of("flush_disk_type").type_text == "ASYNC_FLUSH | SYNC_FLUSH"
    assert row_of("broker_name").default_text == "(host name)"
    assert row_of("store_path").default_text == ""


def test_a_secret_is_never_shown() -> None:
    settings = Sample(secret_key="hunter2")

    with pytest.raises(SettingsError) as refused:
        Sample(secret_key=b"hunter2")  # type: ignore[arg-type]

    assert "hunter2" not in repr(settings)
    assert "hunter2" not in str(refused.value)
    assert row_of("secret_key").text("hunter2") == ""
    assert "secretKey" not in as_properties(settings)


def test_settings_written_as_properties_read_back_the_same() -> None:
    settings = Sample(
        flush_disk_type=Flush.SYNC_FLUSH,
        is_warm=True,
        store_path=Path("/data"),
        name_servers=("a:1", "b:2"),
    )

    written = as_properties(settings)

    assert written["flushDiskType"] == "SYNC_FLUSH"
    assert written["warmMapedFileEnable"] == "true"
    assert written["namesrvAddr"] == "a:1;b:2"
    assert load(Sample, file=written).settings == settings


@pytest.mark.slow
@given(st.text(max_size=30), st.sampled_from([row.key for row in describe(Sample)]))
def test_whatever_a_file_says_is_a_value_or_a_settings_error(text: str, key: str) -> None:
    outcome: Sample | SettingsError
    try:
        outcome = load(Sample, file={key: text}).settings
    except SettingsError as refused:
        outcome = refused

    assert isinstance(outcome, Sample) or outcome.key == key


@settings_class
class Door(Settings):
    prefix: ClassVar[str] = "door"
    accepted_without_effect: ClassVar[Mapping[str, InertKey]] = {
        "doorColour": InertKey("red", "nobody looks"),
        "doorCode": InertKey("", "nobody asks", secret=True),
    }

    port: int = setting(1, doc="Where it is.")
    password: str = setting("", doc="Who may pass.", secret=True)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class House(Bundle):
    """A program of two components, one of which is set up in its own way."""

    front: Sample = dataclasses.field(default_factory=Sample)
    back: Door = dataclasses.field(default_factory=lambda: Door(port=7))


def test_a_bundle_reads_all_its_parts_from_the_same_places() -> None:
    house = House.load(
        file={"flushDiskType": "SYNC_FLUSH", "doorPort": "3"},
        environment={"COMETMQ_DOOR_PORT": "4"},
        flags={"door_port": None},
    )

    assert house.front.flush_disk_type is Flush.SYNC_FLUSH
    assert house.back.port == 4
    assert House.load(file={}, environment={}, flags={"door_port": "5"}).back.port == 5


def test_a_bundle_has_defaults_of_its_own() -> None:
    house = House.load(file={}, environment={}, flags={})

    assert (house.back.port, house) == (7, House())
    assert House.classes() == (Sample, Door)


def test_a_bundle_shows_everything_but_secrets() -> None:
    given = {"doorColour": "blue", "doorCode": "1234", "door.password": "1234", "wall": "1234"}

    house = House(given=given, back=Door(password="1234"))

    shown = house.shown()
    assert (shown["doorColour"], shown["doorPort"]) == ("blue", "1")
    assert "1234" not in " ".join(shown.values())
    assert list(shown) == sorted(shown)
    assert [unknown.key for unknown in house.review().unknown] == ["door.password", "wall"]
