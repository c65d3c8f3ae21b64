"""Handles with which timer messages are taken back."""

import base64

import pytest

from cometmq.codec.recall_handle import RecallHandle, decode, encode
from cometmq.errors import LocalProtocolError, RemoteProtocolError

HANDLE = RecallHandle("Wire", "broker-a", 1_794_780_549_001, "0A000005073930946E094CD0C2B4002C")
TEXT = "djEgV2lyZSBicm9rZXItYSAxNzk0NzgwNTQ5MDAxIDBBMDAwMDA1MDczOTMwOTQ2RTA5NENEMEMyQjQwMDJD"


def handle_of(plain: bytes) -> str:
    return base64.urlsafe_b64encode(plain).decode()


def test_a_handle_is_five_words_in_base64() -> None:
    assert encode(HANDLE) == TEXT
    assert decode(TEXT) == HANDLE


def test_padding_may_be_missing() -> None:
    text = handle_of(b"v1 Wire broker-a 1 KEY")

    assert text.endswith("=")
    assert decode(text.rstrip("=")) == decode(text)


def test_what_follows_the_fifth_word_is_ignored() -> None:
    assert decode(handle_of(b"v1 Wire broker-a 1 KEY more")).unique_key == "KEY"


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("", "five parts"),
        ("!!!", "is not base64"),
        ("A", "is not base64"),
        ("djEgü", "is not base64"),
        (handle_of(b"\xff\xfe"), "is not base64 of text"),
        (handle_of(b"v1 Wire broker-a 1"), "five parts"),
        (handle_of(b"v2 Wire broker-a 1 KEY"), "five parts"),
        (handle_of(b"v1  broker-a 1 KEY"), "an empty part"),
        (handle_of(b"v1 Wire broker-a x KEY"), "no time"),
        (handle_of(b"v1 Wire broker-a -1 KEY"), "no time"),
        (handle_of(b"v1 Wire broker-a 9223372036854775808 KEY"), "no time"),
        (handle_of(b"v1 Wire broker-a " + b"9" * 10_000 + b" KEY"), "no time"),
    ],
)
def test_anything_else_is_refused(text: str, fact: str) -> None:
    with pytest.raises(RemoteProtocolError, match=fact):
        decode(text)


@pytest.mark.parametrize(
    "handle",
    [
        RecallHandle("", "broker-a", 1, "KEY"),
        RecallHandle("Wire", "broker a", 1, "KEY"),
        RecallHandle("Wire", "broker-a", -1, "KEY"),
        RecallHandle("Wire", "broker-a", 2**63, "KEY"),
        RecallHandle("Wire", "broker-a", 1, "K\ud800"),
    ],
)
def test_what_could_not_be_read_back_is_not_written(handle: RecallHandle) -> None:
    with pytest.raises(LocalProtocolError, match="recall handle"):
        encode(handle)
