"""Settings by namespace, and the file that must never be half written."""

from pathlib import Path

import pytest

from cometmq.errors import RemoteProtocolError
from cometmq.nameserver.kv_config import DiskFiles, KvConfig, KvConfigFile, KvSource

PATH = Path("folder/kvConfig.json")
BACKUP = Path("folder/kvConfig.json.bak")
ONE = b'{"configTable":{"NS":{"k":"1"}}}'
TWO = b'{"configTable":{"NS":{"k":"2"}}}'


class FakeFiles:
    """Files in memory; ``fail_at`` names the one whose replacement ends in an error."""

    def __init__(self, contents: dict[Path, bytes] | None = None) -> None:
        self.contents = contents or {}
        self.fail_at: Path | None = None

    def read(self, path: Path) -> bytes | None:
        return self.contents.get(path)

    def replace(self, path: Path, content: bytes) -> None:
        if path == self.fail_at:
            raise OSError(28, "No space left on device", str(path))
        self.contents[path] = content


class TestTable:
    def test_a_value_is_found_by_namespace_and_key(self) -> None:
        config = KvConfig()

        before = config.put("NS", "k", "v")

        assert before is None
        assert config.get("NS", "k") == "v"
        assert config.get("NS", "other") is None
        assert config.get("other", "k") is None
        assert config.namespace("NS") == {"k": "v"}
        assert config.namespace("other") is None

    def test_a_value_is_replaced(self) -> None:
        config = KvConfig(ONE)

        assert config.put("NS", "k", "2") == "1"
        assert config.get("NS", "k") == "2"
        assert len(config) == 1

    def test_a_value_is_deleted_and_its_namespace_stays(self) -> None:
        config = KvConfig()
        config.put("NS", "k", "")

        assert config.delete("NS", "k") == ""
        assert config.delete("NS", "k") is None
        assert config.delete("other", "k") is None
        assert config.get("NS", "k") is None
        assert config.namespace("NS") == {}

    def test_a_namespace_that_was_asked_for_is_a_copy(self) -> None:
        config = KvConfig(ONE)

        seen = config.namespace("NS")
        config.put("NS", "k", "2")

        assert seen == {"k": "1"}

    def test_everything_can_be_listed(self) -> None:
        config = KvConfig(b'{"configTable":{"A":{"x":"1","y":"2"},"B":{"x":"3"},"C":{}}}')

        assert list(config) == [("A", "x", "1"), ("A", "y", "2"), ("B", "x", "3")]
        assert len(config) == 3

    def test_it_is_written_as_apache_writes_it(self) -> None:
        config = KvConfig()
        config.put("ORDER_TOPIC_CONFIG", "t", "broker-a:4;broker-b:4")

        assert config.encoded() == (
            b'{"configTable":{"ORDER_TOPIC_CONFIG":{"t":"broker-a:4;broker-b:4"}}}'
        )

    def test_what_a_newer_release_wrote_is_kept(self) -> None:
        config = KvConfig(b'{"configTable":{"NS":{"k":"1"}},"epoch":7}')

        config.put("NS", "k", "2")

        assert config.encoded() == b'{"configTable":{"NS":{"k":"2"}},"epoch":7}'

    @pytest.mark.parametrize("content", [b"", b" \n", b"null", b"{}", b'{"configTable":{}}'])
    def test_nothing_is_nothing(self, content: bytes) -> None:
        config = KvConfig(content)

        assert len(config) == 0
        assert config.encoded() == b'{"configTable":{}}'

    @pytest.mark.parametrize(
        "content", [b"{", b"1", b"x", b"\xff", b'{"configTable":[]}', b'{"configTable":{"NS":7}}']
    )
    def test_anything_else_is_refused(self, content: bytes) -> None:
        with pytest.raises(RemoteProtocolError):
            KvConfig(content)


class TestLoading:
    def load(self, contents: dict[Path, bytes]) -> tuple[KvSource, str | None]:
        loaded = KvConfigFile(PATH, FakeFiles(contents)).load()
        return loaded.source, loaded.config.get("NS", "k")

    def test_the_file_comes_first(self) -> None:
        assert self.load({PATH: ONE, BACKUP: TWO}) == (KvSource.FILE, "1")

    @pytest.mark.parametrize("content", [None, b"", b"{"])
    def test_without_a_good_file_the_backup_is_read(self, content: bytes | None) -> None:
        contents = {BACKUP: TWO} if content is None else {PATH: content, BACKUP: TWO}

        loaded = KvConfigFile(PATH, FakeFiles(contents)).load()

        assert loaded.source is KvSource.BACKUP
        assert loaded.config.get("NS", "k") == "2"
        assert loaded.problem

    def test_a_first_start_finds_nothing(self) -> None:
        assert self.load({}) == (KvSource.NOWHERE, None)

    @pytest.mark.parametrize("backup", [None, b"", b"["])
    def test_a_broken_file_without_a_good_backup_stops_the_start(
        self, backup: bytes | None
    ) -> None:
        contents = {PATH: b"{"} if backup is None else {PATH: b"{", BACKUP: backup}

        with pytest.raises(RemoteProtocolError, match=r"kvConfig\.json.*remove it"):
            self.load(contents)


class TestSaving:
    def test_what_was_there_becomes_the_backup(self) -> None:
        files = FakeFiles({PATH: ONE})
        file = KvConfigFile(PATH, files)
        file.load()

        file.save(TWO)

        assert files.contents == {PATH: TWO, BACKUP: ONE}

    def test_a_first_save_has_no_backup(self) -> None:
        files = FakeFiles()

        KvConfigFile(PATH, files).save(ONE)

        assert files.contents == {PATH: ONE}

    def test_a_broken_file_never_becomes_the_backup(self) -> None:
        files = FakeFiles({PATH: b"{", BACKUP: ONE})
        file = KvConfigFile(PATH, files)
        file.load()

        file.save(TWO)

        assert files.contents == {PATH: TWO, BACKUP: ONE}

    @pytest.mark.parametrize("failing", [PATH, BACKUP])
    def test_a_save_that_fails_loses_nothing(self, failing: Path) -> None:
        files = FakeFiles({PATH: ONE})
        file = KvConfigFile(PATH, files)
        file.load()
        files.fail_at = failing

        with pytest.raises(OSError, match="No space left"):
            file.save(TWO)

        assert KvConfigFile(PATH, files).load().config.get("NS", "k") == "1"

    def test_after_a_failure_the_next_save_works(self) -> None:
        files = FakeFiles({PATH: ONE})
        file = KvConfigFile(PATH, files)
        file.load()
        files.fail_at = PATH
        with pytest.raises(OSError, match="No space left"):
            file.save(b"lost")
        files.fail_at = None

        file.save(TWO)

        assert files.contents == {PATH: TWO, BACKUP: ONE}


class TestDisk:
    def test_a_missing_file_is_none(self, tmp_path: Path) -> None:
        assert DiskFiles().read(tmp_path / "missing") is None

    def test_a_file_is_replaced_whole_and_nothing_else_stays(self, tmp_path: Path) -> None:
        path = tmp_path / "new" / "folder" / "kvConfig.json"
        files = DiskFiles()

        files.replace(path, ONE)
        files.replace(path, TWO)

        assert files.read(path) == TWO
        assert [found.name for found in path.parent.iterdir()] == ["kvConfig.json"]

    def test_settings_survive_a_restart(self, tmp_path: Path) -> None:
        path = tmp_path / "kvConfig.json"
        file = KvConfigFile(path)
        config = file.load().config
        config.put("NS", "k", "ü")
        file.save(config.encoded())

        again = KvConfigFile(path).load()

        assert again.source is KvSource.FILE
        assert list(again.config) == [("NS", "k", "ü")]
