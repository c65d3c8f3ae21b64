"""Java's properties text; expected values were read by ``java.util.Properties`` itself."""

import pytest

from cometmq.codec import java_properties
from cometmq.errors import RemoteProtocolError


def test_everything_java_allows_is_read_as_java_reads_it() -> None:
    text = (
        "# c\n! d\n a = b \\\n   c\nk\\:x:v\\u4e2d\\tz\nonly\nsp  v w \n  e\\ f=1\n"
        "=empty\nx==y\nq\\\\=2\\\nz\r\nlast=\\q\\\n"
    )

    assert java_properties.loads(text) == {
        "a": "b c",
        "k:x": "v中\tz",
        "only": "",
        "sp": "v w ",
        "e f": "1",
        "": "empty",
        "x": "=y",
        "q\\": "2z",
        "last": "q",
    }


def test_a_broker_conf_is_read() -> None:
    text = b"""# storage
brokerClusterName = DefaultCluster
brokerName=broker-a
brokerId=0

deleteWhen=04
namesrvAddr=127.0.0.1:9876;127.0.0.1:9877
messageDelayLevel=1s 5s \\
    10s
storePathRootDir=/data/\xc3\xa9
"""

    assert java_properties.loads(text) == {
        "brokerClusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerId": "0",
        "deleteWhen": "04",
        "namesrvAddr": "127.0.0.1:9876;127.0.0.1:9877",
        "messageDelayLevel": "1s 5s 10s",
        "storePathRootDir": "/data/é",
    }


def test_the_last_of_repeated_keys_counts() -> None:
    assert java_properties.loads("a=1\nb=2\na=3") == {"a": "3", "b": "2"}


def test_a_comment_is_not_continued_and_a_continuation_is_no_comment() -> None:
    assert java_properties.loads("# x\\\na=1\\\n#2\n") == {"a": "1#2"}


def test_a_blank_line_ends_a_continuation() -> None:
    assert java_properties.loads("a=1\\\n\nb=2") == {"a": "1", "b": "2"}


def test_bytes_that_are_not_utf_8_are_latin_1() -> None:
    assert java_properties.loads(b"a=\xe9") == {"a": "é"}


def test_escaped_surrogates_are_joined() -> None:
    assert java_properties.loads("a=\\uD83D\\uDE00\\uD800") == {"a": "😀?"}


@pytest.mark.parametrize("text", ["a=\\u", "a=\\u12", "a=\\u12g4", "\\ux=1"])
def test_a_broken_unicode_escape_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="four hexadecimal digits"):
        java_properties.loads(text)


def test_ordinary_values_are_written_without_escapes() -> None:
    properties = {"namesrvAddr": "10.0.0.1:9876;10.0.0.2:9876", "empty": "", "levels": "1s 5s"}

    assert java_properties.dumps(properties) == (
        b"namesrvAddr=10.0.0.1:9876;10.0.0.2:9876\nempty=\nlevels=1s 5s\n"
    )


def test_what_java_s_reader_would_change_is_escaped() -> None:
    properties = {"a b:c=d#": " x\\y\n\t é😀", "#k": "\x01"}

    written = java_properties.dumps(properties)

    assert written == (b"a\\ b\\:c\\=d\\#=\\ x\\\\y\\n\\t \\u00E9\\uD83D\\uDE00\n\\#k=\\u0001\n")
    assert java_properties.loads(written) == properties


def test_a_changed_file_differs_in_the_changed_lines_only() -> None:
    before = (
        b"# ours\n\nbrokerName = a\nflushDiskType:ASYNC_FLUSH  \n! kept\n"
        b"namesrvAddr=\\\n  10.0.0.1:9876\nlast=1"
    )

    after = java_properties.changed(
        before, {"flushDiskType": "SYNC_FLUSH", "namesrvAddr": "ns:9876", "new key": " 1"}
    )

    assert after == (
        b"# ours\n\nbrokerName = a\nflushDiskType=SYNC_FLUSH\n! kept\n"
        b"namesrvAddr=ns:9876\nlast=1\nnew\\ key=\\ 1\n"
    )
    assert java_properties.loads(after)["new key"] == " 1"


def test_every_occurrence_of_a_key_is_changed_and_line_ends_stay() -> None:
    assert java_properties.changed(b"a=1\r\na=2\r\n", {"a": "3"}) == b"a=3\r\na=3\r\n"


def test_an_empty_file_gets_the_changes() -> None:
    assert java_properties.changed(b"", {"a": "1"}) == b"a=1\n"


@pytest.mark.parametrize("data", ["#ä\n".encode(), b"#\xe4\n"])
def test_bytes_that_do_not_change_stay_what_they_are(data: bytes) -> None:
    assert java_properties.changed(data, {"a": "ä"}) == data + b"a=\\u00E4\n"


BOM = b"\xef\xbb\xbf"


@pytest.mark.parametrize("text", [b"a=1\nb=2\n", "a=1\nb=\u00e4\n".encode("latin-1")])
def test_a_byte_order_mark_is_no_part_of_the_first_key(text: bytes) -> None:
    """Editors on Windows write one; Java takes it for characters of the key."""
    assert java_properties.loads(BOM + text) == java_properties.loads(text)
    changes = {"a": "3"}
    assert java_properties.changed(BOM + text, changes) == BOM + java_properties.changed(
        text, changes
    )
