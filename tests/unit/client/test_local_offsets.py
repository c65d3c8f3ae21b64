"""The file of a broadcasting consumer, which Java clients must be able to take over."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from cometmq.client.local_offsets import LocalOffsets, default_folder
from cometmq.errors import RemoteProtocolError, SettingsError
from cometmq.model.offsets import MessageQueue
from cometmq.saved_file import DiskFiles
from tests.interop import vectors

A, B = (MessageQueue("orders", "broker-a", number) for number in range(2))
VECTORS = vectors.read("client-local-offsets")


class CountingFiles(DiskFiles):
    """The disk, and how often something was replaced."""

    replaced = 0

    def replace(self, path: Path, content: bytes) -> None:
        self.replaced += 1
        super().replace(path, content)


@pytest.fixture
def offsets(tmp_path: Path) -> LocalOffsets:
    return LocalOffsets(tmp_path, "10.0.0.1@DEFAULT", "g")


def table(vector: dict[str, Any]) -> dict[MessageQueue, int]:
    return {MessageQueue(*queue): offset for *queue, offset in vector["offsets"]}


@pytest.mark.parametrize("vector", [one for one in VECTORS if one["file"]])
def test_files_of_java_are_read(offsets: LocalOffsets, vector: dict[str, Any]) -> None:
    offsets.path.parent.mkdir(parents=True)
    offsets.path.write_text(vector["file"])

    assert offsets.load() == table(vector)


@pytest.mark.parametrize(
    "vector",
    [v for v in VECTORS if v["case"] == "written" and v["releases"] == ["5.5.0"]],
)
def test_files_are_written_as_java_does(offsets: LocalOffsets, vector: dict[str, Any]) -> None:
    offsets.save(table(vector))

    assert offsets.path.read_text() == vector["file"]


def test_the_path_names_client_and_group(tmp_path: Path) -> None:
    offsets = LocalOffsets(tmp_path, "10.0.0.1@DEFAULT@unit", "%ns%g")

    assert offsets.path == tmp_path / "10.0.0.1@DEFAULT@unit" / "%ns%g" / "offsets.json"
    assert default_folder() == Path.home() / ".rocketmq_offsets"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a\0b"])
def test_a_name_that_would_lead_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match="cannot be the name of a folder"):
        LocalOffsets(tmp_path, name, "g")
    with pytest.raises(SettingsError, match="cannot be the name of a folder"):
        LocalOffsets(tmp_path, "c", name)


def test_without_a_file_nothing_is_known(offsets: LocalOffsets) -> None:
    assert offsets.load() == {}


def test_queues_that_are_away_keep_their_offsets(offsets: LocalOffsets, tmp_path: Path) -> None:
    offsets.save({A: 1, B: 2})

    offsets.save({A: 5})

    assert LocalOffsets(tmp_path, "10.0.0.1@DEFAULT", "g").load() == {A: 5, B: 2}


def test_offsets_may_go_back(offsets: LocalOffsets) -> None:
    offsets.save({A: 5})
    offsets.save({A: 1})

    assert offsets.load() == {A: 1}


def test_what_another_process_wrote_meanwhile_is_kept(
    offsets: LocalOffsets, tmp_path: Path
) -> None:
    offsets.load()
    LocalOffsets(tmp_path, "10.0.0.1@DEFAULT", "g").save({B: 2})

    offsets.save({A: 1})

    assert offsets.load() == {A: 1, B: 2}


def test_the_state_before_is_the_backup(offsets: LocalOffsets) -> None:
    offsets.save({A: 1})
    offsets.save({A: 2})

    offsets.path.write_text("{broken")

    assert offsets.load() == {A: 1}


@pytest.mark.parametrize("content", ["", "{broken"])
def test_a_file_that_breaks_is_mended_by_the_next_save(offsets: LocalOffsets, content: str) -> None:
    offsets.save({A: 1, B: 2})
    offsets.save({A: 2})
    offsets.path.write_text(content)

    offsets.save({A: 2})

    assert '"queueId":1' in offsets.path.read_text()
    assert offsets.load() == {A: 2, B: 2}


def test_when_file_and_backup_break_what_is_known_is_written(offsets: LocalOffsets) -> None:
    offsets.save({A: 1, B: 2})
    offsets.save({A: 2})
    offsets.path.write_text("{broken")
    offsets.path.with_name("offsets.json.bak").write_text("{broken too")

    offsets.save({A: 3})

    assert offsets.load() == {A: 3, B: 2}


def test_what_cannot_be_read_at_the_start_is_an_error(offsets: LocalOffsets) -> None:
    offsets.path.parent.mkdir(parents=True)
    offsets.path.write_text("{broken")

    with pytest.raises(RemoteProtocolError, match="repair the file, or remove it"):
        offsets.load()


def test_nothing_is_written_when_nothing_changed(tmp_path: Path) -> None:
    files = CountingFiles()
    offsets = LocalOffsets(tmp_path, "c", "g", files)
    offsets.save({A: 1})
    assert files.replaced == 1

    offsets.save({A: 1})
    offsets.save({})

    assert files.replaced == 1


def test_windows_has_less_to_offer_and_it_is_enough(
    offsets: LocalOffsets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    for name in ("fchmod", "O_CLOEXEC"):
        monkeypatch.delattr(os, name)

    offsets.save({A: 1})
    offsets.save({A: 2})

    assert offsets.load() == {A: 2}
