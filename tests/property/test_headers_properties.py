"""Round trips and hostile input for every header, signatures and recall handles."""

import functools
import re
from enum import Enum
from typing import Any, get_args

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cometmq.codec import recall_handle, signature
from cometmq.codec.headers import (
    I32,
    I64,
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    Header,
    LooseBool,
)
from cometmq.codec.headers.offsets import OffsetResponse
from cometmq.errors import RemoteProtocolError

HEADERS = sorted(
    {*REQUEST_HEADERS.values(), *RESPONSE_HEADERS.values()}, key=lambda header: header.__name__
)

VALUES: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(),
    I32: st.integers(-(2**31), 2**31 - 1),
    I64: st.integers(-(2**63), 2**63 - 1),
    bool: st.booleans(),
    LooseBool: st.booleans(),
    type(None): st.none(),
}

NUMBERS = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)

hostile_text = st.one_of(
    st.text(), st.from_regex(r"\A[+-]?[0-9_ ]{0,45}\Z"), st.integers().map(str)
)


def values_of(declared: Any) -> st.SearchStrategy[Any]:
    if isinstance(declared, type) and issubclass(declared, Enum):
        return st.sampled_from(declared)
    if declared in VALUES:
        return VALUES[declared]
    return st.one_of([values_of(choice) for choice in get_args(declared)])


@functools.cache
def headers_of(header: type[Header]) -> st.SearchStrategy[Header]:
    values = [values_of(field.type) for field in msgspec.structs.fields(header)]
    return st.tuples(*values).map(lambda drawn: header(*drawn))


@st.composite
def hostile_ext_fields(draw: st.DrawFn) -> tuple[type[Header], dict[str, str]]:
    header = draw(st.sampled_from(HEADERS))
    names = st.sampled_from(header.__struct_encode_fields__)
    return header, draw(st.dictionaries(names, hostile_text))


@given(st.sampled_from(HEADERS).flatmap(headers_of))
def test_a_header_reads_back_what_it_wrote(header: Header) -> None:
    ext = header.to_ext()

    assert all(type(value) is str for value in ext.values())
    assert type(header).from_ext(ext) == header


@given(hostile_ext_fields())
def test_hostile_fields_are_read_or_refused(case: tuple[type[Header], dict[str, str]]) -> None:
    header, ext = case

    try:
        written = header.from_ext(ext).to_ext()
    except RemoteProtocolError:
        return
    assert header.from_ext(written).to_ext() == written


@given(hostile_text)
def test_a_number_is_decimal_digits_within_its_range(text: str) -> None:
    is_good = bool(NUMBERS.fullmatch(text)) and -(2**63) <= int(text) < 2**63

    try:
        offset = OffsetResponse.from_ext({"offset": text}).offset
    except RemoteProtocolError:
        assert not is_good
    else:
        assert is_good
        assert offset == int(text)


@given(st.dictionaries(st.text(), st.text()), st.binary(), st.text(), st.integers(0, 600))
def test_what_was_signed_is_accepted(
    ext: dict[str, str], body: bytes, secret: str, version: int
) -> None:
    made = signature.sign(secret, signature.content(ext, body))

    assert signature.verify({**ext, "Signature": made}, body, secret, version)
    assert not signature.verify({**ext, "Signature": made}, body + b"!", secret, version)


@given(st.text())
def test_hostile_handles_are_read_or_refused(text: str) -> None:
    try:
        handle = recall_handle.decode(text)
    except RemoteProtocolError:
        return
    assert recall_handle.decode(recall_handle.encode(handle)) == handle


@given(
    st.builds(
        recall_handle.RecallHandle,
        *[st.text(min_size=1).filter(lambda part: " " not in part)] * 2,
        st.integers(0, 2**63 - 1),
        st.text(min_size=1).filter(lambda part: " " not in part),
    )
)
def test_a_handle_reads_back_as_it_was(handle: recall_handle.RecallHandle) -> None:
    assert recall_handle.decode(recall_handle.encode(handle)) == handle
