"""The signature of requests."""

import base64
import hashlib
import hmac

import pytest

from cometmq.codec.codes import VERSION
from cometmq.codec.signature import content, sign, verify

SECRET = "s3cret"
EXT = {"topic": "orders", "AccessKey": "alice", "b": "true", "a": "4"}


def signed(ext: dict[str, str], body: bytes = b"") -> dict[str, str]:
    return {**ext, "Signature": sign(SECRET, content(ext, body))}


def test_the_content_is_all_values_in_order_of_their_names_and_the_body() -> None:
    assert content({**EXT, "Signature": "ignored"}, b"body") == b"alice4trueordersbody"


def test_the_content_takes_any_kind_of_bytes() -> None:
    assert content(EXT, memoryview(b"body")) == content(EXT, bytearray(b"body"))


def test_the_content_is_utf_8_and_half_a_surrogate_pair_a_question_mark() -> None:
    assert content({"a": "日本"}) == "日本".encode()
    assert content({"a": "x\ud800y"}) == b"x?y"


def test_the_content_leaves_out_what_it_is_told_to() -> None:
    assert content(EXT, exclude={"topic", "a"}) == b"alicetrue"


def test_a_signature_is_hmac_sha1_in_base64() -> None:
    expected = base64.b64encode(hmac.new(b"s3cret", b"abc", hashlib.sha1).digest()).decode()

    assert sign(SECRET, b"abc") == expected


def test_a_good_signature_is_accepted() -> None:
    assert verify(signed(EXT, b"body"), b"body", SECRET, VERSION)


def test_unknown_fields_are_part_of_what_is_signed() -> None:
    ext = signed({**EXT, "nobodyKnowsThis": "x"})

    assert verify(ext, b"", SECRET, VERSION)
    assert not verify({**ext, "nobodyKnowsThis": "y"}, b"", SECRET, VERSION)


@pytest.mark.parametrize("claimed", [None, "", "ü", "no base64"])
def test_a_request_without_a_proper_signature_is_refused(claimed: str | None) -> None:
    ext = EXT if claimed is None else {**EXT, "Signature": claimed}

    assert not verify(ext, b"", SECRET, VERSION)


@pytest.mark.parametrize("version", [1, 399, 401, VERSION])
def test_the_unique_key_mark_may_be_signed_or_not(version: int) -> None:
    with_mark = signed({**EXT, "_UNIQUE_KEY_QUERY": "true"})
    without_mark = {**signed(EXT), "_UNIQUE_KEY_QUERY": "true"}

    assert verify(with_mark, b"", SECRET, version)
    assert verify(without_mark, b"", SECRET, version)


@pytest.mark.parametrize("mark", [{}, {"_UNIQUE_KEY_QUERY": "true"}])
def test_the_security_token_may_be_added_after_signing(mark: dict[str, str]) -> None:
    java = {**signed({**EXT, "SecurityToken": "t"}), **mark}
    go = {**signed(EXT), "SecurityToken": "t", **mark}

    assert verify(java, b"", SECRET, VERSION)
    assert verify(go, b"", SECRET, VERSION)


def test_no_other_field_may_be_added_after_signing() -> None:
    assert not verify({**signed(EXT), "queueId": "3"}, b"", SECRET, VERSION)
