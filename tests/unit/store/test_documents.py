"""Config documents: what Apache wrote is written again, and survives what a disk can do to it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cometmq.codec.bodies import documents
from cometmq.codec.bodies.offsets import DelayOffsetTable
from cometmq.codec.bodies.topics import TopicConfigTable
from cometmq.errors import LocalProtocolError, RemoteProtocolError
from cometmq.model.topic import TopicConfig
from cometmq.store.documents import ConfigDocument, ConfigDocuments
from tests.golden import store_data

BINARY = "timercheck"
FASTJSON_1 = b'{\n\t"offsetTable":{1:7,2:8\n\t}\n}'
FASTJSON_2 = b'{\n\t"offsetTable":{\n\t\t1:7,\n\t\t2:8\n\t}\n}'


def document(path: Path) -> ConfigDocument[Any]:
    return ConfigDocument(path, documents.DOCUMENTS[path.name])


@pytest.mark.slow  # unpacks the recordings
@pytest.mark.parametrize("store", store_data.STORES)
def test_what_apache_saved_is_saved_again_byte_for_byte(store: str, tmp_path: Path) -> None:
    names = set()
    for recorded, content in store_data.load(store).below("config/").items():
        name = Path(recorded).name.removesuffix(".bak")
        if name == BINARY:
            continue
        names.add(name)
        path = tmp_path / Path(recorded).name / name  # a folder each: backups are tried as well
        path.parent.mkdir()
        path.write_bytes(content)
        saved = document(path)
        value = saved.load()

        for _ in range(2):  # the second time nothing unknown is looked for any more
            saved.save(value)

            assert path.read_bytes() == content, recorded
            assert path.with_name(f"{name}.bak").read_bytes() == content, recorded
    assert {"topics.json", "subscriptionGroup.json", "consumerOffset.json"} < names


@pytest.mark.slow
@pytest.mark.parametrize("store", store_data.STORES)
def test_the_documents_of_a_store_lie_where_apache_puts_them(store: str, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    for path, content in store_data.load(store).below("config/").items():
        (tmp_path / path).write_bytes(content)

    found = ConfigDocuments(tmp_path)

    assert "TBW102" in found.topics.load().topic_config_table
    assert found.groups.load().subscription_group_table
    assert found.consumer_offsets.load().offset_table
    assert found.delay_offsets.load().offset_table


def test_a_first_start_has_empty_tables_and_writes_nothing(tmp_path: Path) -> None:
    empty = {name: document(tmp_path / name).load() for name in documents.DOCUMENTS}

    assert empty == {name: kind() for name, kind in documents.DOCUMENTS.items()}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [FASTJSON_1, FASTJSON_2])
def test_a_file_keeps_its_layout(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "delayOffset.json"
    path.write_bytes(content)
    delays = document(path)
    loaded = delays.load()

    delays.save(msgspec.structs.replace(loaded, offset_table={1: 9, 2: 8}))

    assert path.read_bytes() == content.replace(b"1:7", b"1:9")
    assert path.with_name("delayOffset.json.bak").read_bytes() == content


def test_a_new_file_has_the_layout_of_the_newest_release(tmp_path: Path) -> None:
    path = tmp_path / "config" / "delayOffset.json"

    document(path).save(DelayOffsetTable({1: 7, 2: 8}))

    assert path.read_bytes() == FASTJSON_2


class TestUnknownMembers:
    CONTENT = (
        b'{"newer":{"epoch":3},"topicConfigTable":'
        b'{"a":{"topicName":"a","colour":"red"},"b":{"topicName":"b"}}}'
    )

    @pytest.fixture
    def topics(self, tmp_path: Path) -> "Topics":
        (tmp_path / "topics.json").write_bytes(self.CONTENT)
        return Topics(tmp_path / "topics.json")

    def test_they_outlive_any_number_of_saves(self, topics: "Topics") -> None:
        for _ in range(3):
            topics.save("a", "b", "c")

        assert topics.text.count('"colour":"red"') == 1
        assert topics.text.count('"epoch":3') == 1

    def test_they_go_with_what_they_belong_to(self, topics: "Topics") -> None:
        topics.save("b")
        topics.save("a", "b")

        assert "colour" not in topics.text
        assert "epoch" in topics.text

    def test_they_survive_a_restart(self, topics: "Topics") -> None:
        topics.save("a")

        again = Topics(topics.path)
        again.save("a")

        assert again.text == topics.text
        assert "colour" in again.text


class Topics:
    """``topics.json`` with topics of no interest but their names."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._document = ConfigDocument(path, TopicConfigTable)
        self._document.load()

    def save(self, *names: str) -> None:
        self._document.save(
            TopicConfigTable(topic_config_table={name: TopicConfig(name) for name in names})
        )

    @property
    def text(self) -> str:
        return self.path.read_text()


class TestDamage:
    def test_a_broken_file_gives_way_to_its_backup(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = tmp_path / "delayOffset.json"
        path.write_bytes(FASTJSON_2[:-9])
        path.with_name("delayOffset.json.bak").write_bytes(FASTJSON_1)
        delays = document(path)

        loaded = delays.load()
        delays.save(loaded)

        assert loaded == DelayOffsetTable({1: 7, 2: 8})
        assert path.read_bytes() == FASTJSON_1
        (record,) = caplog.records
        assert record.levelname == "WARNING"
        assert record.getMessage().startswith(f"document={path} read from its backup: JSON")

    @pytest.mark.parametrize("content", [b"{", b"null", b"[]", b'{"offsetTable":7}', b"\xff"])
    def test_what_is_no_such_document_stops_the_start(self, content: bytes, tmp_path: Path) -> None:
        path = tmp_path / "delayOffset.json"
        path.write_bytes(content)

        with pytest.raises(RemoteProtocolError, match=r"cannot read .*delayOffset\.json"):
            document(path).load()

        assert path.read_bytes() == content

    def test_a_value_of_another_document_is_refused_and_changes_nothing(
        self, tmp_path: Path
    ) -> None:
        path = tmp_path / "delayOffset.json"
        path.write_bytes(FASTJSON_1)
        delays = document(path)
        delays.load()

        with pytest.raises(LocalProtocolError, match="cannot hold"):
            delays.save(TopicConfigTable())

        assert [file.name for file in tmp_path.iterdir()] == ["delayOffset.json"]
        assert path.read_bytes() == FASTJSON_1
